// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a dispatcher posts the completions that are due.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/decode.hpp"
#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/dispatcher_watch.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Posts completions, and takes completion queues for this.
template <class M>
class dispatcher_posting : protected dispatcher_watch<M> {
  using base = dispatcher_watch<M>;

 protected:
  using base::ahead_ps;
  using base::base;
  using base::contend;
  using base::count_in_flight;
  using base::count_invalid_doorbell;
  using base::doorbell_beside;
  using base::execute;
  using base::give;
  using base::hand_over;
  using base::has_medium;
  using base::helps;
  using base::hint;
  using base::in_medium;
  using base::keep_hand_on;
  using base::lanes_;
  using base::look_until;
  using base::now_ps_;
  using base::open;
  using base::queue_count_;
  using base::read_clock;
  using base::scratch_;
  using base::set;
  using base::since_epoch_ps;
  using base::stats_;
  using base::take_hand_off;
  using base::try_lock;
  using base::try_take;
  using base::understand;
  using base::unit_;
  using base::view_;
  using typename base::thing;

  /// Posts the commands of a queue that are due, as far as its completion queue has room. Returns whether there were
  /// any.
  FOREBAY_DEVICE bool post_due(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    // Only one lane looks, since the queue may be attached just now.
    bool const taken = lanes_.leader() && try_lock(at, &queue_locks::pending);
    if (!lanes_.any(taken)) return contend();
    bool const is_open = lanes_.any(taken && open(sq));
    lanes_.sync();  // all lanes see what the last holder left
    completion_queue& cq = view_.completion_queues[sq.cq_slot];
    if (!is_open || !hold(at, cq)) {
      give(at, &queue_locks::pending);
      return is_open && contend();
    }
    completion_ring ring = ring_of(sq, cq);
    std::uint32_t const free = room(ring);
    bool held = false;
    std::uint64_t last_due_ps = 0;  // of the lane
    std::uint32_t const n = sq.pending.take_due(
        lanes_, now_ps_ + ahead_ps() + ahead_ps() / 2,  // commands that come due soon after are posted with them
        free < scratch_.staged_completions ? free : scratch_.staged_completions,
        [&](std::uint32_t slot, std::uint64_t& due_ps, pending_command& command) {
          if constexpr (M::reaches_files) {
            if (has_medium() && (command.flags & pending_command::held) != 0) {
              in_medium().late.push_back({slot, due_ps});
              due_ps = never_ps;
              return false;
            }
          }
          if ((command.flags & pending_command::waits_for_sync) == 0 || synced(*this, command)) return true;
          // Looked at again after a while, so that it does not delay the others.
          due_ps = now_ps_ + sync_poll_ps;
          return false;
        },
        [&](std::uint32_t position, std::uint32_t slot, std::uint64_t due_ps, pending_command const& command) {
          scratch_.staged[position] = command;
          scratch_.staged_due_ps[position] = due_ps;
          scratch_.staged_slots[position] = slot;
          held = held || (command.flags & pending_command::held) != 0;
          if (due_ps > last_due_ps) last_due_ps = due_ps;
          // `execute` could not know this yet.
          if ((command.flags & pending_command::waits_for_sync) != 0 && command.status_field != 0) {
            count<M>(stats_.commands.failed_commands);
          }
        });
    if constexpr (M::reaches_files) {
      if (has_medium()) begin_late(at);
    }
    completion_ring::places const places = ring.take(n, view_.options.timing.immediate() ? 0 : lanes_.max(last_due_ps));
    put_back(sq, cq, ring);
    std::uint32_t const dw2 = completion_dw2(sq);
    // A completion queue to which others post is held until the entries are written. Once one of its submission queues
    // is detached, the completions of that queue must not lie behind entries that are still to come.
    bool const holds_on = !sq.owns_cq && n != 0;
    if (!holds_on) let_go(at, cq);
    // Comes before others may take the slots, since the entries of held commands are stored by slot.
    bool const lagging = lanes_.any(held) && execute_held(*this, at, n);
    bool const waiting = n == free && sq.pending.next_due_ps() <= now_ps_;
    bool const was_blocked = hint(sq.blocked) != 0;
    lanes_.sync();
    if (lanes_.leader()) {
      if (was_blocked != waiting) set(sq.blocked, waiting ? 1 : 0);
      if (n != 0) {
        count_in_flight(sq, 0 - n);
        keep_hand_on(at);
      }
    }
    give(at, &queue_locks::pending);
    if (n != 0) {
      post_staged(at, ring, places, n, dw2, !was_blocked);
      if (holds_on) let_go(at, cq);
      if (!lagging) take_hand_off(at);  // or `move_lagging` does
    }
    if (lanes_.leader()) {
      if (n != 0) count<M>(stats_.commands.completions_posted, n);
      if (waiting) count<M>(stats_.commands.completions_blocked);
    }
    return n != 0;
  }

  /// Moves data that lags behind its completions, if it is time to, or at once. Returns whether there was any.
  FOREBAY_COLD static bool move_lagging(dispatcher_posting self, bool at_once) {
    lagging_data& batch = self.view_.lagging[self.index_];
    std::uint32_t const count = batch.count;
    if (count == 0 || (!at_once && self.now_ps_ < batch.due_ps)) return false;
    std::uint32_t const at = batch.at;
    submission_queue<M> const& sq = self.unit_.queues[at];
    dma_segment* const segments = self.view_.segments + std::size_t{self.index_} * self.view_.segments_per_dispatcher;
    for (std::uint32_t i = 0; i < count; ++i) {
      nvme::submission_entry const& entry = batch.entries[i];
      decoded_command const what = self.understand(entry);
      prp_walk const walk =
          walk_prps<M>(self.lanes_, sq.regions, entry.prp1, entry.prp2, what.transfer_bytes, sq.page_bytes, segments);
      // What the client has unmapped since is not touched.
      if (walk.status_field == 0) {
        self.view_.drive.template read<M>(self.lanes_, what.offset_bytes, segments, walk.count);
      }
      self.lanes_.sync();
    }
    if (self.lanes_.leader()) {
      batch.count = 0;
      auto const moved = simt::atomic<M, simt::scope::system>(batch.moved);
      // Release pairs with the acquire in `engine::order_data`: the lanes' data, which the sync above collected.
      M::fence(simt::scope::system, simt::order::release);
      // Relaxed load: only this dispatcher writes the word.
      moved.store(moved.load(simt::order::relaxed) + 1, simt::order::release);
    }
    self.take_hand_off(at);
    return true;
  }

  /// Dword 2 of completions that are posted now. The caller holds the completion queue, so that the heads in it follow
  /// each other.
  FOREBAY_DEVICE std::uint32_t completion_dw2(submission_queue<M>& sq) const {
    // Acquire: pairs with the release in `fetch`; entries before the head have been read, and the client may write
    // over them.
    std::uint32_t const head =
        lanes_.leader() ? simt::atomic<M, simt::scope::block>(sq.head).load(simt::order::acquire) : 0;
    return nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(lanes_.broadcast(head)), sq.id);
  }

  /// Posts the `n` staged commands of the queue at `at` at `places`, each when its time has come. `counts`: whether the
  /// engine is the cause if they are late.
  FOREBAY_DEVICE void post_staged(std::uint32_t at, completion_ring const& ring, completion_ring::places const& places,
                                  std::uint32_t n, std::uint32_t dw2, bool counts) {
    // If nothing is posted ahead of time, all of them are due.
    bool const in_order = ahead_ps() == 0 || staged_are_in_order(n);
    if (!in_order) put_staged_in_order(*this, n);
    // A look at doorbells takes no extra time here: its loads are under way while the entries are written.
    bool const looks = M::looks_beside_work && ahead_ps() != 0;
    thing const beside = looks ? doorbell_beside(at) : thing{};
    std::uint64_t const looked_ps = looks ? since_epoch_ps(M::clock_ns()) : 0;
    std::uint32_t const value = beside.look();
    ring.prepare(lanes_, places, n, 0, dw2);
    beside.judge(value, looked_ps);
    for (std::uint32_t first = 0; first < n; first += lanes_.count()) {
      std::uint32_t const i = first + lanes_.rank();
      bool waits = i < n;
      std::uint32_t const which = in_order || !waits ? i : scratch_.staged_slots[i];
      pending_command const command = waits ? scratch_.staged[which] : pending_command{};
      std::uint64_t const due_ps = waits ? scratch_.staged_due_ps[which] : never_ps;
      std::uint64_t posted_ps = 0;
      for (;;) {
        std::uint64_t const now_ps = (M::clock_ns() - view_.options.epoch_ns) * 1000;
        if (waits && due_ps <= now_ps) {
          ring.template publish<M>(places, i, command.command_id, command.status_field);
          posted_ps = now_ps;
          waits = false;
        }
        if (!lanes_.any(waits)) break;
        std::uint64_t const next_ps = lanes_.min(waits ? due_ps : never_ps);
        look_until(view_.options.epoch_ns + (next_ps + 999) / 1000, at);
      }
      bool const timed = counts && i < n && (command.flags & pending_command::timed) != 0;
      if (posted_ps < places.after_ps) posted_ps = places.after_ps;
      if (lanes_.any(timed)) stats_.lateness.template record<M>(lanes_, timed, timed ? (posted_ps - due_ps) / 1000 : 0);
    }
    read_clock();
  }

  /// Takes a completion queue, so that others do not post to it meanwhile. False: another dispatcher has it at the
  /// moment.
  [[nodiscard]] FOREBAY_DEVICE bool hold(std::uint32_t at, completion_queue& cq) const {
    if (unit_.queues[at].owns_cq) return try_take(first_place_of(at), &queue_locks::posting);
    bool const held = lanes_.any(lanes_.leader() && cq.try_lock<M>());
    lanes_.sync();  // all lanes see what the last holder left
    return held;
  }
  FOREBAY_DEVICE void let_go(std::uint32_t at, completion_queue& cq) const {
    if (unit_.queues[at].owns_cq) return give(first_place_of(at), &queue_locks::posting);
    lanes_.sync();
    if (lanes_.leader()) cq.unlock<M>();
  }

  /// The ring of a completion queue that the team holds. In a unit of several dispatchers, a queue that owns its
  /// completion queue has the ring beside it.
  FOREBAY_DEVICE bool has_ring(submission_queue<M> const& sq) const { return helps() && sq.owns_cq; }
  FOREBAY_DEVICE completion_ring ring_of(submission_queue<M> const& sq, completion_queue const& cq) const {
    return has_ring(sq) ? sq.ring : cq.ring();
  }
  FOREBAY_DEVICE void put_back(submission_queue<M>& sq, completion_queue& cq, completion_ring const& ring) const {
    lanes_.sync();
    if (!lanes_.leader()) return;
    has_ring(sq) ? sq.ring.go_on_as(ring) : cq.put_back(ring);
    cq.show<M>(ring);
  }
  /// The queue no longer owns the completion queue. One lane calls it, with `queue_locks::pending`, which a posting
  /// dispatcher also holds.
  FOREBAY_DEVICE void disown(submission_queue<M>& sq) const {
    if (has_ring(sq)) view_.completion_queues[sq.cq_slot].put_back(sq.ring);
    sq.owns_cq = false;
  }

  /// Free entries of the ring of a completion queue that the team holds.
  FOREBAY_DEVICE std::uint32_t room(completion_ring& ring) const {
    if (ring.known_free() < scratch_.staged_completions && !ring.look_at_head<M>(lanes_) && lanes_.leader()) {
      count_invalid_doorbell();
    }
    return ring.known_free();
  }

 private:
  static constexpr std::uint64_t sync_poll_ps = 20'000'000;

  /// Begins the commands that move their data late and were found due.
  void begin_late(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    for (auto const& [slot, due_ps] : in_medium().late) {
      sq.pending.change(lanes_, slot, [](std::uint64_t&, pending_command& command) {
        command.flags = (command.flags & ~pending_command::held) | pending_command::in_medium;
      });
      nvme::submission_entry const& entry = sq.held[slot];
      hand_over(at, slot, entry, understand(entry), now_ps_, due_ps);
    }
    in_medium().late.clear();
  }

  /// Executes those of the `n` staged commands of the queue at `at` that move their data late. Returns whether data is
  /// left for `move_lagging`.
  FOREBAY_COLD static bool execute_held(dispatcher_posting self, std::uint32_t at, std::uint32_t n) {
    submission_queue<M> const& sq = self.unit_.queues[at];
    std::uint32_t lagging = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      pending_command command = self.scratch_.staged[i];
      if ((command.flags & pending_command::held) == 0) continue;
      nvme::submission_entry const& entry = sq.held[self.scratch_.staged_slots[i]];
      command.flags &= ~pending_command::held;
      pending_command const done = execute(self, sq, entry, self.understand(entry), command);
      self.lanes_.sync();
      if (self.lanes_.leader()) self.scratch_.staged[i] = done;
      self.lanes_.sync();
      if ((done.flags & pending_command::lags) == 0 || done.status_field != 0) continue;
      // There is room for one batch.
      if (lagging == 0) move_lagging(self, true);
      if (self.lanes_.leader()) self.view_.lagging[self.index_].entries[lagging] = entry;
      ++lagging;
    }
    if (lagging == 0) return false;
    if (self.lanes_.leader()) {
      lagging_data& batch = self.view_.lagging[self.index_];
      batch.at = at;
      batch.due_ps = self.now_ps_ + self.view_.options.faults.data_lag_ns * 1000;
      batch.count = lagging;
      auto const announced = simt::atomic<M, simt::scope::system>(batch.announced);
      // Relaxed, both: only this dispatcher writes the word, and the release of each completion comes after it.
      announced.store(announced.load(simt::order::relaxed) + 1, simt::order::relaxed);
    }
    self.lanes_.sync();
    return true;
  }

  /// Whether each staged command is due no earlier than the one before it, which is nearly always so.
  FOREBAY_DEVICE bool staged_are_in_order(std::uint32_t n) const {
    bool falls = false;
    for (std::uint32_t i = lanes_.rank(); i + 1 < n; i += lanes_.count()) {
      falls = falls || scratch_.staged_due_ps[i] > scratch_.staged_due_ps[i + 1];
    }
    return !lanes_.any(falls);
  }
  /// Sets `staged_slots` to the staged commands in the order of their due times, since a client sees an entry of its
  /// ring no earlier than the entries before it.
  FOREBAY_COLD static void put_staged_in_order(dispatcher_posting self, std::uint32_t n) {
    dispatcher_scratch& scratch = self.scratch_;
    for (std::uint32_t i = self.lanes_.rank(); i < n; i += self.lanes_.count()) {
      std::uint64_t const due_ps = scratch.staged_due_ps[i];
      std::uint32_t before = 0;
      for (std::uint32_t j = 0; j < n; ++j) {
        std::uint64_t const other_ps = scratch.staged_due_ps[j];
        before += other_ps < due_ps || (other_ps == due_ps && j < i);
      }
      scratch.staged_slots[before] = i;
    }
    self.lanes_.sync();
  }

  /// The first place of the dispatcher to which place `at` belongs.
  FOREBAY_DEVICE std::uint32_t first_place_of(std::uint32_t at) const { return at - at % queue_count_; }

  /// Whether the host has written back what a Flush covers; sets the Flush's status. One lane calls it.
  FOREBAY_COLD static bool synced(dispatcher_posting self, pending_command& command) {
    sync_words& words = *self.view_.drive.sync;
    // Acquire: pairs with the host's release; its failure flag is visible.
    std::uint32_t const completed = simt::atomic<M, simt::scope::system>(words.completed).load(simt::order::acquire);
    if (static_cast<std::int32_t>((completed - (command.flags >> 8)) << 8) < 0) return false;
    // Relaxed: ordered by the acquire above.
    if (simt::atomic<M, simt::scope::system>(words.failed).load(simt::order::relaxed) != 0) {
      command.status_field = nvme::status_field(nvme::media_status::write_fault);
    }
    return true;
  }
};

}  // namespace forebay::emulator
