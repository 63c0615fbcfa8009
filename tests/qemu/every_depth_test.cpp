// SPDX-License-Identifier: Apache-2.0
//! \file
//! Queues of every depth on QEMU's controller, driven by CPU fibers. tests/storage/storage_gpu_test.cu has the same on
//! a GPU.
#include "qemu/every_depth.hpp"

#include "qemu/on_qemu.hpp"

namespace forebay::storage_test {

TEST(FibersOnQemu, CommandsOfEveryDepthMoveTheirBytesAndNoOthers) {
  FOREBAY_NEEDS_QEMU();
  write_and_read_back_at_every_depth<on_qemu<second_namespace>>();
}

}  // namespace forebay::storage_test
