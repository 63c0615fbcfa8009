// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where an application's kernels run: the CPU executor in real time, as `apps::gpu_executor` is a GPU.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/memory.hpp"

namespace forebay::apps {

/// An executor has a machine, memory for its kernels, and runs grids of any shape, one after the other.
class cpu_executor {
 public:
  using machine = simt::fiber;

  memory::resource& memory() const { return memory::host(); }
  /// How many warps an evenly divided job is worth.
  std::uint32_t warps() const { return 8; }
  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    simt::launch<simt::fiber>(shape, kernel, {.os_threads = 2});
  }
  /// What is launched from now on starts when all that `other` has launched has run.
  void wait_for(cpu_executor const& /*other*/) const {}
  /// Returns when all that was launched has run.
  void synchronize() const {}
};

}  // namespace forebay::apps
