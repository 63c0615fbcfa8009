// SPDX-License-Identifier: Apache-2.0
//! \file
//! The programs of docs/how-to/port-a-kernel.md on a GPU, as they are.
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/storage.hpp"
#include "storage/port_a_kernel.hpp"

// The examples are written as CUDA programs are.
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#define main before_main
#include "docs/examples/port_a_kernel_before.cu"
#undef main
#define main after_main
#include "docs/examples/port_a_kernel_after.cu"
#undef main

namespace forebay::port_a_kernel {

TEST(PortAKernelOnAGpu, BothProgramsPrintTheSame) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  expect_same_output(&before_main, &after_main);
}

}  // namespace forebay::port_a_kernel
