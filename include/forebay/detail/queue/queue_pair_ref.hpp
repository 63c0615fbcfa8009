// SPDX-License-Identifier: Apache-2.0
//! \file
//! The device side of one NVMe queue pair: any number of threads submit, any of them consumes completions for all.
//!
//! docs/internals/queue.md says how the invariants Q1 to Q8 follow. The comment at each memory order says what it pairs
//! with.
#pragma once

#include <cstdint>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/completion_record.hpp"
#include "forebay/detail/queue/prp.hpp"
#include "forebay/detail/queue/queue_pair_state.hpp"
#include "forebay/detail/queue/queue_rules.hpp"
#include "forebay/detail/queue/ring_position.hpp"
#include "forebay/detail/queue/together.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// One request that fits one NVMe command.
struct io_command {
  nvme::io_opcode opcode = nvme::io_opcode::flush;
  std::uint32_t nsid = 1;
  std::uint64_t slba = 0;    ///< CDW10 and CDW11, which mean something else where the command names no blocks
  std::uint32_t blocks = 0;  ///< 0 where the command names none
  std::uint64_t bytes = 0;   ///< how many bytes `buffer` must hold
  buffer_ref buffer;
};

/// The fields of a submission entry, for a command that needs no PRP list.
struct command_words {
  std::uint32_t opcode_and_blocks = 0;  ///< blocks less one in the low half
  std::uint32_t nsid = 0;
  std::uint64_t slba = 0;
  prp_pair prps;

  FOREBAY_DEVICE command_words(io_command const& command, std::uint32_t page_bytes) : command_words(command) {
    if (command.bytes == 0) return;
    std::uint64_t const first = command.buffer.bus_address(0);
    std::uint64_t const named = page_bytes - (first & (page_bytes - 1));
    prps = {first, named < command.bytes ? command.buffer.bus_address(named) : 0};
  }
  FOREBAY_DEVICE command_words(io_command const& command, prp_pair const& data) : command_words(command) {
    prps = data;
  }
  FOREBAY_DEVICE bool is_flush() const {
    return opcode_and_blocks >> 16 == static_cast<std::uint32_t>(nvme::io_opcode::flush);
  }
  FOREBAY_DEVICE nvme::submission_entry entry(std::uint32_t id) const {
    nvme::submission_entry entry =
        nvme::make_io_command(static_cast<nvme::io_opcode>(opcode_and_blocks >> 16), static_cast<std::uint16_t>(id),
                              nsid, slba, (opcode_and_blocks & 0xffff) + 1);
    entry.prp1 = prps.prp1;
    entry.prp2 = prps.prp2;
    return entry;
  }

 private:
  FOREBAY_DEVICE explicit command_words(io_command const& command)
      : opcode_and_blocks(static_cast<std::uint32_t>(command.opcode) << 16 |
                          ((command.blocks != 0 ? command.blocks - 1 : 0) & 0xffff)),
        nsid(command.nsid),
        slba(command.slba) {}
};

/// Trivially copyable; thread-safe; no function waits. `Targets`: what its commands complete to
/// (completion_record.hpp).
template <class M, class Rules = queue_rules, class Targets = record_pool<M>>
class queue_pair_ref {
 public:
  queue_pair_ref() = default;
  FOREBAY_DEVICE explicit queue_pair_ref(queue_pair_state* state) : q_(state) {}

  /// Puts `command` on the queue and rings for it; its completion goes to `target`. False, with nothing done, if no
  /// slot, command id or PRP page was free, or the queue is dead. Lanes that come together share every step.
  FOREBAY_DEVICE bool try_submit(io_command const& command, prp_page_pool const& prp_pages,
                                 std::uint32_t target) const {
    std::uint32_t prp_page = prp_page_pool::none;
    if (command.bytes != 0 && needs_prp_list(command.buffer, command.bytes, prp_pages.page_bytes)) {
      prp_page = prp_pages.free.template try_take<M>(M::thread_rank() * 7u);
      if (prp_page == prp_page_pool::none) return false;
    }
    prp_pair prps;
    if (command.bytes != 0) prps = build_prps<M>(command.buffer, command.bytes, prp_pages, prp_page);
    if (try_submit(command_words(command, prps), prp_page, target)) return true;
    if (prp_page != prp_page_pool::none) prp_pages.free.template give<M>(prp_page);
    return false;
  }

  /// The same for a command whose list, if it has one, is in `prp_page`; if this fails, the page stays the caller's.
  FOREBAY_DEVICE bool try_submit(command_words const& command, std::uint32_t prp_page, std::uint32_t target) const {
    together<M> const here(M::converged(), key());
    // Read first, so that the value has arrived by the time that a place is reserved.
    std::uint64_t const now_ns = M::clock_ns();
    std::uint64_t first_word = 0;
    std::uint32_t granted = 0;
    if (here.leads()) granted = reserve(here.size(), first_word);
    here.sync();  // what the leader acquired, all lanes now have
    granted = here.from_leader(granted);
    std::uint32_t const served = here.ballot(here.rank() < granted);
    if (here.rank() >= granted) return false;
    // From here to publish() nothing can fail or wait (Q4).
    together<M> const group = here.subset(served);
    auto const first = ring_position::from_word(group.from_leader(first_word));
    std::uint32_t const sq_entries = q_->sq_entries;
    std::uint32_t const slot = first.after(group.rank(), sq_entries).slot;
    std::uint32_t const id = M::ld(&q_->free_ids[(first.count(sq_entries) + group.rank()) & q_->free_ids_mask]);
    if constexpr (!Rules::entry_before_publish) {
      if (group.leads()) publish(first.slot, granted);
    }
    write_entry(slot, command.entry(Rules::command_id(id, slot)));
    bool const has_page = prp_page != prp_page_pool::none;
    std::uint32_t const owner =
        (target + 1) | (has_page ? command_slot::has_prp_page : 0) | (command.is_flush() ? command_slot::is_flush : 0);
    if (has_page) M::st(&q_->lent_pages[id], prp_page);
    // Release pairs with the acquire in cancel_all(), which reads lent_pages, and what `Targets` noted of the command.
    // If there is neither, the fence in publish() is enough: the thread that delivers the completion must find the
    // owner of every command that the controller has seen.
    simt::atomic<M>(q_->commands[id].word)
        .store(command_slot::make(owner, now_ns),
               has_page || Targets::lands ? simt::order::release : simt::order::relaxed);
    group.sync();  // the entries and owners of all lanes are what the leader publishes
    if (group.leads()) {
      if constexpr (Rules::entry_before_publish) publish(first.slot, granted);
      ring();
    }
    return true;
  }

  /// Consumes what the controller has completed and delivers it to its targets. False if there was nothing, or if
  /// another thread is consuming. Lanes that come together look at one entry each, and deliver them together.
  FOREBAY_DEVICE bool try_poll(prp_page_pool const& prp_pages, Targets const& targets, std::uint32_t looks = 1) const {
    together<M> const group(M::converged(), key());
    std::uint64_t head_word = 0;
    bool cancels = false;
    bool const holds = (looks_itself || group.leads()) && try_hold(head_word, cancels);
    std::uint32_t const holders = group.ballot(holds);
    if (holders == 0) return false;
    std::uint32_t const holder = simt::team<M>::lowest(holders);
    group.sync();  // what the holder acquired, all lanes now have
    cancels = group.any(cancels);
    ring_position head = ring_position::from_word(group.from(head_word, holder));
    std::uint32_t freed = holds ? M::ld(&q_->freed) : 0;
    freed = group.from(freed, holder);
    std::uint32_t consumed = 0;
    for (;;) {
      std::uint32_t dw3 = 0;
      std::uint32_t const ready = look(group, head, dw3, looks);
      if (ready == 0) break;
      // Acquire pairs with the controller's release of each dw3: the data and dw2 of the entries are there. Release
      // pairs with the acquire of each thread that sees that a target is complete.
      M::fence(simt::scope::system, simt::order::acq_rel);
      freed += deliver(group, group.rank() < Rules::delivered(ready), dw3, freed, prp_pages, targets);
      head = head.after(ready, q_->cq_entries);
      consumed += ready;
      // One lap at most: a thread that waits for its own request must not serve others for ever. A single lane returns
      // after each entry, to look at its own request.
      bool const goes_on = group.size() != 1 && ready == group.size() && consumed < q_->cq_entries;
      if (!cancels && !goes_on) break;
    }
    bool delivered = consumed != 0;
    if (cancels) delivered = group.any(holds && cancel_all(freed, prp_pages, targets)) || delivered;
    // All lanes have read their entries, and have stored what the holder is about to publish.
    group.sync();
    if (holds) {
      if (consumed != 0) M::st(&q_->freed, freed);
      std::uint32_t const owed = head.count(q_->cq_entries) - M::ld(&q_->cq_reported);
      // Delivers first. It tells the controller later, when there is nothing to deliver or a quarter of the ring is
      // owed, because a thread that polls is waiting for a delivery.
      if (owed != 0 && (consumed == 0 || owed >= (q_->cq_entries + 3) / 4)) report(head, freed);
      // Release pairs with the acquire in try_hold().
      simt::atomic<M>(q_->cq_head).store(head.word(), simt::order::release);
    }
    return delivered;
  }

  /// Makes everything visible to the calling thread that the consumers of completions did until now. False if another
  /// thread is consuming.
  FOREBAY_DEVICE bool try_catch_up() const {
    std::uint64_t head_word = 0;
    bool cancels = false;
    if (!try_hold(head_word, cancels)) return false;
    // Release pairs with the acquire in try_hold().
    simt::atomic<M>(q_->cq_head).store(head_word, simt::order::release);
    return true;
  }

  FOREBAY_DEVICE bool dead() const {
    if (!looks_dead()) return false;
    // Acquire pairs with the host's release after the controller released the queue.
    M::fence(simt::scope::system, simt::order::acquire);
    return true;
  }

  /// Whether a submission would find a slot and an id now.
  FOREBAY_DEVICE bool has_room() const {
    // Relaxed, both: only a look.
    auto const tail = ring_position::from_word(simt::atomic<M>(q_->sq_tail).load(simt::order::relaxed));
    std::uint32_t const limit = simt::atomic<M>(q_->limit).load(simt::order::relaxed);
    return static_cast<std::int32_t>(limit - tail.count(q_->sq_entries)) > 0 && !looks_dead();
  }

  /// The first command id at or after `from` that is in flight for `target`, or `slot_pool::none`; repeated calls go
  /// through them in turn. Advisory: the command may complete at any moment.
  FOREBAY_DEVICE std::uint32_t find_command(std::uint32_t target, std::uint32_t from) const {
    for (std::uint32_t id = from; id < q_->ids; ++id) {
      std::uint64_t const word = command_word(id);
      if (word != 0 && command_slot::target_of(word) == target) return id;
    }
    return slot_pool::none;
  }
  /// The word of a command id (`command_slot`): it does not change while the command is in flight.
  FOREBAY_DEVICE std::uint64_t command_word(std::uint32_t id) const {
    // Relaxed: no other access depends on its value.
    return simt::atomic<M>(q_->commands[id].word).load(simt::order::relaxed);
  }
  FOREBAY_DEVICE std::uint32_t ids() const { return q_->ids; }

  /// Counts commands that ended with success, modulo 2^32, as far as reported: while it grows, the drive is alive. It
  /// may fall for a moment while a command fails.
  FOREBAY_DEVICE std::uint32_t progress() const {
    // Relaxed, both: only a look.
    return simt::atomic<M>(q_->completed).load(simt::order::relaxed) -
           simt::atomic<M>(q_->failed).load(simt::order::relaxed);
  }

  /// Whether every completion has been consumed and reported. Advisory while others submit.
  FOREBAY_DEVICE bool idle() const {
    // Acquire pairs with the release in report(): what the last completions delivered is visible.
    std::uint32_t const completed = simt::atomic<M>(q_->completed).load(simt::order::acquire);
    // Relaxed: only a look.
    auto const tail = ring_position::from_word(simt::atomic<M>(q_->sq_tail).load(simt::order::relaxed));
    return completed == tail.count(q_->sq_entries);
  }

  FOREBAY_DEVICE std::uint32_t cq_entries() const { return q_->cq_entries; }

 private:
  struct entry_words {
    simt::vec16 word[4];
  };
  static_assert(sizeof(entry_words) == sizeof(nvme::submission_entry));

  /// If a lane sleeps until something that it has read changes, it must do the look itself: no other lane can look for
  /// it.
  static constexpr bool looks_itself = !M::asks_again_and_again;

  /// A number that all lanes at this pair have in common, and that differs from pair to pair.
  FOREBAY_DEVICE std::uint32_t key() const {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(q_) / alignof(queue_pair_state));
  }

  FOREBAY_DEVICE bool looks_dead() const {
    // Relaxed, because nearly every look finds a living queue.
    return simt::atomic<M, simt::scope::system>(q_->dead).load(simt::order::relaxed) != 0;
  }

  /// Takes at most `wanted` places from the tail of the queue; returns how many, and in `first_word` the first of them.
  FOREBAY_DEVICE std::uint32_t reserve(std::uint32_t wanted, std::uint64_t& first_word) const {
    auto tail = simt::atomic<M>(q_->sq_tail);
    std::uint32_t const sq_entries = q_->sq_entries;
    // Relaxed: the compare-exchange below decides. Two submitters that take neighbouring places exchange no data.
    std::uint64_t seen = tail.load(simt::order::relaxed);
    bool const is_dead = looks_dead();
    // Acquire pairs with the release in report(): slots below the limit were consumed, and ids below it are in
    // free_ids. The limit only grows, so what is below an old value of it is still free.
    std::uint32_t const limit = simt::atomic<M>(q_->limit).load(simt::order::acquire);
    if (is_dead) return 0;
    for (;;) {
      auto const at = ring_position::from_word(seen);
      auto const room = static_cast<std::int32_t>(limit - at.count(sq_entries));
      if (room <= 0) return 0;
      std::uint32_t const taken = static_cast<std::uint32_t>(room) < wanted ? static_cast<std::uint32_t>(room) : wanted;
      first_word = seen;
      // Each failure means that the tail has moved towards the limit, so there are few.
      if (tail.compare_exchange(seen, at.after(taken, sq_entries).word(), simt::order::relaxed)) return taken;
    }
  }

  FOREBAY_DEVICE void write_entry(std::uint32_t slot, nvme::submission_entry const& entry) const {
    auto const words = __builtin_bit_cast(entry_words, entry);
    auto* to = reinterpret_cast<simt::vec16*>(&q_->sq[slot]);
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < 4; ++i) M::st(to + i, words.word[i]);
  }

  /// Says that the `count` entries from `slot` on are complete.
  FOREBAY_DEVICE void publish(std::uint32_t slot, std::uint32_t count) const {
    // Release pairs with the acquire in take_published(): the thread that rings for the entries sees them.
    if constexpr (Rules::publish == simt::order::release) M::fence(simt::scope::device, simt::order::release);
    // Relaxed: after the fence.
    simt::atomic<M>(q_->published[slot]).store(count, simt::order::relaxed);
  }

  /// Makes sure that every entry published before the call is rung for, by this thread or by one that is ringing. No
  /// thread waits: one that finds a ringer leaves it a request, and the ringer leaves only when it has answered all
  /// requests.
  FOREBAY_DEVICE void ring() const {
    auto doorbell = simt::atomic<M>(q_->doorbell);
    // Acquire pairs with the previous ringer's release; release pairs with the acquire of a ringer that answers.
    std::uint64_t const found = doorbell.fetch_add(1, simt::order::acq_rel);
    if (static_cast<std::uint32_t>(found) != 0) return;
    auto rung = static_cast<std::uint32_t>(found >> 32);
    std::uint32_t answered = 1;
    for (;;) {
      std::uint32_t const tail = take_published(rung);
      if (tail != rung) {
        // Release at system scope pairs with the controller's read of the doorbell: all entries up to tail, which
        // take_published() acquired, are visible (Q3).
        M::fence(simt::scope::system, simt::order::release);
        M::st_mmio(q_->sq_doorbell, tail);
      }
      // Acquire pairs with the release of requests that came meanwhile; release hands the slot to the next ringer.
      std::uint64_t const before =
          doorbell.fetch_add((std::uint64_t{tail - rung} << 32) - answered, simt::order::acq_rel);
      answered = static_cast<std::uint32_t>(before) - answered;
      if (answered == 0) return;
      rung = tail;
    }
  }

  /// The first slot from `slot` on whose entry is not published. Clears the marks of those before it: the caller must
  /// ring for them.
  FOREBAY_DEVICE std::uint32_t take_published(std::uint32_t slot) const {
    for (;;) {
      auto published = simt::atomic<M>(q_->published[slot]);
      // Acquire pairs with the release in publish(): the entries are there.
      std::uint32_t const count = published.load(simt::order::acquire);
      if (count == 0) return slot;
      // Relaxed: the next thread that publishes here knows already that the controller has fetched the entry.
      published.store(0, simt::order::relaxed);
      slot = ring_position{slot, 0}.after(count, q_->sq_entries).slot;
    }
  }

  /// Whether the calling thread may consume. If so, `head_word` says from which entry on, and `cancels` whether the
  /// queue is dead. The latter is read before the ring, and a queue is declared dead after its last completion was
  /// posted.
  FOREBAY_DEVICE bool try_hold(std::uint64_t& head_word, bool& cancels) const {
    auto head = simt::atomic<M>(q_->cq_head);
    // Relaxed: a hint that spares the waiting threads the exchange.
    std::uint64_t const seen = head.load(simt::order::relaxed);
    bool const is_dead = looks_dead();
    if ((seen & queue_pair_state::taken) != 0) return false;
    // Acquire pairs with the release at the end of try_poll(): what the previous holder left here.
    head_word = head.fetch_or(queue_pair_state::taken, simt::order::acquire);
    if ((head_word & queue_pair_state::taken) != 0) return false;
    cancels = is_dead && dead();
    return true;
  }

  FOREBAY_DEVICE bool is_posted(ring_position at, std::uint32_t& dw3) const {
    // Relaxed: try_poll() executes one fence for all entries found. It pairs with the controller's release of dw3.
    dw3 = simt::atomic<M, simt::scope::system>(q_->cq[at.slot].dw3).load(simt::order::relaxed);
    return (dw3 >> 16 & 1) == Rules::phase(at.lap);
  }

  /// How many entries from `head` on are posted without a gap, as far as the group looks: each lane looks at one entry.
  FOREBAY_DEVICE std::uint32_t look(together<M> const& group, ring_position head, std::uint32_t& dw3,
                                    std::uint32_t looks) const {
    std::uint32_t const entries = q_->cq_entries;
    if (group.size() == 1) {
      // Each look at a ring in host memory takes as long as everything else together.
      for (; looks != 0; --looks) {
        if (is_posted(head, dw3)) return 1;
      }
      return 0;
    }
    std::uint32_t unused = 0;
    if (looks_itself) (void)is_posted(head, unused);
    // Looks at no entry twice: the second look could see an entry that the first did not, and take it for one of the
    // next lap.
    return group.leading(group.rank() < entries && is_posted(head.after(group.rank(), entries), dw3));
  }

  /// Delivers the entries that the lanes found, each that is `mine` to its target. The ids of those commands are then
  /// free. `freed`: the count of commands freed before. Returns how many of the commands were in flight.
  FOREBAY_DEVICE std::uint32_t deliver(together<M> const& group, bool mine, std::uint32_t dw3, std::uint32_t freed,
                                       prp_page_pool const& prp_pages, Targets const& targets) const {
    std::uint32_t const id = dw3 & 0xffff;
    // Relaxed: the controller has seen the command, so its submitter's store came before. The next store to this word
    // comes only when the limit has gone beyond this id.
    std::uint32_t const owner =
        mine && id < q_->ids
            ? command_slot::owner_of(simt::atomic<M>(q_->commands[id].word).exchange(0, simt::order::relaxed))
            : 0;
    std::uint32_t const done = group.ballot(owner != 0);
    std::uint32_t const field = dw3 >> 17;
    if constexpr (Targets::lands) targets.land(group, owner != 0 && field == 0, command_slot::target_of(owner));
    if (owner != 0) {
      finish(id, owner, field == 0 ? status() : status::from_nvme(field), prp_pages, targets);
      M::st(&q_->free_ids[(freed + q_->ids + group.among(done)) & q_->free_ids_mask], static_cast<std::uint16_t>(id));
    } else if (mine) {
      count_protocol_error();
    }
    return simt::team<M>::ones(done);
  }

  /// Gives back what a command held. The caller has executed a release fence.
  FOREBAY_DEVICE void finish(std::uint32_t id, std::uint32_t owner, status result, prp_page_pool const& prp_pages,
                             Targets const& targets) const {
    if ((owner & command_slot::has_prp_page) != 0) {
      // Acquire pairs with the release of the word in try_submit(), after lent_pages was set and the list written.
      M::fence(simt::scope::device, simt::order::acquire);
      prp_pages.free.template give<M>(M::ld(&q_->lent_pages[id]));
    }
    // Relaxed: a count.
    if (!result.ok()) simt::atomic<M>(q_->failed).fetch_add(1, simt::order::relaxed);
    targets.complete(command_slot::target_of(owner), result, 1);
  }

  /// Gives the entries up to `head` back to the controller, and gives the submitters back what the commands held.
  FOREBAY_DEVICE void report(ring_position head, std::uint32_t freed) const {
    std::uint32_t const last = head.slot != 0 ? head.slot - 1 : q_->cq_entries - 1;
    // SQ heads only grow, so the head in the last entry frees all slots that the heads in the others would.
    std::uint32_t const sq_head = advance_sq_head(M::ld(&q_->cq[last].dw2) & 0xffff);
    M::st(&q_->cq_reported, head.count(q_->cq_entries));
    // Release at system scope: the lanes' reads of the entries come before the controller's next writes of them (Q6).
    M::fence(simt::scope::system, simt::order::release);
    M::st_mmio(q_->cq_doorbell, head.slot);
    std::uint32_t const slots = sq_head + q_->sq_entries - 1;
    std::uint32_t const ids = freed + q_->ids;
    // Release, after the doorbell, so that commands in flight never exceed the entries that the controller may fill
    // (Q2). Pairs with the acquire in reserve().
    simt::atomic<M>(q_->limit).store(static_cast<std::int32_t>(slots - ids) < 0 ? slots : ids, simt::order::release);
    // Release pairs with the acquire in idle().
    simt::atomic<M>(q_->completed).store(freed + M::ld(&q_->cancelled), simt::order::release);
  }

  /// Returns how many commands the controller has fetched.
  FOREBAY_DEVICE std::uint32_t advance_sq_head(std::uint32_t slot) const {
    std::uint32_t const head = M::ld(&q_->sq_head);
    std::uint32_t const at = M::ld(&q_->sq_head_slot);
    std::uint32_t const steps = slot >= at ? slot - at : slot + q_->sq_entries - at;
    // Relaxed: a bound that only grows; entries below it were published before the controller could consume them.
    auto const tail = ring_position::from_word(simt::atomic<M>(q_->sq_tail).load(simt::order::relaxed));
    if (slot >= q_->sq_entries || steps > tail.count(q_->sq_entries) - head) {
      count_protocol_error();
      return head;
    }
    M::st(&q_->sq_head, head + steps);
    M::st(&q_->sq_head_slot, slot);
    return head + steps;
  }

  /// Cancels what is in flight on a dead queue; returns whether there was anything. Every poll repeats this, so that it
  /// also cancels the command of a submitter that had passed the check for a dead queue before. The ids are not given
  /// back: such a submitter may just be reading its id.
  FOREBAY_DEVICE bool cancel_all(std::uint32_t freed, prp_page_pool const& prp_pages, Targets const& targets) const {
    std::uint32_t ended = 0;
    for (std::uint32_t id = 0; id < q_->ids; ++id) {
      // Release pairs with the acquire of a thread that waits for the word to change. Acquire pairs with the release in
      // try_submit() after lent_pages was set. This is an exchange because a load could go on returning an old value,
      // and nothing else tells of a submitter that came late.
      std::uint32_t const found =
          command_slot::owner_of(simt::atomic<M>(q_->commands[id].word).exchange(0, simt::order::acq_rel));
      if (found == 0) continue;
      // Release pairs with the acquire of each thread that sees that the target is complete.
      M::fence(simt::scope::device, simt::order::release);
      finish(id, found, fault::cancelled, prp_pages, targets);
      ++ended;
    }
    if (ended == 0) return false;
    std::uint32_t const cancelled = M::ld(&q_->cancelled) + ended;
    M::st(&q_->cancelled, cancelled);
    // Release pairs with the acquire in idle().
    simt::atomic<M>(q_->completed).store(freed + cancelled, simt::order::release);
    return true;
  }

  FOREBAY_DEVICE void count_protocol_error() const {
    // Relaxed: a statistic.
    simt::atomic<M>(q_->protocol_errors).fetch_add(1, simt::order::relaxed);
  }

  queue_pair_state* q_ = nullptr;
};

}  // namespace forebay
