// SPDX-License-Identifier: Apache-2.0
//! \file
//! The resources that a benchmark's kernel takes of the GPU. For CUDA sources.
#pragma once

#include <cstdint>

#include "forebay/launch_report.hpp"
#include "forebay/machine.hpp"

namespace forebay::bench {

/// Of any object of that type, in blocks of that many threads.
template <class Kernel>
launch_report::gpu_use gpu_use_of(std::uint32_t threads_per_block = 32) {
  return report_launch<simt::cuda>({.blocks = 1, .threads_per_block = threads_per_block}, Kernel{}).gpu.value();
}

}  // namespace forebay::bench
