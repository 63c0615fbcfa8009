// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a dispatcher fetches submission entries and times them.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/decode.hpp"
#include "forebay/detail/emulator/dispatcher_medium.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Takes new commands from the clients' rings and works on them until their due times are set.
template <class M>
class dispatcher_fetching : protected dispatcher_medium<M> {
  using base = dispatcher_medium<M>;

 protected:
  using base::base;
  using base::contend;
  using base::count_in_flight;
  using base::count_invalid_doorbell;
  using base::entry;
  using base::give;
  using base::has_medium;
  using base::helps;
  using base::hint;
  using base::keep_hand_on;
  using base::lanes_;
  using base::now_ps_;
  using base::open;
  using base::scratch_;
  using base::set;
  using base::since_epoch_ps;
  using base::start;
  using base::stats_;
  using base::take;
  using base::take_hand_off;
  using base::try_lock;
  using base::try_take;
  using base::understand;
  using base::unit_;
  using base::unlock;
  using base::view_;

  /// Polls one of the dispatcher's own queues. One lane calls it. Returns whether there are entries to fetch.
  FOREBAY_DEVICE bool poll(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    if (hint(sq.size) == 0 || !try_lock(at, &queue_locks::fetch)) return false;
    bool const fresh = open(sq) && look_at_tail(at);
    unlock(at, &queue_locks::fetch);
    return fresh;
  }

  /// Fetches the new entries of a queue, up to a batch, and works on them until their due times are set. Returns
  /// whether there were any.
  FOREBAY_DEVICE bool fetch(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    if (!try_take(at, &queue_locks::fetch)) return contend();
    std::uint32_t n = 0;
    std::uint32_t head = 0;
    if (lanes_.leader() && open(sq) && look_at_tail(at)) {
      head = hint(sq.head);
      std::uint32_t const there = sq.seen_tail >= head ? sq.seen_tail - head : sq.seen_tail + sq.size - head;
      std::uint32_t const most = view_.options.frontend.coalesced_fetch ? scratch_.batch_entries : 1;
      n = there < most ? there : most;
      std::uint32_t const free = sq.pending.capacity() - hint(sq.in_flight);
      if (n > free) n = free;
      if (helps() && there > most) {
        set(sq.wants_help_ps, now_ps_ + help_ps);
        // Relaxed: a hint.
        simt::atomic<M, simt::scope::block>(unit_.words->wants_help_ps)
            .fetch_max(now_ps_ + help_ps, simt::order::relaxed);
      }
    }
    n = lanes_.broadcast(n);
    head = lanes_.broadcast(head);
    if (n == 0) {
      give(at, &queue_locks::fetch);
      return false;
    }
    load(sq, head, n);
    std::uint64_t const sequence = (std::uint64_t{sq.id} << 48) + sq.fetched;
    std::uint64_t const arrival_ps = sq.arrival_ps;
    std::uint64_t const gap_ps = sq.new_gap_ps;
    lanes_.sync();
    if (lanes_.leader()) {
      std::uint32_t const next = head + n < sq.size ? head + n : head + n - sq.size;
      // Release: pairs with the acquire in `completion_dw2`; the entries before it have been read.
      simt::atomic<M, simt::scope::block>(sq.head).store(next, simt::order::release);
      sq.fetched += n;
      sq.new_gap_ps = never_ps;
      // Relaxed: the locks order it.
      count_in_flight(sq, n);
      keep_hand_on(at);
    }
    give(at, &queue_locks::fetch);

    bool const immediate = view_.options.timing.immediate();
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      decoded_command const command = understand(entry(i));
      scratch_.decoded[i] = command;
      scratch_.timed[i] = {.offset_bytes = command.offset_bytes,
                           .bytes = command.bytes,
                           .sequence = sequence + i,
                           .op = command.op,
                           .charged = command.status_field == 0,
                           .target_ps = arrival_ps};
    }
    lanes_.sync();
    if (!immediate) {
      std::uint32_t const at_once = view_.options.frontend.aggregated_timing ? n : 1;
      for (std::uint32_t i = 0; i < n; i += at_once) {
        view_.timing.assign(lanes_, scratch_.timed + i, at_once, arrival_ps, scratch_.channel_ps);
      }
    }
    start(sq, n, immediate);

    std::uint64_t first_due_ps = never_ps;
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      std::uint64_t const due_ps = due_after_fetch_ps(i);
      if (due_ps < first_due_ps) first_due_ps = due_ps;
    }
    first_due_ps = lanes_.min(first_due_ps);
    take(at, &queue_locks::pending);
    sq.pending.reserve(lanes_, n, scratch_.slots);
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      pending_command const& command = scratch_.commands[i];
      sq.pending.insert(scratch_.slots[i], due_after_fetch_ps(i), command);
      if ((command.flags & pending_command::held) != 0) sq.held[scratch_.slots[i]] = entry(i);
    }
    sq.pending.settle(lanes_, n, scratch_.slots, first_due_ps);
    give(at, &queue_locks::pending);
    std::uint32_t later = 0;
    if constexpr (M::reaches_files) {
      if (has_medium()) later = hand_over_batch(at, n, arrival_ps);
    }
    take_hand_off(at);

    if (lanes_.leader()) {
      // Relaxed: a hint.
      if (helps() && !immediate) {
        simt::atomic<M, simt::scope::block>(unit_.words->batches).fetch_add(1, simt::order::relaxed);
      }
      count<M>(stats_.commands.fetches);
      count<M>(stats_.commands.commands_fetched, n);
      if (gap_ps != never_ps) stats_.poll_gap.template record_one<M>(gap_ps / 1000);
      if (n != later) {
        stats_.processing.template record_one<M>((since_epoch_ps(M::clock_ns()) - arrival_ps) / 1000, n - later);
      }
    }
    if (!immediate) record_targets(*this, n, arrival_ps);
    return true;
  }

 private:
  /// For how long all dispatchers poll a queue that had more than one fetch took.
  static constexpr std::uint64_t help_ps = 20'000'000;

  /// When entry `i` of the batch is due, as far as is known now.
  FOREBAY_DEVICE std::uint64_t due_after_fetch_ps(std::uint32_t i) const {
    if constexpr (M::reaches_files) {
      if ((scratch_.commands[i].flags & pending_command::in_medium) != 0) return never_ps;
    }
    return scratch_.timed[i].target_ps;
  }

  /// Hands to the medium what it executes of a batch that is in the pending set. Returns how many commands.
  std::uint32_t hand_over_batch(std::uint32_t at, std::uint32_t n, std::uint64_t arrival_ps) {
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      if ((scratch_.commands[i].flags & pending_command::in_medium) == 0) continue;
      this->hand_over(at, scratch_.slots[i], entry(i), scratch_.decoded[i], arrival_ps, scratch_.timed[i].target_ps);
      ++count;
    }
    return count;
  }

  /// One lane calls it, with the lock.
  FOREBAY_DEVICE bool look_at_tail(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    std::uint32_t const head = hint(sq.head);
    if (head != sq.seen_tail) return true;
    // Acquire: pairs with the client's release before it rings the tail doorbell; the entries are visible.
    std::uint32_t const tail = simt::atomic<M, simt::scope::system>(*sq.tail_doorbell).load(simt::order::acquire);
    if (tail >= hint(sq.size)) {
      if (tail != hint(sq.bad_tail)) count_invalid_doorbell();
      set(sq.bad_tail, tail);
      return false;
    }
    std::uint64_t last_ps = sq.last_poll_ps == never_ps ? now_ps_ : sq.last_poll_ps;
    std::uint64_t const looked_ps = hint(sq.looked_ps);
    if (last_ps < looked_ps) last_ps = looked_ps;
    sq.last_poll_ps = last_ps < now_ps_ ? now_ps_ : last_ps;
    if (tail == head) return false;
    sq.seen_tail = tail;
    sq.new_gap_ps = sq.last_poll_ps - last_ps;
    // On average, a command comes in the middle between two looks that follow each other at once.
    std::uint64_t const period_ps = view_.options.poll_period_ns * 1000;
    sq.arrival_ps = last_ps + (sq.new_gap_ps < period_ps ? sq.new_gap_ps : period_ps) / 2;
    return true;
  }

  /// Counts the targets that the model has just given to the batch.
  FOREBAY_COLD static void record_targets(dispatcher_fetching self, std::uint32_t n, std::uint64_t arrival_ps) {
    for (std::uint32_t first = 0; first < n; first += self.lanes_.count()) {
      std::uint32_t const i = first + self.lanes_.rank();
      bool const timed = i < n && (self.scratch_.commands[i].flags & pending_command::timed) != 0 &&
                         self.scratch_.timed[i].target_ps != never_ps;
      std::uint64_t const took_ps = timed ? self.scratch_.timed[i].target_ps - arrival_ps : 0;
      self.stats_.target.template record<M>(self.lanes_, timed, took_ps / 1000);
    }
  }

  /// Takes `n` submission entries from the client's ring, in as few accesses as they fill.
  FOREBAY_DEVICE void load(submission_queue<M> const& sq, std::uint32_t head, std::uint32_t n) {
    constexpr std::uint32_t ahead = 4;
    for (std::uint32_t first = lanes_.rank(); first < n * 4; first += ahead * lanes_.count()) {
      simt::vec16 part[ahead];
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < ahead; ++j) {
        std::uint32_t const p = first + j * lanes_.count();
        std::uint32_t const at = head + p / 4 < sq.size ? head + p / 4 : head + p / 4 - sq.size;
        if (p < n * 4) part[j] = M::ld(reinterpret_cast<simt::vec16 const*>(sq.entries + at) + p % 4);
      }
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < ahead; ++j) {
        std::uint32_t const p = first + j * lanes_.count();
        if (p < n * 4) scratch_.entries[p / 4].part[p % 4] = part[j];
      }
    }
    lanes_.sync();
  }
};

}  // namespace forebay::emulator
