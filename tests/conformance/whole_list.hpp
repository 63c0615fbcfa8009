// SPDX-License-Identifier: Apache-2.0
//! \file
//! That a program runs the whole conformance list on each of its targets.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "conformance/conformance.hpp"

namespace forebay::conformance {

inline std::set<std::string> names_in_list() {
  std::set<std::string> names;
  for (check const& c : checks()) names.insert(c.name);
  return names;
}

/// The suites of this program whose names begin with `prefix` are those of the targets, and each has all checks.
inline void expect_whole_list(std::string_view prefix, std::initializer_list<char const*> targets) {
  std::map<std::string, std::set<std::string>> run_by_target;
  testing::UnitTest const& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    testing::TestSuite const& suite = *all.GetTestSuite(s);
    std::string_view const suite_name = suite.name();
    if (!suite_name.starts_with(prefix)) continue;
    auto& names = run_by_target[std::string(suite_name.substr(prefix.size()))];
    for (int t = 0; t < suite.total_test_count(); ++t) {
      std::string_view const test_name = suite.GetTestInfo(t)->name();
      names.insert(std::string(test_name.substr(test_name.find('/') + 1)));
    }
  }
  for (char const* const target : targets) EXPECT_EQ(run_by_target[target], names_in_list()) << target;
  EXPECT_EQ(run_by_target.size(), targets.size());
}

}  // namespace forebay::conformance
