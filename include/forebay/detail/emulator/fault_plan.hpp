// SPDX-License-Identifier: Apache-2.0
//! \file
//! Faults that a drive injects on purpose. Hashing (seed, command) chooses them, so that a run repeats exactly.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// What happens to one command.
struct injected_fault {
  std::uint16_t status_field = 0;  ///< not 0: the command fails with it and moves no data
  std::uint64_t delay_ps = 0;
  bool withheld = false;  ///< never completes, unless it is aborted or its queue is deleted
  bool lags = false;      ///< if it is a read, its data arrives after its completion
};

/// Probabilities in parts per million; at most one of the first three happens to a command. Trivially copyable; all
/// zero: no fault.
struct fault_plan {
  std::uint64_t seed = 0;
  std::uint32_t error_ppm = 0;
  std::uint16_t error_status_field = nvme::status_field(nvme::media_status::unrecovered_read_error);
  std::uint32_t delay_ppm = 0;
  std::uint64_t delay_max_ns = 0;  ///< uniform from 1 ns: a drive that completes out of order
  std::uint32_t withhold_ppm = 0;
  /// A delayed or withheld command moves its data just before it completes, not when it is fetched. This catches a
  /// client that reuses a buffer too early.
  bool late_data = true;
  /// Data after completion: a read's bytes arrive at most about `data_lag_ns` after its completion, as they may where
  /// data and completions take different paths. A client can wait for them (`subsystem::order_data`). Not for drives
  /// in a file that a medium reads.
  std::uint32_t data_after_completion_ppm = 0;
  std::uint64_t data_lag_ns = 100'000;

  FOREBAY_DEVICE constexpr bool any() const {
    return (error_ppm | delay_ppm | withhold_ppm | data_after_completion_ppm) != 0;
  }
  /// Whether commands may be held back after they were fetched.
  FOREBAY_DEVICE constexpr bool holds_commands() const {
    return data_after_completion_ppm != 0 || (late_data && (delay_ppm | withhold_ppm) != 0);
  }

  /// The fault of command `sequence`, a number that is unique to the command (see `engine`).
  FOREBAY_DEVICE constexpr injected_fault at(std::uint64_t sequence) const {
    injected_fault fault;
    std::uint64_t const draw = mix(seed ^ mix(sequence ^ 0x6a09e667f3bcc908u));
    std::uint32_t const part = static_cast<std::uint32_t>((draw >> 32) % 1'000'000);
    if (part < error_ppm) {
      fault.status_field = error_status_field;
    } else if (part < error_ppm + delay_ppm) {
      fault.delay_ps = delay_max_ns == 0 ? 0 : ((draw & 0xffffffff) % delay_max_ns + 1) * 1000;
    } else if (part < error_ppm + delay_ppm + withhold_ppm) {
      fault.withheld = true;
    }
    fault.lags = mix(draw) % 1'000'000 < data_after_completion_ppm;
    return fault;
  }
};

}  // namespace forebay::emulator
