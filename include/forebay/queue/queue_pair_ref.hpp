// SPDX-License-Identifier: Apache-2.0
//! \file
//! The device side of one NVMe queue pair: any number of threads submit, any of them consumes completions for all.
//!
//! docs/internals/queue.md tells how the invariants Q1 to Q8 follow; each memory order below names what it pairs with.
#pragma once

#include <cstdint>

#include "forebay/nvme/command.hpp"
#include "forebay/queue/buffer_ref.hpp"
#include "forebay/queue/completion_record.hpp"
#include "forebay/queue/queue_pair_state.hpp"
#include "forebay/queue/queue_rules.hpp"
#include "forebay/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// One read, write or flush that fits one NVMe command.
struct io_command {
  nvme::io_opcode opcode = nvme::io_opcode::flush;
  std::uint32_t nsid = 1;
  std::uint64_t slba = 0;
  std::uint32_t blocks = 0;  ///< 0 where the command moves no data
  std::uint64_t bytes = 0;   ///< that `buffer` must hold
  buffer_ref buffer;
};

/// Trivially copyable; thread-safe; no function waits. `Targets`: what its commands complete to
/// (completion_record.hpp).
template <class M, class Rules = queue_rules, class Targets = record_pool<M>>
class queue_pair_ref {
 public:
  queue_pair_ref() = default;
  FOREBAY_DEVICE explicit queue_pair_ref(queue_pair_state* state) : q_(state) {}

  /// Puts `command` on the queue and rings for it; its completion goes to `target`. False, with nothing done, if no
  /// slot, command id or PRP page was free, or the queue is dead.
  FOREBAY_DEVICE bool try_submit(io_command const& command, prp_page_pool const& prp_pages,
                                 std::uint32_t target) const {
    if (dead()) return false;
    std::uint32_t prp_page = prp_page_pool::none;
    if (command.bytes != 0 && needs_prp_list(command.buffer, command.bytes, prp_pages.page_bytes)) {
      prp_page = prp_pages.free.template try_take<M>(M::thread_rank() * 7u);
      if (prp_page == prp_page_pool::none) return false;
    }
    std::uint32_t const owner = (target + 1) | (prp_page != prp_page_pool::none ? command_slot::has_prp_page : 0);
    std::uint32_t const id = try_reserve(owner);
    if (id == no_id) {
      if (prp_page != prp_page_pool::none) prp_pages.free.template give<M>(prp_page);
      return false;
    }
    // From here to publish() nothing can fail or wait (Q4).
    if (prp_page != prp_page_pool::none) M::st(&q_->commands[id].prp_page, prp_page);
    // Acquire and release: credits and tickets are separate words, so the thread with ticket t may hold a credit given
    // later than the one for slot t. Each ticket pairs with the one before it, and the owners of the first t + 1
    // tickets together have acquired the first t + 1 credits.
    std::uint64_t const ticket = simt::atomic<M>(q_->sq_tail).fetch_add(1, simt::order::acq_rel);
    std::uint32_t const slot = q_->sq_size.slot(ticket);
    std::uint32_t const wire_id = Rules::command_id(id, slot);

    if constexpr (!Rules::entry_before_publish) publish(ticket, slot);
    write_entry(slot, wire_id, command, prp_pages, prp_page);
    // Release pairs with the acquire in finish(), which reads prp_page; where there is none, the fence in publish() is
    // enough: finish() must find the owner of every command that the controller has seen.
    simt::atomic<M>(q_->commands[id].owner)
        .store(owner, prp_page != prp_page_pool::none ? simt::order::release : simt::order::relaxed);
    if constexpr (Rules::entry_before_publish) publish(ticket, slot);
    ring();
    return true;
  }

  /// Consumes what the controller has completed and delivers it to its targets. False if there was nothing, or another
  /// thread is at it.
  FOREBAY_DEVICE bool try_poll(prp_page_pool const& prp_pages, Targets const& targets, std::uint32_t looks = 1) const {
    // One lane consumes for all that are here: were each to try, a warp would run its lanes one after the other, each
    // through the same round trips.
    if (!M::elect(reinterpret_cast<std::uint64_t>(q_))) return false;
    auto flag = simt::atomic<M>(q_->poll_flag);
    // Relaxed: a hint that spares the waiting threads the exchange.
    if (flag.load(simt::order::relaxed) != 0) return false;
    // Acquire pairs with the release below: the previous holder's cq_head and sq_head.
    if (flag.exchange(1, simt::order::acquire) != 0) return false;
    // Read before the ring: a queue is declared dead after its last completion was posted.
    bool const cancels = dead();
    bool delivered = consume(prp_pages, targets, looks);
    if (cancels) {
      while (consume(prp_pages, targets, 1)) {
      }
      if (cancel_all(prp_pages, targets)) delivered = true;
    }
    // Release pairs with the acquire above.
    flag.store(0, simt::order::release);
    return delivered;
  }

  FOREBAY_DEVICE bool dead() const {
    // Relaxed, because nearly every look finds a living queue.
    if (simt::atomic<M, simt::scope::system>(q_->dead).load(simt::order::relaxed) == 0) return false;
    // Acquire pairs with the host's release after the controller let go of the queue.
    M::fence(simt::scope::system, simt::order::acquire);
    return true;
  }

  /// Command ids that are in flight for `target`, in turn: the first at or after `from`, or `slot_pool::none`.
  /// Advisory: the command may complete at any moment.
  FOREBAY_DEVICE std::uint32_t find_command(std::uint32_t target, std::uint32_t from) const {
    for (std::uint32_t id = from; id < q_->command_ring.entries(); ++id) {
      // Relaxed: nothing is read on the strength of it.
      std::uint32_t const owner = simt::atomic<M>(q_->commands[id].owner).load(simt::order::relaxed);
      if ((owner & ~command_slot::has_prp_page) == target + 1) return id;
    }
    return slot_pool::none;
  }

  /// Whether every completion has been consumed. Advisory while others submit.
  FOREBAY_DEVICE bool idle() const {
    // Acquire pairs with the release in give_credit(): what the last completions delivered is visible.
    return simt::atomic<M>(q_->free_command_count).load(simt::order::acquire) ==
           static_cast<std::int32_t>(q_->command_ring.entries());
  }

  FOREBAY_DEVICE std::uint32_t cq_entries() const { return q_->cq_size.entries(); }

 private:
  struct entry_words {
    simt::vec16 word[4];
  };
  static_assert(sizeof(entry_words) == sizeof(nvme::submission_entry));

  /// Completions looked at together: their loads are independent, so a GPU that polls host memory pays one round trip
  /// for all.
  static constexpr std::uint32_t window = 8;
  static constexpr std::uint32_t no_id = ~0u;

  FOREBAY_DEVICE static void give_credit(std::int32_t& credits, std::uint32_t count) {
    // Release pairs with the acquire in try_reserve(): the slots and ids behind the credits are free.
    if (count != 0) simt::atomic<M>(credits).fetch_add(static_cast<std::int32_t>(count), simt::order::release);
  }

  /// A credit for a slot, and an id that no command in flight has, now owned by `owner`; `no_id`, with nothing taken,
  /// if either was not to be had. Every access is relaxed and one fence acquires for all, so that a GPU has those that
  /// do not depend on each other under way together.
  FOREBAY_DEVICE std::uint32_t try_reserve(std::uint32_t owner) const {
    auto slots = simt::atomic<M>(q_->free_slots);
    auto commands = simt::atomic<M>(q_->free_command_count);
    // Without this look, threads that find no credit would hide it from each other by taking and giving it back.
    std::int32_t const slots_seen = slots.load(simt::order::relaxed);
    std::int32_t const commands_seen = commands.load(simt::order::relaxed);
    if (slots_seen <= 0 || commands_seen <= 0) return no_id;
    std::int32_t const slots_before = slots.fetch_sub(1, simt::order::relaxed);
    std::int32_t const commands_before = commands.fetch_sub(1, simt::order::relaxed);
    // Only where to look first: commands complete roughly in order, so the id taken longest ago is likely free.
    std::uint64_t const hint = simt::atomic<M>(q_->next_command).fetch_add(1, simt::order::relaxed);
    std::uint32_t const id = slots_before > 0 && commands_before > 0 ? try_take_command_id(hint, owner) : no_id;
    if (id == no_id) {
      // They return what was never used; the release sequence of give_credit() goes on through them.
      slots.fetch_add(1, simt::order::relaxed);
      commands.fetch_add(1, simt::order::relaxed);
      return no_id;
    }
    // Acquire pairs with the releases in give_credit() and finish(): the slot was consumed, the id's prp_page was read.
    M::fence(simt::scope::device, simt::order::acquire);
    return id;
  }

  /// Requires a command credit, which says that an id is free; but others who look may change which: two passes, then
  /// it is somebody else's turn.
  FOREBAY_DEVICE std::uint32_t try_take_command_id(std::uint64_t hint, std::uint32_t owner) const {
    std::uint32_t const ids = q_->command_ring.entries();
    std::uint32_t id = q_->command_ring.slot(hint);
    for (std::uint32_t tries = 0; tries < 2 * ids; ++tries) {
      std::uint32_t free = 0;
      // Relaxed: try_reserve() fences.
      if (simt::atomic<M>(q_->commands[id].owner)
              .compare_exchange(free, owner | command_slot::reserved, simt::order::relaxed)) {
        return id;
      }
      id = id + 1 < ids ? id + 1 : 0;
    }
    return no_id;
  }

  FOREBAY_DEVICE void write_entry(std::uint32_t slot, std::uint32_t id, io_command const& command,
                                  prp_page_pool const& prp_pages, std::uint32_t prp_page) const {
    nvme::submission_entry entry = nvme::make_io_command(command.opcode, static_cast<std::uint16_t>(id), command.nsid,
                                                         command.slba, command.blocks != 0 ? command.blocks : 1);
    if (command.bytes != 0) {
      prp_pair const prps = build_prps<M>(command.buffer, command.bytes, prp_pages, prp_page);
      entry.prp1 = prps.prp1;
      entry.prp2 = prps.prp2;
    }
    auto const words = __builtin_bit_cast(entry_words, entry);
    auto* to = reinterpret_cast<simt::vec16*>(&q_->sq[slot]);
    for (std::uint32_t i = 0; i < 4; ++i) M::st(to + i, words.word[i]);
  }

  FOREBAY_DEVICE std::uint32_t publish_tag(std::uint64_t ticket) const {
    return static_cast<std::uint32_t>(q_->sq_size.lap(ticket)) + 1;
  }

  FOREBAY_DEVICE void publish(std::uint64_t ticket, std::uint32_t slot) const {
    // Release pairs with the acquire in ring(): whoever rings for the entry sees it.
    if constexpr (Rules::publish == simt::order::release) M::fence(simt::scope::device, simt::order::release);
    // Relaxed: after the fence.
    simt::atomic<M>(q_->published[slot]).store(publish_tag(ticket), simt::order::relaxed);
  }

  /// Makes sure that every entry published before the call is rung for, by this thread or by one that is at it. Nobody
  /// waits: who finds a ringer leaves it a request, and the ringer leaves only when it has answered all.
  FOREBAY_DEVICE void ring() const {
    // One lane asks for all whose entries are published by now.
    if (!M::elect(reinterpret_cast<std::uint64_t>(q_))) return;
    auto requests = simt::atomic<M>(q_->doorbell_requests);
    // Acquire pairs with the previous ringer's release (`rung`); release pairs with the acquire of a ringer that
    // answers.
    if (requests.fetch_add(1, simt::order::acq_rel) != 0) return;
    std::uint32_t answered = 1;
    for (;;) {
      std::uint64_t const rung = M::ld(&q_->rung);
      std::uint64_t const tail = first_unpublished(rung);
      if (tail != rung) {
        M::st(&q_->rung, tail);
        // Acquire pairs with the release in publish(). Release at system scope pairs with the controller's read of the
        // doorbell: all entries up to tail are visible (Q3).
        M::fence(simt::scope::system, simt::order::acq_rel);
        M::st_mmio(q_->sq_doorbell, q_->sq_size.slot(tail));
      }
      // Acquire pairs with the release of requests that came meanwhile; release hands `rung` to the next ringer.
      std::uint32_t const before = requests.fetch_sub(answered, simt::order::acq_rel);
      if (before == answered) return;
      answered = before - answered;
    }
  }

  /// The first ticket from `tail` on whose entry is not published yet.
  FOREBAY_DEVICE std::uint64_t first_unpublished(std::uint64_t tail) const {
    for (;;) {
      bool published[window];
      for (std::uint32_t i = 0; i < window; ++i) {
        // Relaxed: the fence before the doorbell acquires.
        published[i] = simt::atomic<M>(q_->published[q_->sq_size.slot(tail + i)]).load(simt::order::relaxed) ==
                       publish_tag(tail + i);
      }
      for (std::uint32_t i = 0; i < window; ++i) {
        if (!published[i]) return tail + i;
      }
      tail += window;
    }
  }

  FOREBAY_DEVICE bool is_posted(std::uint64_t head, std::uint32_t& dw3) const {
    nvme::completion_entry& entry = q_->cq[q_->cq_size.slot(head)];
    // Relaxed: look() fences once for all that it found. Pairs with the controller's release of dw3.
    dw3 = simt::atomic<M, simt::scope::system>(entry.dw3).load(simt::order::relaxed);
    return (dw3 >> 16 & 1) == Rules::phase(q_->cq_size.lap(head));
  }

  /// Requires the poll flag. Delivers first and tells the controller later, when there is nothing to deliver or a
  /// quarter of the ring is owed: whoever polls is waiting for a delivery.
  FOREBAY_DEVICE bool consume(prp_page_pool const& prp_pages, Targets const& targets, std::uint32_t looks) const {
    std::uint64_t const first = M::ld(&q_->cq_head);
    std::uint64_t const reported = M::ld(&q_->cq_reported);
    // A queue with one completion at a time is looked at one by one, so that each look is one read of host memory.
    std::uint32_t const width = M::ld(&q_->poll_width);
    std::uint64_t head = first;
    std::uint32_t ready;
    do {
      std::uint32_t dw3[window];
      ready = width == 1 ? look_at_one(head, dw3[0], looks) : look(head, width, dw3);
      if (ready != 0) {
        for (std::uint32_t i = 0; i < Rules::delivered(ready); ++i) deliver(dw3[i], prp_pages, targets);
        head += ready;
      }
      // One lap at most: a thread that waits for its own request does not serve the others for ever.
    } while (ready == width && width != 1 && head - first < q_->cq_size.entries());

    if (head != first) M::st(&q_->cq_head, head);
    std::uint32_t const next_width = head != first ? window : 1;
    if (next_width != M::ld(&q_->poll_width)) M::st(&q_->poll_width, next_width);
    if (head != reported && (head == first || head - reported >= (q_->cq_size.entries() + 3) / 4)) report(head);
    return head != first;
  }

  /// How many of the `width` entries from `head` on are posted without a gap, and what they say.
  FOREBAY_DEVICE std::uint32_t look(std::uint64_t head, std::uint32_t width, std::uint32_t (&dw3)[window]) const {
    // No entry twice: a second look could see what the first did not, and take it for an entry of the next lap.
    if (width > q_->cq_size.entries()) width = q_->cq_size.entries();
    bool posted[window];
    for (std::uint32_t i = 0; i < window; ++i) posted[i] = i < width && is_posted(head + i, dw3[i]);
    std::uint32_t ready = 0;
    while (ready < width && posted[ready]) ++ready;
    // Acquire pairs with the controller's release of each dw3: the data and dw2 of the entries are there.
    if (ready != 0) M::fence(simt::scope::system, simt::order::acquire);
    return ready;
  }

  /// The same for one entry, `looks` times.
  FOREBAY_DEVICE std::uint32_t look_at_one(std::uint64_t head, std::uint32_t& dw3, std::uint32_t looks) const {
    auto posted = simt::atomic<M, simt::scope::system>(q_->cq[q_->cq_size.slot(head)].dw3);
    std::uint32_t const phase = Rules::phase(q_->cq_size.lap(head));
    for (; looks != 0; --looks) {
      // Acquire pairs with the controller's release of dw3, as above.
      dw3 = posted.load(simt::order::acquire);
      if ((dw3 >> 16 & 1) == phase) return 1;
    }
    return 0;
  }

  /// Gives the controller the entries up to `head` back, and the submitters what their commands held.
  FOREBAY_DEVICE void report(std::uint64_t head) const {
    // SQ heads only grow, so the last entry's frees all slots that the others would.
    std::uint32_t const freed_slots = advance_sq_head(M::ld(&q_->cq[q_->cq_size.slot(head - 1)].dw2) & 0xffff);
    std::uint32_t const freed_commands = M::ld(&q_->finished_commands);
    M::st(&q_->finished_commands, 0u);
    M::st(&q_->cq_reported, head);
    // Release at system scope: our reads of the entries come before the controller's next writes of them (Q6).
    M::fence(simt::scope::system, simt::order::release);
    M::st_mmio(q_->cq_doorbell, q_->cq_size.slot(head));
    // After the doorbell, so that commands in flight never exceed the entries that the controller may fill (Q2).
    give_credit(q_->free_slots, freed_slots);
    give_credit(q_->free_command_count, freed_commands);
  }

  /// Returns how many slots the controller has let go of.
  FOREBAY_DEVICE std::uint32_t advance_sq_head(std::uint32_t sq_head_slot) const {
    std::uint64_t const head = M::ld(&q_->sq_head);
    std::uint32_t const entries = q_->sq_size.entries();
    std::uint32_t const at = q_->sq_size.slot(head);
    std::uint32_t const steps = sq_head_slot >= at ? sq_head_slot - at : sq_head_slot + entries - at;
    // Relaxed: a bound that only grows; what lies below it was published before the controller could consume it.
    if (sq_head_slot >= entries || steps > simt::atomic<M>(q_->sq_tail).load(simt::order::relaxed) - head) {
      count_protocol_error();
      return 0;
    }
    M::st(&q_->sq_head, head + steps);
    return steps;
  }

  FOREBAY_DEVICE void deliver(std::uint32_t dw3, prp_page_pool const& prp_pages, Targets const& targets) const {
    std::uint32_t const id = dw3 & 0xffff;
    if (id < q_->command_ring.entries() && finish(id, status::from_nvme(dw3 >> 17), prp_pages, targets)) {
      M::st(&q_->finished_commands, M::ld(&q_->finished_commands) + 1);
    } else {
      count_protocol_error();
    }
  }

  /// False if the command was not in flight.
  FOREBAY_DEVICE bool finish(std::uint32_t id, status result, prp_page_pool const& prp_pages,
                             Targets const& targets) const {
    auto owner = simt::atomic<M>(q_->commands[id].owner);
    // Acquire pairs with the release in try_submit() after prp_page was set.
    std::uint32_t const found = owner.load(simt::order::acquire);
    if (found == 0 || (found & command_slot::reserved) != 0) return false;
    if ((found & command_slot::has_prp_page) != 0) {
      prp_pages.free.template give<M>(M::ld(&q_->commands[id].prp_page));
    }
    // Release pairs with the acquire of whoever sees that the target is complete: the data is there.
    M::fence(simt::scope::device, simt::order::release);
    targets.complete((found & command_slot::target_mask) - 1, result, 1);
    // Relaxed: after the release fence. Pairs with the acquire in try_reserve(): prp_page was read.
    owner.store(0, simt::order::relaxed);
    return true;
  }

  /// Ends what is in flight on a dead queue; whether there was anything. Repeated at every poll, so that a submitter
  /// who had passed the dead check is cancelled too. The credits come back, so that the pair can be seen to be idle.
  FOREBAY_DEVICE bool cancel_all(prp_page_pool const& prp_pages, Targets const& targets) const {
    std::uint32_t cancelled = 0;
    for (std::uint32_t id = 0; id < q_->command_ring.entries(); ++id) {
      if (finish(id, fault::cancelled, prp_pages, targets)) ++cancelled;
    }
    give_credit(q_->free_command_count, cancelled);
    return cancelled != 0;
  }

  FOREBAY_DEVICE void count_protocol_error() const {
    // Relaxed: a statistic.
    simt::atomic<M>(q_->protocol_errors).fetch_add(1, simt::order::relaxed);
  }

  queue_pair_state* q_ = nullptr;
};

}  // namespace forebay
