// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the admin half of a controller asks of an I/O engine, wherever that engine runs.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"

namespace forebay::emulator {

/// Queues are identified by slot; a submission queue and, independently, a completion queue can have the same slot. One
/// host thread at a time may call attach, detach and abort, while units run; the rest is thread-safe.
class io_engine {
 public:
  virtual ~io_engine() = default;

  /// No attached submission queue may name the slot.
  virtual void attach_completion_queue(completion_queue_addresses const& queue) = 0;
  virtual void attach_submission_queue(submission_queue_addresses const& queue) = 0;
  /// Asks the unit to release a submission queue; `silently` leaves outstanding commands without a completion. Done
  /// when `answered` says so: from then on nothing touches memory that the queue's commands named. False: nothing was
  /// asked, since as many requests as fit are on their way; try again.
  [[nodiscard]] virtual bool begin_detach(std::uint32_t sq_slot, bool silently) = 0;
  /// Asks the unit to complete a command as aborted.
  virtual void begin_abort(std::uint32_t sq_slot, std::uint16_t command_id) = 0;
  /// Whether the last request for the slot was answered; once this returns true, the next may follow. `found`: an abort
  /// found its command in flight.
  virtual bool answered(std::uint32_t sq_slot, bool* found = nullptr) = 0;

  /// Returns once the data of each read is in place whose completion was posted before the call. This takes time only
  /// with `fault_plan::data_after_completion_ppm`; the engine must run then. Throws `operation_failed` if it does not.
  virtual void order_data() = 0;

  /// How many invalid doorbell values there were, of all queues so far.
  virtual std::uint64_t invalid_doorbells() = 0;
  /// Adds up what all units counted; they may run meanwhile.
  virtual void collect(statistics& sum) = 0;
};

}  // namespace forebay::emulator
