// SPDX-License-Identifier: Apache-2.0
//! \file
//! Launches on the CPU executor in real time, as `apps::gpu_launch` does on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/memory.hpp"

namespace forebay::apps {

struct cpu_launch {
  static constexpr std::uint32_t threads_per_block = 32;

  memory::resource& memory() const { return memory::host(); }
  /// Runs at least `threads` threads of `kernel`; returns when they have ended.
  template <class Kernel>
  void operator()(std::uint32_t threads, Kernel const& kernel) const {
    std::uint32_t const per_block = std::min(threads, threads_per_block);
    simt::launch<simt::fiber>({.blocks = (threads + per_block - 1) / per_block, .threads_per_block = per_block},
                              kernel);
  }
};

}  // namespace forebay::apps
