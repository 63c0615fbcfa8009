// SPDX-License-Identifier: Apache-2.0
//! \file
//! The memory that the dispatchers of an I/O engine work on.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/dispatcher_mailbox.hpp"
#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/engine_options.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

class medium_commands;

/// Words that the whole engine shares.
struct alignas(128) engine_words {
  std::uint64_t invalid_doorbells = 0;
};

/// A dispatcher's batch of reads whose data lags behind their completions.
struct alignas(128) lagging_data {
  std::uint32_t announced = 0;  ///< counts batches, each before its completions are posted
  std::uint32_t moved = 0;      ///< counts batches whose data is in place
  // For the dispatcher:
  std::uint32_t count = 0;  ///< of the batch; 0: there is none
  std::uint32_t at = 0;     ///< the place of its queue
  std::uint64_t due_ps = 0;
  nvme::submission_entry entries[dispatcher_scratch::staged_completions];
};

/// The memory that dispatchers work on: trivially copyable; all pointers lead into the engine's state memory.
template <class M>
struct engine_view {
  engine_options options;
  media drive;
  timing_model<M> timing;
  dispatcher_mailbox* mailboxes = nullptr;           ///< one for each dispatcher
  submission_queue<M>* submission_queues = nullptr;  ///< `queues_per_dispatcher` for each dispatcher
  completion_queue* completion_queues = nullptr;     ///< by slot
  std::uint32_t* answers = nullptr;                  ///< by submission queue slot
  statistics* unit_statistics = nullptr;             ///< one for each unit
  engine_words* words = nullptr;
  lagging_data* lagging = nullptr;  ///< one for each dispatcher; null unless the fault plan makes data lag
  dma_segment* segments = nullptr;  ///< `segments_per_dispatcher` for each dispatcher
  std::uint32_t segments_per_dispatcher = 0;
  medium_commands* const* in_medium = nullptr;  ///< by dispatcher, if the drive's bytes are in a medium

  /// Slot s is queue s / dispatchers of dispatcher s % dispatchers. Dispatcher d belongs to unit d % units, so that few
  /// queues spread over many units.
  FOREBAY_DEVICE std::uint32_t dispatchers() const { return options.units * options.dispatchers_per_unit; }
  FOREBAY_DEVICE std::uint32_t queues_per_dispatcher() const {
    return (options.queue_slots + dispatchers() - 1) / dispatchers();
  }
};

}  // namespace forebay::emulator
