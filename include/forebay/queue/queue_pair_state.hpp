// SPDX-License-Identifier: Apache-2.0
//! \file
//! What one queue pair keeps in the memory of the threads that drive it.
#pragma once

#include <cstdint>

#include "forebay/nvme/command.hpp"
#include "forebay/queue/ring_size.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay {

/// One command id.
struct command_slot {
  /// Of `owner`: the id is taken, its command not yet written.
  static constexpr std::uint32_t reserved = 1u << 31;
  /// Of `owner`: `prp_page` is lent to the command.
  static constexpr std::uint32_t has_prp_page = 1u << 30;
  static constexpr std::uint32_t target_mask = has_prp_page - 1;

  std::uint32_t owner;  ///< 0: free; else 1 + what the command completes to, and the bits above
  std::uint32_t prp_page;
};

/// Written by the host before any thread uses it, then only through `queue_pair_ref`. Parts that different threads
/// write lie in different 128-byte lines, the unit of GPU L2 traffic.
struct queue_pair_state {
  nvme::submission_entry* sq = nullptr;
  nvme::completion_entry* cq = nullptr;
  std::uint32_t* sq_doorbell = nullptr;
  std::uint32_t* cq_doorbell = nullptr;
  std::uint32_t* published = nullptr;  ///< per SQ slot: low half of (lap + 1) of the entry last published there
  command_slot* commands = nullptr;    ///< per command id
  ring_size sq_size;
  ring_size cq_size;
  ring_size command_ring;  ///< how many commands may be in flight: at most CQ entries less one (Q2)
  std::uint32_t dead = 0;  ///< set by the host once the controller can no longer touch any command of the queue (Q7)
  std::uint32_t protocol_errors = 0;  ///< completions that named no command in flight, or a wrong SQ head

  // Credits and tickets (ring_size.hpp): whoever got a slot credit may take the next ticket, and finds its slot free;
  // whoever got a command credit finds an id free.
  alignas(128) std::int32_t free_slots = 0;
  std::int32_t free_command_count = 0;
  std::uint64_t sq_tail = 0;
  std::uint64_t next_command = 0;

  // The thread that raised `doorbell_requests` from 0 owns `rung` until it has brought it back to 0.
  alignas(128) std::uint32_t doorbell_requests = 0;
  std::uint64_t rung = 0;

  // The thread that set `poll_flag` owns the rest until it has cleared it.
  alignas(128) std::uint32_t poll_flag = 0;
  std::uint32_t poll_width = 1;         ///< entries that the next poll looks at together
  std::uint32_t finished_commands = 0;  ///< delivered, their credits not yet given
  std::uint64_t cq_head = 0;            ///< entries before it are delivered
  std::uint64_t cq_reported = 0;        ///< entries before it are the controller's again
  std::uint64_t sq_head = 0;
};

}  // namespace forebay
