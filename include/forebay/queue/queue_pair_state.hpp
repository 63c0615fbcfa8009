// SPDX-License-Identifier: Apache-2.0
//! \file
//! What one queue pair keeps in the memory of the threads that drive it.
#pragma once

#include <cstdint>

#include "forebay/nvme/command.hpp"
#include "forebay/queue/ring_position.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay {

/// One command id.
struct command_slot {
  /// Of `owner`: `prp_page` is lent to the command.
  static constexpr std::uint32_t has_prp_page = 1u << 30;
  static constexpr std::uint32_t target_mask = has_prp_page - 1;

  std::uint32_t owner;  ///< 0: not in flight; else 1 + what the command completes to, and the bit above
  std::uint32_t prp_page;
};

/// Written by the host before any thread uses it, then only through `queue_pair_ref`. Parts that different threads
/// write lie in different 128-byte lines, the unit of GPU L2 traffic.
///
/// Counts of commands are modulo 2^32 and begin where `sq_tail` does. The n-th command of the queue stands in slot n of
/// the submission ring, has the n-th id of the sequence that `free_ids` goes through, and may be submitted once `limit`
/// is above n: then slot and id are free.
struct queue_pair_state {
  nvme::submission_entry* sq = nullptr;
  nvme::completion_entry* cq = nullptr;
  std::uint32_t* sq_doorbell = nullptr;
  std::uint32_t* cq_doorbell = nullptr;
  std::uint32_t* published = nullptr;  ///< per SQ slot: how many entries from it on are complete and not rung for; or 0
  command_slot* commands = nullptr;    ///< per command id
  std::uint16_t* free_ids = nullptr;   ///< a power of two of them: ids in the order in which they became free
  std::uint32_t free_ids_mask = 0;
  std::uint32_t sq_entries = 0;
  std::uint32_t cq_entries = 0;
  std::uint32_t ids = 0;   ///< how many commands may be in flight: CQ entries less one (Q2)
  std::uint32_t dead = 0;  ///< set by the host once the controller can no longer touch any command of the queue (Q7)
  std::uint32_t protocol_errors = 0;  ///< completions that named no command in flight, or a wrong SQ head

  alignas(128) std::uint64_t sq_tail = 0;  ///< ring_position of the next command
  std::uint32_t limit = 0;                 ///< count of commands that may have been submitted

  // The thread that raised the low half from 0 owns the high half until it has brought the low one back to 0.
  alignas(128) std::uint64_t doorbell = 0;  ///< rung up to this slot, and requests to ring

  // The thread that set `taken` owns the rest until it has cleared it.
  static constexpr std::uint64_t taken = 1u << 31;
  alignas(128) std::uint64_t cq_head = 0;  ///< ring_position: entries before it are delivered; and `taken`
  std::uint32_t freed = 0;                 ///< count of commands that were delivered, their ids in `free_ids`
  std::uint32_t cancelled = 0;             ///< commands that ended without a completion
  std::uint32_t completed = 0;             ///< both, as far as they were reported
  std::uint32_t cq_reported = 0;           ///< entries before this one, modulo 2^32, are the controller's again
  std::uint32_t sq_head_slot = 0;
  std::uint32_t sq_head = 0;  ///< count of commands that the controller has fetched
};

}  // namespace forebay
