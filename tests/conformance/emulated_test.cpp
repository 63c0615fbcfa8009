// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on the emulated controller, on CPU threads.
#include "conformance/emulated.hpp"

#include <gtest/gtest.h>

#include "conformance/suite.hpp"

namespace forebay::conformance {

using emulated = suite<emulated_target>;

TEST_P(emulated, conforms) {
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, emulated, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
