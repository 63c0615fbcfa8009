// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the admin half of a controller asks of an I/O engine, wherever that runs.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"

namespace forebay::emulator {

/// Queues are known by slot; a slot is a submission queue's and, independently, a completion queue's. Attach, detach
/// and abort are for one host thread at a time, while units run; the rest is thread-safe.
class io_engine {
 public:
  virtual ~io_engine() = default;

  /// No attached submission queue may name the slot.
  virtual void attach_completion_queue(completion_queue_addresses const& queue) = 0;
  virtual void attach_submission_queue(submission_queue_addresses const& queue) = 0;
  /// Asks to let go of a submission queue; `silently` leaves outstanding commands without a completion. Done when
  /// `answered` says so: from then on no memory that the queue's commands named is touched.
  /// False: nothing was asked, because as much as fits is on its way; try again.
  [[nodiscard]] virtual bool begin_detach(std::uint32_t sq_slot, bool silently) = 0;
  /// Asks to complete a command as aborted.
  virtual void begin_abort(std::uint32_t sq_slot, std::uint16_t command_id) = 0;
  /// Whether the last request for the slot was answered; once true, the next may follow. `found`: an abort found its
  /// command in flight.
  virtual bool answered(std::uint32_t sq_slot, bool* found = nullptr) = 0;

  /// Doorbell values that could not be right, of all queues so far.
  virtual std::uint64_t invalid_doorbells() = 0;
  /// Adds up what all units counted, while they run.
  virtual void collect(statistics& sum) = 0;
};

}  // namespace forebay::emulator
