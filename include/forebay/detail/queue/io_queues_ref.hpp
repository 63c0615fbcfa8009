// SPDX-License-Identifier: Apache-2.0
//! \file
//! All queue pairs of a storage, the pools that they share, and the waits on them: submit, token, help.
#pragma once

#include <cstdint>
#include <type_traits>

#include "forebay/detail/queue/pair_range.hpp"
#include "forebay/detail/queue/queue_pair_ref.hpp"
#include "forebay/detail/queue/recovery_mailbox.hpp"
#include "forebay/detail/queue/wait_trace.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

template <class M, class Rules, class Targets>
class alive_watch;

/// Written by the host before any thread uses it; lies in the memory of the threads that drive the queues.
struct io_queues_state {
  queue_pair_state* pairs = nullptr;
  std::uint32_t pair_count = 0;
  completion_record* records = nullptr;
  slot_pool free_records;
  prp_page_pool prp_pages;
  recovery_mailbox mailbox;
  command_limits limits;  ///< `timeout_ns` is also that of waits that name no deadline
  wait_table waits;       ///< read in debug builds only
  /// Per record, how many requests it has had; null if nothing is traced. Used in debug builds only.
  std::uint32_t* generations = nullptr;
};

/// Trivially copyable; thread-safe. Functions that wait say so; every wait helps: it consumes completions for all
/// threads, so it depends on nothing but the controllers (Q4, Q5). Commands complete to `Targets`
/// (completion_record.hpp).
template <class M, class Rules = queue_rules, class Targets = record_pool<M>>
class io_queues_ref {
 public:
  using machine = M;
  using rules_type = Rules;
  using targets_type = Targets;
  using pair_type = queue_pair_ref<M, Rules, Targets>;

  io_queues_ref() = default;
  /// `pairs` repeats what `*state` says, so that no thread has to load it.
  FOREBAY_DEVICE io_queues_ref(io_queues_state* state, queue_pair_state* pairs, Targets const& targets)
      : s_(state), pairs_(pairs), targets_(targets) {}
  /// The same, but loads what the state says.
  FOREBAY_DEVICE explicit io_queues_ref(io_queues_state* state)
    requires(std::is_same_v<Targets, record_pool<M>>)
      : io_queues_ref(state, state->pairs, Targets(state->records, state->free_records)) {}

  FOREBAY_DEVICE io_queues_state* state() const { return s_; }
  FOREBAY_DEVICE Targets const& targets() const { return targets_; }
  FOREBAY_DEVICE record_pool<M> const& records() const { return targets_.records(); }
  FOREBAY_DEVICE prp_page_pool const& prp_pages() const { return s_->prp_pages; }
  FOREBAY_DEVICE std::uint64_t timeout_ns() const { return s_->limits.timeout_ns; }
  FOREBAY_DEVICE std::uint64_t flush_timeout_ns() const { return s_->limits.flush_timeout_ns; }
  FOREBAY_DEVICE std::uint32_t pair_count() const { return s_->pair_count; }
  FOREBAY_DEVICE pair_type pair(std::uint32_t index) const { return pair_type{pairs_ + index}; }

  /// Submits to the pairs of `range`, from its `home`-th on, and helps where they are full. On success `home` says
  /// which pair took the command. `busy`: nothing was submitted by the deadline; `cancelled`: all pairs of the range
  /// are dead. Waits.
  FOREBAY_DEVICE status submit(pair_range range, std::uint32_t& home, io_command const& command, std::uint32_t target,
                               std::uint64_t deadline_ns) const {
    return submit_by(range, home, command, target, [=] { return deadline_ns; });
  }
  /// The same for the default time.
  FOREBAY_DEVICE status submit(pair_range range, std::uint32_t& home, io_command const& command,
                               std::uint32_t target) const {
    return submit_by(range, home, command, target, [this] { return M::clock_ns() + timeout_ns(); });
  }
  /// The same without waiting: `busy` if no pair of `range` has room.
  FOREBAY_DEVICE status try_submit(pair_range range, std::uint32_t& home, io_command const& command,
                                   std::uint32_t target) const {
    return submit_by(range, home, command, target, [] { return 0; });
  }

  /// Delivers what has completed on a pair, unless another thread is doing so; returns whether there was anything.
  FOREBAY_DEVICE bool help(std::uint32_t pair_index) const { return pair(pair_index).try_poll(prp_pages(), targets_); }

  /// Delivers what has completed on `queue` until `stop()` holds, which it returns, or nothing is left; after the
  /// deadline, `late_helps_max` times at most. A thread must have seen the ring empty before it goes to sleep:
  /// otherwise it could miss a completion that no other thread looks at.
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

  /// How many commands ended with success on the pairs of `range`, modulo 2^32, as far as reported. A drive that
  /// completes anything is alive. The count may fall for a moment.
  FOREBAY_DEVICE std::uint32_t progress(pair_range range) const {
    std::uint32_t sum = 0;
    for (std::uint32_t k = 0; k < range.count; ++k) sum += pair(range.at(k)).progress();
    return sum;
  }

  /// Waits until every command has ended that is in flight now on the calling thread's share of the command ids. All
  /// threads of the grid share out the command ids of all pairs. It does not wait for commands that are submitted
  /// later. It asks for recovery of those that take too long. If their pair even so completes nothing for `patience`
  /// times `recovery_time_ns()`, it gives them up, and returns how many. The caller may use again the memory that the
  /// other commands wrote or read.
  FOREBAY_DEVICE std::uint32_t settle_share() const { return settle(M::thread_rank(), M::thread_count()); }
  /// The same for every `step`-th command id, from `first` on.
  FOREBAY_DEVICE std::uint32_t settle(std::uint32_t first, std::uint32_t step) const {
    std::uint32_t given_up = 0;
    for (std::uint32_t k = 0; k < pair_count(); ++k) {
      auto const queue = pair(k);
      for (std::uint32_t id = first; id < queue.ids(); id += step) {
        std::uint64_t const word = queue.command_word(id);
        if (Rules::settles_all && word != 0 && !outlast(k, id, word)) ++given_up;
      }
      // If another command has the word by now, the word says nothing about the data of the command before it.
      (void)M::wait_until([&] { return queue.try_catch_up(); }, simt::no_deadline);
    }
    return given_up;
  }
  /// In units of `recovery_time_ns()`: one for the command, one for its abort, one for the end of its queue, and one to
  /// spare.
  static constexpr std::uint32_t patience = 4;
  /// The longest time that each of them takes; the host looks for requests only now and then.
  FOREBAY_DEVICE std::uint64_t recovery_time_ns() const {
    constexpr std::uint64_t host_looks_ns = 100'000'000;
    return timeout_ns() < host_looks_ns ? host_looks_ns : timeout_ns();
  }

  /// Delivers what completes on the calling thread's share of the pairs, which all threads of the grid share out, until
  /// no command is in flight there. Returns how many of these pairs still have one at the deadline.
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

  /// Waits until `record` is done, and helps on the pairs of `range`. Then `result` is the record's, and the record has
  /// gone back to the pool. The `lanes` call this together, and go on together. False at the deadline: the recovery
  /// thread has been asked to abort what is still in flight, and the request keeps everything that it owns (Q7).
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
      end_generation(record);
      result = records().close(record);
      return true;
    }
    ask_slowly(*this, range, record);
    return false;
  }

  /// Says which of its requests a record now has. Like the two functions below, it is of use in debug builds only.
  FOREBAY_DEVICE std::uint32_t generation([[maybe_unused]] std::uint32_t record) const {
    if constexpr (debug_waits) {
      // Relaxed, like all accesses to it: only one thread has a record at a time.
      auto* const all = s_->generations;
      if (all != nullptr) return simt::atomic<M>(all[record]).load(simt::order::relaxed);
    }
    return 0;
  }
  /// The record is about to go back to the pool.
  FOREBAY_DEVICE void end_generation([[maybe_unused]] std::uint32_t record) const {
    if constexpr (debug_waits) {
      auto* const all = s_->generations;
      if (all != nullptr) simt::atomic<M>(all[record]).fetch_add(1, simt::order::relaxed);
    }
  }
  /// Ends the program if the request is over and its record may be another request's.
  FOREBAY_DEVICE void check_generation([[maybe_unused]] std::uint32_t record, [[maybe_unused]] std::uint32_t of) const {
    if constexpr (debug_waits) {
      M::check(generation(record) == of, "a token is used after another copy of it was waited for or detached");
    }
  }

  /// Asks the host to abort the commands of `target`, or of all targets, that have been in flight on a pair for longer
  /// than the limits allow. That a caller's own deadline has passed says nothing about a command, which may have been
  /// submitted a moment ago. A caller that waits again for the commands asks again (Q7).
  FOREBAY_DEVICE void ask_for_recovery(std::uint32_t pair_index, std::uint32_t target = any_target) const {
    auto const queue = pair(pair_index);
    std::uint64_t const now_ns = M::clock_ns();
    for (std::uint32_t id = 0; id < queue.ids(); ++id) {
      std::uint64_t const word = queue.command_word(id);
      if (word == 0 || (target != any_target && command_slot::target_of(word) != target)) continue;
      if (Rules::asks_by_age && !command_slot::is_overdue(word, now_ns, s_->limits)) continue;
      s_->mailbox.template post<M>({pair_index, id, command_slot::time_of(word)});
    }
  }
  static constexpr std::uint32_t any_target = ~0u;

 private:
  FOREBAY_DEVICE wait_trace<M> trace() const { return wait_trace<M>(&s_->waits); }

  /// Waits until the command of `word` has ended. False: its pair completes nothing.
  FOREBAY_DEVICE bool outlast(std::uint32_t pair_index, std::uint32_t id, std::uint64_t word) const {
    auto const queue = pair(pair_index);
    alive_watch<M, Rules, Targets> drive(*this, {pair_index, 1, 1});
    for (std::uint32_t left = patience; left != 0; --left) {
      std::uint64_t const now_ns = M::clock_ns();
      std::uint64_t const limit_ns = left == patience ? command_slot::limit_ns(word, s_->limits) : recovery_time_ns();
      std::uint64_t const deadline_ns = limit_ns < simt::no_deadline - now_ns ? now_ns + limit_ns : simt::no_deadline;
      auto const over = [&] { return queue.command_word(id) != word; };
      if (M::wait_until([&] { return serve(queue, over, deadline_ns); }, deadline_ns)) return true;
      ask_for_recovery(pair_index, command_slot::target_of(word));
      if (drive.has_completed()) left = patience + 1;
    }
    return false;
  }

  FOREBAY_DEVICE static void ask_slowly(io_queues_ref const queues, pair_range range, std::uint32_t target) {
    for (std::uint32_t k = 0; k < range.count; ++k) queues.ask_for_recovery(range.at(k), target);
  }

  /// Calls `deadline()` only when the first attempt has failed.
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
    bool const decided = M::wait_until(
        [&] {
          for (std::uint32_t late_helps = 0;;) {
            bool any = false;
            // Commands of pairs outside `range` may hold all list pages, and no thread may be waiting for those
            // commands yet (Q5).
            std::uint32_t const others = has_page() ? 0 : s_->pair_count;
            for (std::uint32_t k = 0; k < others; ++k) any = helps(pair(k)) || any;
            std::uint32_t dead_pairs = 0;
            for (std::uint32_t k = 0; k < range.count; ++k) {
              auto const queue = pair(range.at(home));
              any = helps(queue) || any;
              if (queue.has_room() && has_page()) {
                result = status();
                return true;
              }
              if (queue.dead()) ++dead_pairs;
              home = home + 1 < range.count ? home + 1 : 0;
            }
            if (dead_pairs == range.count) {
              result = fault::cancelled;
              return true;
            }
            // Goes on to the other pairs rather than stay at one, so that a busy pair does not keep the thread from the
            // others. A thread must have seen each ring empty before it goes to sleep.
            if (!any || (M::clock_ns() >= deadline_ns && ++late_helps == simt::late_helps_max)) return false;
          }
        },
        deadline_ns);
    if (!decided && deadline_ns != 0) ask_slowly(*this, has_page() ? range : pair_range{0, s_->pair_count}, any_target);
    return result;
  }
  FOREBAY_DEVICE bool helps(pair_type queue) const {
    if constexpr (Rules::waiters_help) {
      return queue.try_poll(prp_pages(), targets_);
    } else {
      return false;
    }
  }

  io_queues_state* s_ = nullptr;
  queue_pair_state* pairs_ = nullptr;
  Targets targets_;
};

/// Tells whether a drive is alive: a drive that completes commands is, however long some of them take.
template <class M, class Rules = queue_rules, class Targets = record_pool<M>>
class alive_watch {
 public:
  /// `pairs`: the queue pairs of the drive.
  FOREBAY_DEVICE alive_watch(io_queues_ref<M, Rules, Targets> const& queues, pair_range pairs)
      : queues_(queues), pairs_(pairs), seen_(queues.progress(pairs)) {}

  /// Whether a command has ended with success since this function was last called, or since the watch began.
  FOREBAY_DEVICE bool has_completed() {
    std::uint32_t const now = queues_.progress(pairs_);
    // A failing command makes the count fall for a moment.
    bool const more = static_cast<std::int32_t>(now - seen_) > 0;
    if (more) seen_ = now;
    return more;
  }

 private:
  io_queues_ref<M, Rules, Targets> queues_;
  pair_range pairs_;
  std::uint32_t seen_;
};

}  // namespace forebay
