// SPDX-License-Identifier: Apache-2.0
//! \file
//! The options of an I/O engine.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/emulator/frontend.hpp"
#include "forebay/detail/emulator/timing_model.hpp"

namespace forebay::emulator {

struct engine_options {
  std::uint32_t units = 1;                 ///< service units
  std::uint32_t dispatchers_per_unit = 1;  ///< of each unit: warps of its thread block; 1 on the CPU
  std::uint32_t queue_slots = 128;         ///< submission queues, and completion queues, at a time
  std::uint64_t max_transfer_bytes = std::uint64_t{1} << 20;
  std::uint32_t page_bytes_min = 4096;  ///< CC.MPS of no queue is less
  std::uint64_t epoch_ns = 0;           ///< what `M::clock_ns()` read at start; times count from here
  /// How long before a command is due its completion is made ready, so that only one store is left to do. Meanwhile the
  /// dispatcher does nothing else.
  std::uint64_t post_ahead_ns = 0;
  /// The shortest time between two looks at a doorbell. A command is taken to have come half this time after the last
  /// look that did not see it. If the time between two looks is longer, the rest counts as lateness.
  std::uint64_t poll_period_ns = 0;
  timing_parameters timing;
  std::uint64_t* link_free_ps = nullptr;  ///< see `timing_model`; its times count from the epoch, as all do
  fault_plan faults;
  frontend_techniques frontend;
  /// On the CPU: the threads of the process that wait serve the units, see `simt::waiting_work`.
  bool waiters_serve = false;

  std::uint32_t dispatchers() const { return units * dispatchers_per_unit; }
  std::uint32_t queues_per_dispatcher() const { return (queue_slots + dispatchers() - 1) / dispatchers(); }
};

}  // namespace forebay::emulator
