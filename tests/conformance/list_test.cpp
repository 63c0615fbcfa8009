// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list itself: long enough, and the same for every target.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "conformance/conformance.hpp"

namespace forebay::conformance {
namespace {

std::set<std::string> names_in_list() {
  std::set<std::string> names;
  for (check const& c : checks()) names.insert(c.name);
  return names;
}

TEST(conformance_list, has_at_least_60_checks_of_different_names) {
  fmt::print("{} checks\n", checks().size());
  EXPECT_GE(checks().size(), 60u);
  EXPECT_EQ(names_in_list().size(), checks().size());
}

TEST(conformance_list, is_run_whole_by_every_target) {
  std::map<std::string, std::set<std::string>> run_by_target;
  testing::UnitTest const& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    testing::TestSuite const& suite = *all.GetTestSuite(s);
    std::string_view constexpr prefix = "conformance/";
    std::string_view const suite_name = suite.name();
    if (!suite_name.starts_with(prefix)) continue;
    auto& names = run_by_target[std::string(suite_name.substr(prefix.size()))];
    for (int t = 0; t < suite.total_test_count(); ++t) {
      std::string_view const test_name = suite.GetTestInfo(t)->name();
      names.insert(std::string(test_name.substr(test_name.find('/') + 1)));
    }
  }
  char const* const targets[] = {"emulated",
                                 "file_in_memory_mmap",
                                 "file_in_memory_uring",
                                 "file_on_block_device_mmap",
                                 "file_on_block_device_uring",
                                 "file_on_disk_mmap",
                                 "file_on_disk_uring",
                                 "pci_sysfs",
                                 "pci_vfio",
                                 "qemu",
                                 "qemu_blocks_of_4096",
                                 "qemu_second_namespace"};
  for (char const* const target : targets) EXPECT_EQ(run_by_target[target], names_in_list()) << target;
  EXPECT_EQ(run_by_target.size(), std::size(targets));
}

}  // namespace
}  // namespace forebay::conformance
