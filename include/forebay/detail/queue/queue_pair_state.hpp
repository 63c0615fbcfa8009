// SPDX-License-Identifier: Apache-2.0
//! \file
//! The state that one queue pair keeps in the memory of the threads that drive it.
#pragma once

#include <cstdint>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/ring_position.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// How long a command may be in flight before recovery aborts it, once some thread asks for that.
struct command_limits {
  std::uint64_t timeout_ns = 0;
  std::uint64_t flush_timeout_ns = 0;  ///< for a Flush
};

/// One command id: a word, 0 while no command in flight has the id. Low half: 1 + what the command completes to, and
/// two bits. High half: the time at which the command was submitted. So two different words stand for two commands. Two
/// commands have the same word only if an id and a target meet again within one unit of time.
struct command_slot {
  static constexpr std::uint32_t is_flush = 1u << 31;
  static constexpr std::uint32_t has_prp_page = 1u << 30;  ///< a list page is lent to the command
  static constexpr std::uint32_t target_mask = has_prp_page - 1;
  /// Time is counted in units of 1024 ns.
  static constexpr std::uint32_t time_shift = 10;
  /// Ages up to this many units, 36 minutes, are told apart. A command that is older looks younger than it is.
  static constexpr std::uint32_t max_age = 0x7fffffff;

  std::uint64_t word;

  FOREBAY_DEVICE static constexpr std::uint64_t make(std::uint32_t owner, std::uint64_t now_ns) {
    return std::uint64_t{static_cast<std::uint32_t>(now_ns >> time_shift)} << 32 | owner;
  }
  FOREBAY_DEVICE static constexpr std::uint32_t owner_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word);
  }
  FOREBAY_DEVICE static constexpr std::uint32_t target_of(std::uint64_t word) {
    return (static_cast<std::uint32_t>(word) & target_mask) - 1;
  }
  /// When the command was submitted, in units of time modulo 2^32.
  FOREBAY_DEVICE static constexpr std::uint32_t time_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
  }
  FOREBAY_DEVICE static constexpr std::uint64_t limit_ns(std::uint64_t word, command_limits const& limits) {
    return (word & is_flush) != 0 ? limits.flush_timeout_ns : limits.timeout_ns;
  }
  /// Whether recovery may abort the command, since it was submitted that long ago. If the limit is longer than the ages
  /// that are told apart, this is true of every command: then the host measures the time (recovery.hpp).
  FOREBAY_DEVICE static constexpr bool is_overdue(std::uint64_t word, std::uint64_t now_ns,
                                                  command_limits const& limits) {
    std::uint64_t const limit = limit_ns(word, limits) >> time_shift;
    auto const age = static_cast<std::int32_t>(static_cast<std::uint32_t>(now_ns >> time_shift) -
                                               static_cast<std::uint32_t>(word >> 32));
    return limit > max_age || age >= static_cast<std::int32_t>(limit);
  }
};

/// Written by the host before any thread uses it, then only through `queue_pair_ref`. Fields that different threads
/// write lie in different 128-byte lines, the unit of GPU L2 traffic.
///
/// Counts of commands are modulo 2^32 and begin where `sq_tail` does. The n-th command of the queue lies in slot n of
/// the submission ring, has the n-th id in the sequence of `free_ids`, and may be submitted once `limit` is above n:
/// then slot and id are free.
struct queue_pair_state {
  nvme::submission_entry* sq = nullptr;
  nvme::completion_entry* cq = nullptr;
  std::uint32_t* sq_doorbell = nullptr;
  std::uint32_t* cq_doorbell = nullptr;
  std::uint32_t* published = nullptr;  ///< per SQ slot: how many entries from it on are complete and not rung for; or 0
  command_slot* commands = nullptr;    ///< per command id
  std::uint32_t* lent_pages = nullptr;  ///< per command id: the list page that is lent to it
  std::uint16_t* free_ids = nullptr;    ///< a power of two of them: ids in the order in which they became free
  std::uint32_t free_ids_mask = 0;
  std::uint32_t sq_entries = 0;
  std::uint32_t cq_entries = 0;
  std::uint32_t ids = 0;   ///< how many commands may be in flight: CQ entries less one (Q2)
  std::uint32_t dead = 0;  ///< set by the host once the controller can no longer touch any command of the queue (Q7)
  std::uint32_t protocol_errors = 0;  ///< completions that named no command in flight, or a wrong SQ head
  std::uint32_t failed = 0;           ///< commands that ended with a status other than success

  alignas(128) std::uint64_t sq_tail = 0;  ///< ring_position of the next command
  std::uint32_t limit = 0;                 ///< count of commands that may have been submitted

  // The thread that raised the low half from 0 owns the high half until it has brought the low one back to 0.
  alignas(128) std::uint64_t doorbell = 0;  ///< rung up to this slot, and requests to ring

  // The thread that set `taken` owns the rest until it has cleared it.
  static constexpr std::uint64_t taken = 1u << 31;
  alignas(128) std::uint64_t cq_head = 0;  ///< ring_position: entries before it are delivered; and `taken`
  std::uint32_t freed = 0;                 ///< count of commands that were delivered; their ids are in `free_ids`
  std::uint32_t cancelled = 0;             ///< commands that ended without a completion
  std::uint32_t completed = 0;             ///< the sum of both, as far as it was reported
  std::uint32_t cq_reported = 0;           ///< the controller owns the entries before this one again; modulo 2^32
  std::uint32_t sq_head_slot = 0;
  std::uint32_t sq_head = 0;  ///< count of commands that the controller has fetched
};

}  // namespace forebay
