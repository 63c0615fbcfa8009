// SPDX-License-Identifier: Apache-2.0
//! \file
//! Turns the list of checks into GoogleTest tests of one kind of target.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "conformance/conformance.hpp"

namespace forebay::conformance {

/// `Target` is a default-constructible `target`, shared by the tests that run in one process: a check leaves the
/// controller disabled, as it found it.
template <class Target>
class suite : public testing::TestWithParam<check> {
 protected:
  static void TearDownTestSuite() { shared().reset(); }
  static target& on() {
    if (!shared()) shared() = std::make_unique<Target>();
    return *shared();
  }

 private:
  static std::unique_ptr<Target>& shared() {
    static std::unique_ptr<Target> instance;
    return instance;
  }
};

inline std::string name_of(testing::TestParamInfo<check> const& info) {
  return info.param.name;
}

}  // namespace forebay::conformance
