// SPDX-License-Identifier: Apache-2.0
//! \file
//! All queue pairs of a storage with the pools they share, and the waiting that they need: submit, token, help.
#pragma once

#include <cstdint>

#include "forebay/queue/queue_pair_ref.hpp"
#include "forebay/queue/recovery_mailbox.hpp"
#include "forebay/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// Written by the host before any thread uses it; lies in the memory of the threads that drive the queues.
struct io_queues_state {
  queue_pair_state* pairs = nullptr;
  std::uint32_t pair_count = 0;
  completion_record* records = nullptr;
  slot_pool free_records;
  prp_page_pool prp_pages;
  recovery_mailbox mailbox;
  std::uint64_t timeout_ns = 0;  ///< of waits that name no deadline
};

/// `count` queue pairs, `stride` apart, from `first`.
struct pair_range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t stride = 1;

  FOREBAY_DEVICE constexpr std::uint32_t at(std::uint32_t k) const { return first + k * stride; }
};

template <class M, class Rules>
class token;

/// Trivially copyable; thread-safe. Functions that wait say so; every wait helps: it consumes completions for all
/// threads, so it depends on nothing but the controllers (Q4, Q5).
template <class M, class Rules = queue_rules>
class io_queues_ref {
 public:
  io_queues_ref() = default;
  FOREBAY_DEVICE explicit io_queues_ref(io_queues_state* state) : s_(state) {}

  FOREBAY_DEVICE record_pool<M> records() const { return {s_->records, s_->free_records}; }
  FOREBAY_DEVICE prp_page_pool const& prp_pages() const { return s_->prp_pages; }
  FOREBAY_DEVICE std::uint64_t timeout_ns() const { return s_->timeout_ns; }
  FOREBAY_DEVICE std::uint32_t pair_count() const { return s_->pair_count; }
  FOREBAY_DEVICE queue_pair_ref<M, Rules> pair(std::uint32_t index) const {
    return queue_pair_ref<M, Rules>{s_->pairs + index};
  }

  /// Submits to the pairs of `range`, from its `home`-th on, and helps where they are full. On success `home` tells
  /// which pair took the command. `timed_out`: nothing was submitted by the deadline; `cancelled`: all pairs of the
  /// range are dead.
  FOREBAY_DEVICE status submit(pair_range range, std::uint32_t& home, io_command const& command, std::uint32_t record,
                               std::uint64_t deadline_ns) const {
    std::uint32_t dead_pairs = 0;
    auto const attempt = [&] {
      dead_pairs = 0;
      for (std::uint32_t k = 0; k < range.count; ++k) {
        auto const queue = pair(range.at(home));
        if (queue.try_submit(command, prp_pages(), record)) return true;
        // Again after a poll, within one evaluation: if this thread freed all that it lacks, nothing else will wake it.
        if (queue.try_poll(prp_pages(), records()) && queue.try_submit(command, prp_pages(), record)) return true;
        if (queue.dead()) ++dead_pairs;
        home = home + 1 < range.count ? home + 1 : 0;
      }
      return dead_pairs == range.count;
    };
    bool const ended = M::wait_until(
        [&] {
          if (attempt()) return true;
          if (command.bytes == 0 || !needs_prp_list(command.buffer, command.bytes, prp_pages().page_bytes))
            return false;
          // The list pages may all be held by commands of pairs outside `range`, for which nobody waits yet (Q5).
          for (std::uint32_t k = 0; k < s_->pair_count; ++k) pair(k).try_poll(prp_pages(), records());
          return attempt();
        },
        deadline_ns);
    if (!ended) return fault::timed_out;
    return dead_pairs == range.count ? status(fault::cancelled) : status();
  }

  /// Consumes what has completed on the `next`-th pair of `range`, and moves `next` on.
  FOREBAY_DEVICE void help(pair_range range, std::uint32_t& next) const {
    pair(range.at(next)).try_poll(prp_pages(), records());
    next = next + 1 < range.count ? next + 1 : 0;
  }

  /// Waits until `record` is done, helping on the pairs of `range`. On `timed_out` the recovery thread has been asked
  /// to abort what is still in flight, and everything stays owned by it (Q7).
  FOREBAY_DEVICE status wait(std::uint32_t record, pair_range range, std::uint64_t deadline_ns) const {
    bool const done = M::wait_until(
        [&] {
          if (records().done(record)) return true;
          // Every pair in one evaluation: a machine may sleep until something that the evaluation read changes.
          for (std::uint32_t k = 0; k < range.count; ++k) {
            pair(range.at(k)).try_poll(prp_pages(), records());
            if (records().done(record)) return true;
          }
          return false;
        },
        deadline_ns);
    if (done) return records().close(record);
    for (std::uint32_t k = 0; k < range.count; ++k) ask_for_recovery(range.at(k), record);
    return fault::timed_out;
  }

 private:
  FOREBAY_DEVICE void ask_for_recovery(std::uint32_t pair_index, std::uint32_t record) const {
    auto const queue = pair(pair_index);
    for (std::uint32_t id = queue.find_command(record, 0); id != slot_pool::none;
         id = queue.find_command(record, id + 1)) {
      s_->mailbox.template post<M>({pair_index, id, record});
    }
  }

  io_queues_state* s_ = nullptr;
};

/// One request in flight: what `read_async` and its kin return. Trivially copyable, but there is one request behind all
/// copies: exactly one of them is waited for with success, or detached.
template <class M, class Rules = queue_rules>
class token {
 public:
  token() = default;
  /// A request that ended before it began.
  FOREBAY_DEVICE explicit token(status ended) : ended_(ended) {}
  /// A request whose commands are all on pairs of `range`.
  FOREBAY_DEVICE token(io_queues_ref<M, Rules> queues, std::uint32_t record, pair_range range)
      : queues_(queues), record_(record), range_(range) {}

  /// Whether wait() would return at once. Helps a little.
  FOREBAY_DEVICE bool ready() {
    if (record_ == slot_pool::none || queues_.records().done(record_)) return true;
    queues_.help(range_, next_);
    return queues_.records().done(record_);
  }

  /// Waits for the storage's default time.
  FOREBAY_DEVICE status wait() {
    if (record_ == slot_pool::none) return ended_;
    return wait(M::clock_ns() + queues_.timeout_ns());
  }

  /// The first failure among the request's commands, or success. After `timed_out` the buffer still belongs to the
  /// request: wait again, or detach and leave it alone until the storage is destroyed.
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    if (record_ == slot_pool::none) return ended_;
    status const result = queues_.wait(record_, range_, deadline_ns);
    if (result.kind() == fault::timed_out) return result;
    record_ = slot_pool::none;
    ended_ = result;
    return result;
  }

  /// Gives up the result. The buffer belongs to the request until the storage is flushed or destroyed.
  FOREBAY_DEVICE void detach() {
    if (record_ != slot_pool::none) queues_.records().detach(record_);
    record_ = slot_pool::none;
  }

 private:
  io_queues_ref<M, Rules> queues_;
  std::uint32_t record_ = slot_pool::none;
  pair_range range_;
  std::uint32_t next_ = 0;
  status ended_;
};

}  // namespace forebay
