// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the queues hold, as the host reads it while threads drive them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/memory.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// A command that was submitted and whose completion has not been consumed.
struct command_look {
  std::uint32_t id = 0;
  std::uint32_t target = 0;  ///< what it completes to
  bool entry_found = false;  ///< whether its entry is still in the submission ring; if not, no more is known
  nvme::submission_entry entry = {};
};

/// One queue pair. Its parts were read one after the other, so they may be a few steps apart.
struct queue_pair_look {
  std::uint32_t sq_entries = 0;
  std::uint32_t cq_entries = 0;
  std::uint32_t sq_tail = 0;    ///< slot of the next command
  std::uint32_t sq_rung = 0;    ///< slot up to which the doorbell was written
  std::uint32_t sq_head = 0;    ///< slot up to which the controller has reported that it fetched
  std::uint32_t cq_head = 0;    ///< slot of the next completion to be consumed
  std::uint32_t phase = 0;      ///< phase bit of that completion
  std::uint32_t submitted = 0;  ///< commands, modulo 2^32
  std::uint32_t ended = 0;      ///< commands delivered or cancelled, modulo 2^32
  std::uint32_t posted = 0;     ///< completions in the ring that no thread has consumed
  std::uint32_t protocol_errors = 0;
  bool consuming = false;  ///< a thread is consuming completions
  bool dead = false;
  std::vector<command_look> commands;

  std::uint32_t in_flight() const { return submitted - ended; }
};

/// A request that is not over, or whose result no thread has fetched.
struct record_look {
  std::uint32_t record = 0;
  std::uint32_t outstanding = 0;  ///< commands
  bool detached = false;
  status first_failure;
};

struct queues_look {
  std::vector<queue_pair_look> pairs;
  std::vector<record_look> records;
  std::uint32_t record_count = 0;
  std::uint32_t free_list_pages = 0;  ///< for PRP lists
};

/// The notes of threads about themselves, in no order (wait_trace.hpp).
struct waits_look {
  bool traced = false;  ///< whether there is room for notes
  std::vector<traced_thread> threads;
  std::uint32_t untraced = 0;  ///< notes lost
};

/// Reads everything. `ring_memory`: for each pair in turn, the memory in which its rings lie.
queues_look look_at(io_queues const& queues, std::span<memory::resource* const> ring_memory);
/// Reads only the progress of the pairs: no commands, no records, nothing of the rings.
std::vector<queue_pair_look> look_at_progress(io_queues const& queues);
/// Empty if nothing is traced.
waits_look look_at_waits(io_queues const& queues);

}  // namespace forebay
