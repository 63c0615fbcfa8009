// SPDX-License-Identifier: Apache-2.0
//! \file
//! Host owner of the state behind `io_queues_ref`.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/memory.hpp"
#include "forebay/queue_pair_rings.hpp"

namespace forebay {

struct io_queues_options {
  std::uint32_t records = 65536;  ///< requests that may be open at once
  buffer_ref prp_pages;  ///< registered memory for PRP lists, whole pages; empty: no command of more than two pages
  std::uint32_t page_bytes = 4096;                  ///< memory page size of the controllers
  std::uint64_t timeout_ns = 10'000'000'000;        ///< of waits, and of commands before recovery aborts them
  std::uint64_t flush_timeout_ns = 60'000'000'000;  ///< the same for a Flush
  std::uint32_t mailbox_words = 64;
  /// How many threads at a time have room for notes of what they hold and wait for (wait_trace.hpp), 128 bytes each; 0:
  /// none.
  std::uint32_t traced_threads = 0;
  /// The value at which the counters of every queue begin; a multiple of twice each ring's entries. It lets tests reach
  /// the state after 2^32 commands. The controller's own counters begin at the same slot either way.
  std::uint64_t first_ticket = 0;
};

/// Move-only. Only one host thread at a time may construct it or call the functions that name a pair.
class io_queues {
 public:
  /// `state_memory`: where the submitting threads keep queue state. `shared_memory` is reached by host and device; the
  /// mailbox lies there. Throws `refused_input` for a ring or an option out of range.
  io_queues(std::span<queue_pair_rings const> pairs, io_queues_options const& options, memory::resource& state_memory,
            memory::resource& shared_memory);

  /// Commands complete to records.
  template <class M, class Rules = queue_rules>
  io_queues_ref<M, Rules> ref() const {
    return ref<M, Rules>(records<M>());
  }
  /// Commands complete to `targets`, which has `records<M>()` for the ids below `record_count()`.
  template <class M, class Rules = queue_rules, class Targets>
  io_queues_ref<M, Rules, Targets> ref(Targets const& targets) const {
    return io_queues_ref<M, Rules, Targets>(state_, pairs_, targets);
  }
  template <class M>
  record_pool<M> records() const {
    return record_pool<M>(records_, free_records_);
  }
  std::uint32_t record_count() const { return record_count_; }
  /// The memory in which the state lies that the refs share.
  memory::resource& state_memory() const { return memory_.from(); }

  /// The state that the refs share. It lies in `state_memory`; the host may read it if it reaches that memory.
  io_queues_state* state() const { return state_; }
  std::uint32_t pair_count() const { return pair_count_; }
  command_limits const& limits() const { return limits_; }
  /// The new limits hold from now on, also for commands that are in flight.
  void set_limits(command_limits const& limits);
  /// The next request that a device thread has posted, if any.
  bool take_recovery_request(recovery_request& request) const;
  /// The word of a command id (`command_slot`): it stays as it is while the command is in flight.
  std::uint64_t command_word(std::uint32_t pair_index, std::uint32_t command_id) const;
  /// From now on the pair takes no command, and its commands in flight end as `cancelled`. Only after the controller
  /// has deleted the queue or was reset: the memory of those commands becomes free.
  void declare_dead(std::uint32_t pair_index) const;
  std::uint32_t protocol_errors(std::uint32_t pair_index) const;

 private:
  memory::allocation memory_;
  memory::allocation mailbox_memory_;
  memory::allocation waits_memory_;
  recovery_mailbox mailbox_;
  io_queues_state* state_ = nullptr;
  queue_pair_state* pairs_ = nullptr;
  completion_record* records_ = nullptr;
  slot_pool free_records_;
  std::vector<command_slot*> commands_;  ///< of each pair
  command_limits limits_;
  std::uint32_t pair_count_ = 0;
  std::uint32_t record_count_ = 0;
};

}  // namespace forebay
