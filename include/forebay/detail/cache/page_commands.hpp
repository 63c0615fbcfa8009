// SPDX-License-Identifier: Apache-2.0
//! \file
//! The commands that read pages into frames and write them back: how they are sent, waited for and recovered.
#pragma once

#include <cstdint>

#include "forebay/cache_counters.hpp"
#include "forebay/detail/cache/cache_core.hpp"
#include "forebay/detail/cache/cache_frames.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/cache/staging.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/queue/together.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// A command for a page completes to its frame's word, whichever thread consumes the completion. The frame's note says
/// which queue pair a waiting thread should help.
template <class M, cached_traits Traits>
class page_commands : protected cache_frames<M, Traits> {
  using base = cache_frames<M, Traits>;

 public:
  using base::base;

 protected:
  using base::count;
  using base::first_outside;
  using base::first_user;
  using base::look;
  using base::mapping_;
  using base::none;
  using base::page_outside;
  using base::page_shift_;
  using base::s_;
  using base::trace;
  using base::word;
  using typename base::pools_type;
  using typename base::rules;

  using frames_type = typename pools_type::frames;
  using targets_type = cache_targets<M, frames_type>;
  using queue_rules_type = typename Traits::queue_rules;
  using queues_type = io_queues_ref<M, queue_rules_type, targets_type>;

  enum class until : std::uint8_t { read, idle };

  FOREBAY_DEVICE static page_commands from(cache_state* state) { return base::template part_of<page_commands>(state); }

  FOREBAY_DEVICE queues_type queues() const {
    io_queues_state* const q = s_->queues;
    return queues_type(q, q->pairs, targets());
  }
  FOREBAY_DEVICE targets_type targets() const {
    io_queues_state* const q = s_->queues;
    return targets_type(record_pool<M>(q->records, q->free_records), s_);
  }
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const { return M::clock_ns() + s_->queues->limits.timeout_ns; }
  FOREBAY_DEVICE std::uint32_t drive_of(std::uint64_t page) const {
    return s_->layout.piece_at(page << page_shift_, 1).drive;
  }

  // Submission
  // ------------------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE io_command command_for(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t frame) const {
    storage_layout const& layout = s_->layout;
    std::uint64_t const first = page << page_shift_;
    std::uint64_t bytes = std::uint64_t{1} << page_shift_;
    // The last page of a storage may be a short one.
    if (bytes > layout.size_bytes - first) bytes = layout.size_bytes - first;
    storage_layout::piece const p = layout.piece_by<queue_rules_type>(first, bytes);
    io_command command;
    command.opcode = opcode;
    command.nsid = layout.nsid;
    command.slba = p.byte_on_drive >> layout.block_shift;
    command.blocks = static_cast<std::uint32_t>(p.bytes >> layout.block_shift);
    command.bytes = p.bytes;
    command.buffer = frame < first_user() ? s_->frame_memory.subspan(std::uint64_t{frame} << page_shift_, p.bytes)
                                          : s_->users[frame - first_user()].buffer.subspan(0, p.bytes);
    return command;
  }

  /// A command for a page, and the queue pair of its drive that it goes to.
  struct page_command {
    nvme::io_opcode opcode;
    std::uint32_t frame;
    std::uint32_t target;
    std::uint32_t home;   ///< the number of the pair among the drive's; `none`: not known yet
    std::uint32_t noted;  ///< the pair that the frame's note names, or `none`
    std::uint64_t page;
    std::uint64_t deadline_ns;
    bool helped = false;  ///< whether submit_once() delivered anything
  };

  /// Waits for room in the queues until the deadline; with deadline 0 it does not wait.
  FOREBAY_DEVICE status submit(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t frame, std::uint32_t target,
                               std::uint64_t deadline_ns) const {
    return simt::out_of_line(&submit_for)(s_, opcode, page, frame, target, deadline_ns);
  }
  FOREBAY_COLD static status submit_for(cache_state* state, nvme::io_opcode opcode, std::uint64_t page,
                                        std::uint32_t frame, std::uint32_t target, std::uint64_t deadline_ns) {
    return from(state).submit_here(opcode, page, frame, target, deadline_ns);
  }
  FOREBAY_DEVICE status submit_here(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t frame,
                                    std::uint32_t target, std::uint64_t deadline_ns) const {
    page_command command{opcode, frame, target, none, none, page, deadline_ns};
    status const result = simt::out_of_line(&submit_once)(s_, command, command.helped);
    // Most commands find room at once, and do not pay for the stack of the slow path.
    return result.kind() != fault::busy ? result : simt::out_of_line(&submit_slowly)(s_, command);
  }
  /// Goes on where submit_here() has found no room. No function that this one calls, directly or not, has the same
  /// prototype (cache_misses::find_spare() says why).
  FOREBAY_COLD static status submit_slowly(cache_state* state, page_command& command) {
    page_commands const self = from(state);
    status result = fault::busy;
    // Commands of other drives' pairs may hold what commands of all drives share, and no thread may be waiting for
    // those commands yet (Q5).
    bool const may_help = queue_rules_type::waiters_help && self.needs_shared(command.frame);
    auto const help_others = [&] {
      FOREBAY_ROLLED
      for (std::uint32_t pair = 0; may_help && pair < state->queues->pair_count; ++pair) {
        command.helped = simt::out_of_line(&help_for)(state, pair) || command.helped;
      }
      return command.helped;
    };
    if (command.deadline_ns == 0)
      return help_others() ? simt::out_of_line(&submit_once)(state, command, command.helped) : result;
    if (command.deadline_ns == default_time) command.deadline_ns = self.default_deadline_ns();
    [[maybe_unused]] auto const noted = self.trace().waits_for(wait_kind::frame_command, command.frame);
    bool const decided = M::wait_until(
        [&] {
          FOREBAY_ROLLED
          for (std::uint32_t late_helps = 0;;) {
            command.helped = false;
            result = simt::out_of_line(&submit_once)(state, command, command.helped);
            if (result.kind() != fault::busy) return true;
            // Goes on to the other pairs rather than stay at one, so that a busy pair does not keep the thread from the
            // others. A thread must have seen each ring empty before it goes to sleep.
            if (!help_others()) return false;
            if (M::clock_ns() >= command.deadline_ns && ++late_helps == simt::late_helps_max) return false;
          }
        },
        command.deadline_ns);
    // Possibly no thread waits for the commands that take the room: prefetches, and requests that were detached.
    if (rules::asks_for_room && !decided) {
      pair_range const in_the_way = self.needs_shared(command.frame)
                                        ? pair_range{0, state->queues->pair_count}
                                        : state->layout.pairs_of(self.drive_of(command.page));
      FOREBAY_ROLLED
      for (std::uint32_t k = 0; k < in_the_way.count; ++k) {
        simt::out_of_line (&ask_for_recovery)(state, in_the_way.at(k), none);
      }
    }
    return result;
  }
  /// Whether a command for the frame needs more than room in a queue: a PRP list, or a staging page.
  FOREBAY_DEVICE bool needs_shared(std::uint32_t frame) const {
    return std::uint64_t{1} << page_shift_ > s_->queues->prp_pages.page_bytes || is_staged(frame);
  }
  FOREBAY_DEVICE bool is_staged(std::uint32_t frame) const {
    return frames_type::staged && staging_pages<M>(s_->staging).stages(frame);
  }
  /// Stands for a deadline that begins once it is known that there is something to wait for, and lasts the default
  /// time.
  static constexpr std::uint64_t default_time = 1;

  /// Does what io_queues_ref::submit() does, in parts that each need few registers. It tries each pair of the page's
  /// drive, and helps once at a pair that has no room. `busy`, or `cancelled` if all pairs are dead. Sets `helped` if
  /// it delivered anything.
  FOREBAY_COLD static status submit_once(cache_state* state, page_command& command, bool& helped) {
    pair_range const of_drive =
        state->layout.pairs_of(state->layout.piece_at(command.page << state->page_shift, 1).drive);
    std::uint32_t const first = of_drive.first, pairs = of_drive.count;
    if (command.home == none) command.home = home_pair<M>(pairs);
    std::uint32_t dead_pairs = 0;
    FOREBAY_ROLLED
    for (std::uint32_t k = 0; k < pairs; ++k) {
      std::uint32_t const pair = first + command.home;
      // The note is stored before the command is submitted. Afterwards the command may have completed, and another
      // command may use the frame: its note would be overwritten. Relaxed: it only says where to help, until the word
      // says more.
      if (command.noted != command.home) {
        simt::atomic<M>(state->notes[command.frame]).store(pair, simt::order::relaxed);
      }
      command.noted = command.home;
      submission outcome = simt::out_of_line(&send_for)(state, command, pair);
      if (outcome == submission::no_room && simt::out_of_line(&help_for)(state, pair)) {
        helped = true;
        outcome = simt::out_of_line(&send_for)(state, command, pair);
      }
      if (outcome == submission::yes) return {};
      if (outcome == submission::dead) ++dead_pairs;
      command.home = command.home + 1 < pairs ? command.home + 1 : 0;
    }
    return dead_pairs == pairs ? fault::cancelled : fault::busy;
  }

  enum class submission : std::uint8_t { yes, no_room, dead };
  FOREBAY_COLD static submission send_for(cache_state* state, page_command const& command, std::uint32_t pair) {
    auto const queue = typename queues_type::pair_type{state->queues->pairs + pair};
    page_commands const self = from(state);
    io_command io = self.command_for(command.opcode, command.page, command.frame);
    bool const sent = self.is_staged(command.frame) ? self.try_send_staged(queue, io, command)
                                                    : queue.try_submit(io, state->queues->prp_pages, command.target);
    if (sent) return submission::yes;
    return queue.dead() ? submission::dead : submission::no_room;
  }
  /// A thread that finds no room keeps no staging page while it waits.
  FOREBAY_DEVICE bool try_send_staged(typename queues_type::pair_type const& queue, io_command& io,
                                      page_command const& command) const {
    // Looks first, so that a page is seldom copied in vain.
    if (!queue.has_room()) return false;
    staging_pages<M> const staging(s_->staging);
    std::uint32_t const slot = staging.try_take(command.frame);
    if (slot == staging.none) return false;
    io.buffer = staging.buffer(slot, io.bytes);
    if (command.opcode == nvme::io_opcode::write) {
      staging.copy_out(together<M>(M::converged(), 0), command.frame, slot);
    }
    if (queue.try_submit(io, s_->queues->prp_pages, command.target)) return true;
    staging.give(slot);
    return false;
  }
  /// Whether there was anything to deliver. If a service consumes the completions, it delivers nothing.
  FOREBAY_COLD static bool help_for(cache_state* state, std::uint32_t pair) {
    if constexpr (queue_rules_type::waiters_help) {
      return from(state).queues().help(pair);
    } else {
      return false;
    }
  }

  // Completion
  // ------------------------------------------------------------------------------------------------------------------

  /// Waits until the frame is not being read (`until::read`), or neither read nor written (`until::idle`); helps
  /// meanwhile. At the deadline it asks for recovery and returns false.
  FOREBAY_DEVICE bool settle(std::uint32_t frame, until what, std::uint64_t deadline_ns) const {
    return simt::out_of_line(&settle_for)(s_, frame, what, deadline_ns);
  }
  FOREBAY_COLD static bool settle_for(cache_state* state, std::uint32_t frame, until what, std::uint64_t deadline_ns) {
    return from(state).settle_here(frame, what, deadline_ns);
  }
  FOREBAY_DEVICE bool settle_here(std::uint32_t frame, until what, std::uint64_t deadline_ns) const {
    auto const settled = [&] { return is_settled(frame, what); };
    [[maybe_unused]] auto const noted =
        trace().waits_for(what == until::read ? wait_kind::page_read : wait_kind::page_settled, frame);
    bool const done = M::wait_until(
        [&] {
          if (settled()) return true;
          std::uint32_t const pair = pair_of_command(frame);
          if ((pair & cache_core::note_is_status) != 0) return settled();
          std::uint32_t late_helps = 0;
          do {
            if (!simt::out_of_line(&help_for)(s_, pair)) break;
          } while (!settled() && (M::clock_ns() < deadline_ns || ++late_helps != simt::late_helps_max));
          return settled();
        },
        deadline_ns);
    if (!done) ask_for_recovery_of(frame);
    return done;
  }
  FOREBAY_DEVICE bool is_settled(std::uint32_t frame, until what) const {
    // Acquire pairs with the release of the completion.
    page_word const seen{word(frame).load(simt::order::acquire)};
    return seen.state() != page_state::busy && (what == until::read || !seen.is_writing());
  }
  FOREBAY_DEVICE std::uint32_t pair_of_command(std::uint32_t frame) const {
    // Relaxed: where to help.
    return simt::atomic<M>(s_->notes[frame]).load(simt::order::relaxed);
  }
  FOREBAY_DEVICE void ask_for_recovery_of(std::uint32_t frame) const {
    std::uint32_t const pair = pair_of_command(frame);
    if ((pair & cache_core::note_is_status) == 0) simt::out_of_line (&ask_for_recovery)(s_, pair, frame);
  }

  /// Asks for recovery of the commands of `frame`; with `none`, of all commands.
  FOREBAY_COLD static void ask_for_recovery(cache_state* state, std::uint32_t pair, std::uint32_t frame) {
    auto const q = from(state).queues();
    if (frame == none) return q.ask_for_recovery(pair);
    q.ask_for_recovery(pair, targets_type::fill(frame));
    q.ask_for_recovery(pair, targets_type::write_back(frame));
  }
  /// What the last command on the frame failed with; success if it did not fail.
  FOREBAY_DEVICE status failure_of(std::uint32_t frame) const {
    // Relaxed: settle() or a pin acquired it.
    std::uint32_t const note = simt::atomic<M>(s_->notes[frame]).load(simt::order::relaxed);
    return (note & cache_core::note_is_status) != 0 ? status::from_bits(note & ~cache_core::note_is_status) : status();
  }

  // Write-backs
  // ------------------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE std::uint64_t page_in(std::uint32_t frame, page_word seen) const {
    // Outside the sets: the frame holds a page, and keeps it while it is being written.
    return frame < first_outside() ? mapping_.page_of({frame / cache_ways, seen.tag()}) : page_outside(frame);
  }

  /// If this returns true, the caller must submit the write.
  FOREBAY_DEVICE bool begin_write_back(std::uint32_t frame, page_word seen) const {
    // Acquire pairs with the release of the writers' unpins: the command reads what they wrote.
    return word(frame).compare_exchange(seen.bits, rules::written_back(seen).bits, simt::order::acquire);
  }
  /// With deadline 0 it does not wait. If the command could not be sent, the page is dirty as before.
  FOREBAY_DEVICE status submit_write_back(std::uint32_t frame, page_word seen, std::uint64_t deadline_ns) const {
    status const sent =
        submit(nvme::io_opcode::write, page_in(frame, seen), frame, targets_type::write_back(frame), deadline_ns);
    if (sent.ok()) {
      count(&cache_counters::write_backs);
    } else {
      // Sets dirty before it clears writing: a frame with neither bit would be clean. Relaxed, then release, which
      // pairs with the acquire of the threads that wait for the write-back.
      word(frame).fetch_or(page_word::dirty, simt::order::relaxed);
      word(frame).fetch_and(~page_word::writing, simt::order::release);
    }
    return sent;
  }

  FOREBAY_DEVICE std::uint64_t failed_write_backs() const {
    // Relaxed: the caller has acquired the word, and the word is released after the count has grown.
    return simt::atomic<M>(s_->failed_write_backs).load(simt::order::relaxed);
  }

  /// Writes the page in `frame` back if it was written, and waits until that is done. Then every write to it that came
  /// before the call is on the drive, though perhaps not durable.
  FOREBAY_DEVICE status clean(std::uint32_t frame, std::uint64_t deadline_ns) const {
    bool tried = false;
    for (std::uint64_t failed_before = 0;;) {
      // Acquire pairs with the release of the writers' unpins: their writes came before; and with that of a failed
      // write-back.
      page_word const seen{word(frame).load(simt::order::acquire)};
      if (seen.state() != page_state::valid) return {};
      if (seen.is_writing()) {
        if (!settle(frame, until::idle, deadline_ns)) return fault::timed_out;
        continue;
      }
      if (!seen.is_dirty()) return {};
      if (tried) {
        // If no write-back has failed since, the page was written again after this one.
        if (failed_write_backs() == failed_before) return {};
        status const failure = failure_of(frame);
        if (!failure.ok()) return failure;
        // The outcome is unknown: this write-back may have failed, and another one may have begun since. So it tries
        // again.
      }
      failed_before = failed_write_backs();
      if (!begin_write_back(frame, seen)) continue;
      tried = true;
      status const sent = submit_write_back(frame, seen, deadline_ns);
      if (!sent.ok()) return sent;
    }
  }

  /// Begins to write back the page in a frame, if it was written. Never waits, so it may not begin; clean() does the
  /// rest.
  FOREBAY_DEVICE void start_cleaning(std::uint32_t frame) const {
    page_word const seen = look(frame);
    if (seen.state() != page_state::valid || !seen.is_dirty() || seen.is_writing()) return;
    if (begin_write_back(frame, seen)) (void)submit_write_back(frame, seen, 0);
  }

  static constexpr std::uint64_t no_page = outside_frame::no_page;
  /// The page in a frame that has to be written back, or is being written back; `no_page` if there is none.
  FOREBAY_DEVICE std::uint64_t page_to_clean(std::uint32_t frame) const {
    page_word const seen = look(frame);
    bool const unclean = seen.state() == page_state::valid && (seen.is_dirty() || seen.is_writing());
    return unclean ? page_in(frame, seen) : no_page;
  }
};

}  // namespace forebay
