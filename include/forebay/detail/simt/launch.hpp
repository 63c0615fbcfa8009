// SPDX-License-Identifier: Apache-2.0
//! \file
//! Running device code on the CPU in real time: OS threads stand in for multiprocessors, fibers for their lanes.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>

#include "forebay/detail/simt/fiber.hpp"

namespace forebay::simt {

struct launch_options {
  /// Simulated multiprocessors; 0: as many as the machine can run threads at a time.
  std::uint32_t os_threads = 0;
  /// How many lanes run at a time, over all multiprocessors; each multiprocessor has at least one block. A block starts
  /// when another has ended.
  std::uint32_t resident_lanes = 16 * 1024;
  /// Of each lane, at least 16 KiB. A lane that waits may do `waiting_work` there, of which a step of a drive takes
  /// about 8 KiB.
  std::uint32_t stack_bytes = 64 * 1024;
  /// Whether a lane that calls `fiber::converged` first lets the other lanes of its warp come to that place, as on a
  /// GPU. That costs a pass over all lanes each time. If not, each lane is alone there, which is also right.
  bool lanes_meet = false;
};

namespace detail {
void launch_fibers(grid const& shape, std::function<void()> const& kernel, launch_options const& options);
}

/// Runs `kernel` on every lane of `shape` and returns when all have ended. All lanes of resident blocks make progress;
/// lanes of one OS thread yield to each other only in waits, collectives and barriers. Memory is the CPU's own.
/// \throws refused_input if the shape or an option is out of range
/// \throws operation_failed if a check or an exception failed a lane, or the lanes of a block are deadlocked in
/// collectives;
///   names block, warp and lane. The other lanes' stacks are then dropped without running destructors.
template <class M, class Kernel>
  requires std::is_same_v<M, fiber>
void launch(grid const& shape, Kernel const& kernel, launch_options const& options = {}) {
  detail::launch_fibers(shape, [&kernel] { kernel(); }, options);
}

}  // namespace forebay::simt
