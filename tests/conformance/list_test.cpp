// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list itself: long enough, and the same for every target.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "conformance/conformance.hpp"
#include "conformance/whole_list.hpp"

namespace forebay::conformance {
namespace {

TEST(conformance_list, has_at_least_60_checks_of_different_names) {
  fmt::print("{} checks\n", checks().size());
  EXPECT_GE(checks().size(), 60u);
  EXPECT_EQ(names_in_list().size(), checks().size());
}

TEST(conformance_list, is_run_whole_by_every_target) {
  expect_whole_list("conformance/",
                    {"emulated", "file_in_memory_mmap", "file_in_memory_uring", "file_on_block_device_mmap",
                     "file_on_block_device_uring", "file_on_disk_mmap", "file_on_disk_uring", "pci_sysfs", "pci_vfio",
                     "qemu", "qemu_blocks_of_4096", "qemu_gpu_memory", "qemu_second_namespace"});
}

}  // namespace
}  // namespace forebay::conformance
