// SPDX-License-Identifier: Apache-2.0
//! \file
//! All queue pairs of a storage with the pools they share, and the waiting that they need: submit, token, help.
#pragma once

#include <cstdint>
#include <type_traits>

#include "forebay/queue/pair_range.hpp"
#include "forebay/queue/queue_pair_ref.hpp"
#include "forebay/queue/recovery_mailbox.hpp"
#include "forebay/queue/wait_trace.hpp"
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
  wait_table waits;              ///< read in debug builds only
};

/// Trivially copyable; thread-safe. Functions that wait say so; every wait helps: it consumes completions for all
/// threads, so it depends on nothing but the controllers (Q4, Q5). Commands complete to `Targets`
/// (completion_record.hpp).
template <class M, class Rules = queue_rules, class Targets = record_pool<M>>
class io_queues_ref {
 public:
  using pair_type = queue_pair_ref<M, Rules, Targets>;

  io_queues_ref() = default;
  /// `pairs` repeats what `*state` says, so that no thread has to load it.
  FOREBAY_DEVICE io_queues_ref(io_queues_state* state, queue_pair_state* pairs, Targets const& targets)
      : s_(state), pairs_(pairs), targets_(targets) {}
  /// The same, which loads what the state says.
  FOREBAY_DEVICE explicit io_queues_ref(io_queues_state* state)
    requires(std::is_same_v<Targets, record_pool<M>>)
      : io_queues_ref(state, state->pairs, Targets(state->records, state->free_records)) {}

  FOREBAY_DEVICE io_queues_state* state() const { return s_; }
  FOREBAY_DEVICE Targets const& targets() const { return targets_; }
  FOREBAY_DEVICE record_pool<M> const& records() const { return targets_.records(); }
  FOREBAY_DEVICE prp_page_pool const& prp_pages() const { return s_->prp_pages; }
  FOREBAY_DEVICE std::uint64_t timeout_ns() const { return s_->timeout_ns; }
  FOREBAY_DEVICE std::uint32_t pair_count() const { return s_->pair_count; }
  FOREBAY_DEVICE pair_type pair(std::uint32_t index) const { return pair_type{pairs_ + index}; }

  /// Submits to the pairs of `range`, from its `home`-th on, and helps where they are full. On success `home` tells
  /// which pair took the command. `busy`: nothing was submitted by the deadline; `cancelled`: all pairs of the
  /// range are dead. Waits.
  FOREBAY_DEVICE status submit(pair_range range, std::uint32_t& home, io_command const& command, std::uint32_t target,
                               std::uint64_t deadline_ns) const {
    return submit_by(range, home, command, target, [=] { return deadline_ns; });
  }
  /// The same for the default time.
  FOREBAY_DEVICE status submit(pair_range range, std::uint32_t& home, io_command const& command,
                               std::uint32_t target) const {
    return submit_by(range, home, command, target, [this] { return M::clock_ns() + timeout_ns(); });
  }
  /// The same without waiting: `busy` where no pair of `range` has room.
  FOREBAY_DEVICE status try_submit(pair_range range, std::uint32_t& home, io_command const& command,
                                   std::uint32_t target) const {
    return submit_by(range, home, command, target, [] { return 0; });
  }

  /// Delivers what has completed on a pair, unless another thread is at it; whether there was anything.
  FOREBAY_DEVICE bool help(std::uint32_t pair_index) const { return pair(pair_index).try_poll(prp_pages(), targets_); }

  /// Delivers what has completed on `queue` until `stop()` holds, which it returns, or nothing is left; after the
  /// deadline `late_helps_max` times at most. A thread that goes to sleep must have seen the ring empty: else a
  /// completion that it did not look at could be one that nobody looks at.
  template <class Stop>
  FOREBAY_DEVICE bool serve(pair_type queue, Stop&& stop, std::uint64_t deadline_ns, std::uint32_t looks = 1) const {
    if constexpr (Rules::waiters_help) {
      std::uint32_t late_helps = 0;
      while (!stop()) {
        if (!queue.try_poll(prp_pages(), targets_, looks)) return stop();
        if (M::clock_ns() >= deadline_ns && ++late_helps == simt::late_helps_max) return stop();
      }
      return true;
    } else {
      return stop();
    }
  }

  /// Delivers what completes on the calling thread's share of the pairs, which all threads of the grid share out, until
  /// no command is in flight there. How many of them still have one at the deadline.
  FOREBAY_DEVICE std::uint32_t drain_share(std::uint64_t deadline_ns) const {
    std::uint32_t busy = 0;
    for (std::uint32_t k = M::thread_rank(); k < pair_count(); k += M::thread_count()) {
      auto const queue = pair(k);
      bool const idle =
          M::wait_until([&] { return serve(queue, [&] { return queue.idle(); }, deadline_ns); }, deadline_ns);
      if (!idle) ++busy;
    }
    return busy;
  }

  /// Waits until `record` is done, helping on the pairs of `range`; then `result` is the record's, which has gone back
  /// to the pool. The `lanes` call this together, and go on together. False at the deadline: the recovery thread has
  /// been asked to abort what is still in flight, and everything stays owned by it (Q7).
  FOREBAY_DEVICE bool wait(typename M::warp const& lanes, std::uint32_t record, pair_range range,
                           std::uint64_t deadline_ns, status& result) const {
    [[maybe_unused]] auto const noted = trace().waits_for(wait_kind::record, record);
    // Several pairs share the thread's time.
    std::uint32_t const looks = range.count == 1 ? M::looks_per_poll : 1;
    bool const done = M::wait_together(
        lanes, [&] { return records().done(record); },
        [&] {
          if constexpr (!Rules::waiters_help) return false;
          bool any = false;
          for (std::uint32_t k = 0; k < range.count; ++k) {
            any = pair(range.at(k)).try_poll(prp_pages(), targets_, looks) || any;
          }
          return any;
        },
        deadline_ns);
    if (done) {
      result = records().close(record);
      return true;
    }
    ask_slowly(*this, range, record);
    return false;
  }

  /// Asks the host to abort the commands of `target` that are in flight on a pair. To be asked again where they are
  /// waited for again (Q7).
  FOREBAY_DEVICE void ask_for_recovery(std::uint32_t pair_index, std::uint32_t target) const {
    auto const queue = pair(pair_index);
    for (std::uint32_t id = queue.find_command(target, 0); id != slot_pool::none;
         id = queue.find_command(target, id + 1)) {
      s_->mailbox.template post<M>({pair_index, id, target});
    }
  }

 private:
  FOREBAY_DEVICE wait_trace<M> trace() const { return wait_trace<M>(&s_->waits); }

  FOREBAY_DEVICE static void ask_slowly(io_queues_ref const queues, pair_range range, std::uint32_t target) {
    for (std::uint32_t k = 0; k < range.count; ++k) queues.ask_for_recovery(range.at(k), target);
  }

  /// `deadline()` is asked for when the first attempt has failed.
  template <class Deadline>
  FOREBAY_DEVICE status submit_by(pair_range range, std::uint32_t& home, io_command const& command,
                                  std::uint32_t target, Deadline&& deadline) const {
    bool const needs_list = command.bytes != 0 && needs_prp_list(command.buffer, command.bytes, prp_pages().page_bytes);
    std::uint64_t deadline_ns = 0;
    for (bool first = true;; first = false) {
      std::uint32_t const index = range.at(home);
      if (pair(index).try_submit(command, prp_pages(), target)) return {};
      if (first) deadline_ns = deadline();
      status const found = find_room(range, home, needs_list, deadline_ns);
      if (!found.ok()) return found;
    }
  }

  /// Waits until a pair of `range` seems to have room, from its `home`-th on, and helps meanwhile.
  FOREBAY_DEVICE status find_room(pair_range range, std::uint32_t& home, bool needs_list,
                                  std::uint64_t deadline_ns) const {
    auto const has_page = [&] { return !needs_list || prp_pages().free.template seems_free<M>(); };
    status result = fault::busy;
    [[maybe_unused]] auto const noted = trace().waits_for(wait_kind::queue_room, range.first);
    (void)M::wait_until(
        [&] {
          std::uint32_t dead_pairs = 0;
          // The list pages may all be held by commands of pairs outside `range`, for which nobody waits yet (Q5).
          // Without a page, room is no reason to leave a ring that was not seen empty.
          bool page = has_page();
          std::uint32_t const others = page ? 0 : s_->pair_count;
          for (std::uint32_t k = 0; k < others + range.count; ++k) {
            if (k < others && page) continue;
            bool const is_other = k < others;
            auto const queue = pair(is_other ? k : range.at(home));
            if (is_other || page) {
              bool const served = serve(queue, [&] { return is_other ? has_page() : queue.has_room(); }, deadline_ns);
              if (is_other) {
                page = served;
                continue;
              }
              if (served) {
                result = status();
                return true;
              }
            }
            if (queue.dead()) ++dead_pairs;
            home = home + 1 < range.count ? home + 1 : 0;
          }
          if (dead_pairs != range.count) return false;
          result = fault::cancelled;
          return true;
        },
        deadline_ns);
    return result;
  }

  io_queues_state* s_ = nullptr;
  queue_pair_state* pairs_ = nullptr;
  Targets targets_;
};

/// One request in flight: what `read_async` and its kin return. Trivially copyable, but there is one request behind all
/// copies: exactly one of them is waited for with success, or detached.
template <class M, class Rules = queue_rules, class Targets = record_pool<M>>
class token {
 public:
  token() = default;
  /// A request that ended before it began.
  FOREBAY_DEVICE explicit token(status ended) : ended_(ended) {}
  /// A request whose commands are all on pairs of `range`.
  FOREBAY_DEVICE token(io_queues_ref<M, Rules, Targets> const& queues, std::uint32_t record, pair_range range)
      : queues_(queues), record_(record), range_(range) {}

  /// A token that nobody looks at for long: half the registers, for some loads when it is woken.
  struct parked {
    io_queues_state* queues;
    std::uint32_t record;
    pair_range range;
    status ended;
  };
  FOREBAY_DEVICE parked park() const
    requires(std::is_same_v<Targets, record_pool<M>>)
  {
    return {queues_.state(), record_, range_, ended_};
  }
  FOREBAY_DEVICE explicit token(parked const& p)
    requires(std::is_same_v<Targets, record_pool<M>>)
      : record_(p.record), range_(p.range), ended_(p.ended) {
    if (record_ != slot_pool::none) queues_ = io_queues_ref<M, Rules, Targets>(p.queues);
  }

  /// Whether wait() would return at once. Helps: it delivers what has completed on the request's pairs. A thread with
  /// nothing else to do may pass `M::looks_per_poll`, to see its completion sooner.
  FOREBAY_DEVICE bool ready(std::uint32_t looks = 1) const {
    if (record_ == slot_pool::none || queues_.records().done(record_)) return true;
    if constexpr (Rules::waiters_help) {
      for (std::uint32_t k = 0; k < range_.count; ++k) {
        queues_.pair(range_.at(k)).try_poll(queues_.prp_pages(), queues_.targets(), looks);
      }
    }
    return queues_.records().done(record_);
  }

  /// When the storage's default time, from now on, has passed; 0 for a request that has ended.
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const {
    return record_ == slot_pool::none ? 0 : M::clock_ns() + queues_.timeout_ns();
  }

  /// Waits for the storage's default time.
  FOREBAY_DEVICE status wait() { return wait(default_deadline_ns()); }

  /// The first failure among the request's commands, or success. After `timed_out` the buffer still belongs to the
  /// request: wait again, or detach and leave it alone until the storage is destroyed. Lanes of a warp that call this
  /// together return together, when the last of them may.
  FOREBAY_DEVICE status wait(std::uint64_t deadline_ns) {
    if (record_ == slot_pool::none) return ended_;
    // Lanes that come together go on together: one that went on as soon as it could would come alone to whatever it
    // does next, and lanes that do the same thing one after the other take as many times as long. What each waits for
    // depends on the controllers only (Q4).
    if (!queues_.wait(M::converged(), record_, range_, deadline_ns, ended_)) return fault::timed_out;
    record_ = slot_pool::none;
    return ended_;
  }

  /// Gives up the result. The buffer belongs to the request until the storage is flushed or destroyed.
  FOREBAY_DEVICE void detach() {
    if (record_ != slot_pool::none) queues_.records().detach(record_);
    record_ = slot_pool::none;
  }

 private:
  io_queues_ref<M, Rules, Targets> queues_;
  std::uint32_t record_ = slot_pool::none;
  pair_range range_;
  status ended_;
};

}  // namespace forebay
