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

/// Trivially copyable; thread-safe; no function waits.
template <class M, class Rules = queue_rules>
class queue_pair_ref {
 public:
  queue_pair_ref() = default;
  FOREBAY_DEVICE explicit queue_pair_ref(queue_pair_state* state) : q_(state) {}

  /// Puts `command` on the queue and rings for it; its completion goes to `record`. False, with nothing done, if no slot,
  /// command id or PRP page was free, or the queue is dead.
  FOREBAY_DEVICE bool try_submit(io_command const& command, prp_page_pool const& prp_pages,
                                 std::uint32_t record) const {
    if (dead()) return false;
    std::uint32_t prp_page = prp_page_pool::none;
    if (command.bytes != 0 && needs_prp_list(command.buffer, command.bytes, prp_pages.page_bytes)) {
      prp_page = prp_pages.free.template try_take<M>(M::thread_rank() * 7u);
      if (prp_page == prp_page_pool::none) return false;
    }
    std::uint32_t const id = try_take_command_id(record);
    if (id == no_id || !try_take_credit(q_->free_slots)) {
      if (id != no_id) give_command_id(id);
      if (prp_page != prp_page_pool::none) prp_pages.free.template give<M>(prp_page);
      return false;
    }
    // From here to publish() nothing can fail or wait (Q4).
    M::st(&q_->commands[id].prp_page, prp_page);
    // Acquire and release: credits and tickets are separate words, so the thread with ticket t may hold a credit given later
    // than the one for slot t. Each ticket pairs with the one before it, and the owners of the first t + 1 tickets together
    // have acquired the first t + 1 credits.
    std::uint64_t const ticket = simt::atomic<M>(q_->sq_tail).fetch_add(1, simt::order::acq_rel);
    std::uint32_t const slot = q_->sq_size.slot(ticket);
    std::uint32_t const wire_id = Rules::command_id(id, slot);

    if constexpr (!Rules::entry_before_publish) publish(ticket, slot);
    write_entry(slot, wire_id, command, prp_pages, prp_page);
    // Release pairs with the acquire in finish(): prp_page is that of this command.
    simt::atomic<M>(q_->commands[id].owner).store(record + 1, simt::order::release);
    if constexpr (Rules::entry_before_publish) publish(ticket, slot);
    ring();
    return true;
  }

  /// Consumes what the controller has completed and delivers it to its records. False if another thread is at it.
  FOREBAY_DEVICE bool try_poll(prp_page_pool const& prp_pages, record_pool<M> const& records) const {
    auto flag = simt::atomic<M>(q_->poll_flag);
    // Relaxed: a hint that spares the waiting threads the exchange.
    if (flag.load(simt::order::relaxed) != 0) return false;
    // Acquire pairs with the release below: the previous holder's cq_head and sq_head.
    if (flag.exchange(1, simt::order::acquire) != 0) return false;
    // Read before the ring: a queue is declared dead after its last completion was posted.
    bool const cancels = dead();
    consume(prp_pages, records);
    if (cancels) cancel_all(prp_pages, records);
    // Release pairs with the acquire above.
    flag.store(0, simt::order::release);
    return true;
  }

  FOREBAY_DEVICE bool dead() const {
    // Acquire pairs with the host's store after the controller let go of the queue.
    return simt::atomic<M, simt::scope::system>(q_->dead).load(simt::order::acquire) != 0;
  }

  /// Command ids that are in flight for `record`, in turn: the first at or after `from`, or `slot_pool::none`. Advisory: the
  /// command may complete at any moment.
  FOREBAY_DEVICE std::uint32_t find_command(std::uint32_t record, std::uint32_t from) const {
    for (std::uint32_t id = from; id < q_->command_ring.entries(); ++id) {
      // Relaxed: nothing is read on the strength of it.
      if (simt::atomic<M>(q_->commands[id].owner).load(simt::order::relaxed) == record + 1) return id;
    }
    return slot_pool::none;
  }

  /// Whether every completion has been consumed. Advisory while others submit.
  FOREBAY_DEVICE bool idle() const {
    // Acquire pairs with the release in give_credit(): what the last completions delivered is visible.
    return simt::atomic<M>(q_->free_command_count).load(simt::order::acquire) ==
           static_cast<std::int32_t>(q_->command_ring.entries());
  }

  FOREBAY_DEVICE std::uint32_t queue_id() const { return q_->queue_id; }

 private:
  struct entry_words {
    simt::vec16 word[4];
  };
  static_assert(sizeof(entry_words) == sizeof(nvme::submission_entry));

  /// Completions looked at together: their loads are independent, so a GPU that polls host memory pays one round trip for all.
  static constexpr std::uint32_t window = 8;
  static constexpr std::uint32_t no_id = ~0u;

  FOREBAY_DEVICE static bool try_take_credit(std::int32_t& credits) {
    auto available = simt::atomic<M>(credits);
    // Relaxed: without this look, threads that find none would hide a credit from each other by taking and giving it back.
    if (available.load(simt::order::relaxed) <= 0) return false;
    // Acquire pairs with the release in give_credit().
    if (available.fetch_sub(1, simt::order::acquire) > 0) return true;
    // Relaxed: it returns what was never used; the release sequence of give_credit() goes on through it.
    available.fetch_add(1, simt::order::relaxed);
    return false;
  }

  FOREBAY_DEVICE static void give_credit(std::int32_t& credits, std::uint32_t count) {
    // Release pairs with the acquire in try_take_credit(): the slots and ids behind the credits are free.
    if (count != 0) simt::atomic<M>(credits).fetch_add(static_cast<std::int32_t>(count), simt::order::release);
  }

  /// An id that no command in flight has, now owned by `record`; `no_id` if none was free.
  FOREBAY_DEVICE std::uint32_t try_take_command_id(std::uint32_t record) const {
    if (!try_take_credit(q_->free_command_count)) return no_id;
    std::uint32_t const ids = q_->command_ring.entries();
    // Relaxed: only where to look first. Commands complete roughly in order, so the id taken longest ago is likely free.
    std::uint32_t id = q_->command_ring.slot(simt::atomic<M>(q_->next_command).fetch_add(1, simt::order::relaxed));
    // The credit says that an id is free, but others who look may change which; two passes, then it is somebody else's turn.
    for (std::uint32_t tries = 0; tries < 2 * ids; ++tries) {
      std::uint32_t free = 0;
      // Acquire pairs with the release in give_command_id(): the previous command's prp_page was read.
      if (simt::atomic<M>(q_->commands[id].owner).compare_exchange(free, (record + 1) | command_slot::reserved,
                                                                   simt::order::acquire)) {
        return id;
      }
      id = id + 1 < ids ? id + 1 : 0;
    }
    give_credit(q_->free_command_count, 1);
    return no_id;
  }

  /// Gives back an id whose command was never published.
  FOREBAY_DEVICE void give_command_id(std::uint32_t id) const {
    // Release pairs with the acquire in try_take_command_id().
    simt::atomic<M>(q_->commands[id].owner).store(0, simt::order::release);
    give_credit(q_->free_command_count, 1);
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
    // Release pairs with the acquire in ring(): whoever rings for this entry sees it, and so does the controller.
    simt::atomic<M>(q_->published[slot]).store(publish_tag(ticket), Rules::publish);
  }

  /// Makes sure that every entry published before the call is rung for, by this thread or by one that is at it. Nobody waits:
  /// who finds a ringer leaves it a request, and the ringer leaves only when it has answered all.
  FOREBAY_DEVICE void ring() const {
    auto requests = simt::atomic<M>(q_->doorbell_requests);
    // Acquire pairs with the previous ringer's release (`rung`); release pairs with the acquire of a ringer that answers.
    if (requests.fetch_add(1, simt::order::acq_rel) != 0) return;
    std::uint32_t answered = 1;
    for (;;) {
      std::uint64_t const rung = M::ld(&q_->rung);
      std::uint64_t tail = rung;
      // Acquire pairs with the release in publish().
      while (simt::atomic<M>(q_->published[q_->sq_size.slot(tail)]).load(simt::order::acquire) == publish_tag(tail)) ++tail;
      if (tail != rung) {
        M::st(&q_->rung, tail);
        // Release at system scope pairs with the controller's read of the doorbell: all entries up to tail are visible (Q3).
        M::fence(simt::scope::system, simt::order::release);
        M::st_mmio(q_->sq_doorbell, q_->sq_size.slot(tail));
      }
      // Acquire pairs with the release of requests that came meanwhile; release hands `rung` to the next ringer.
      std::uint32_t const before = requests.fetch_sub(answered, simt::order::acq_rel);
      if (before == answered) return;
      answered = before - answered;
    }
  }

  FOREBAY_DEVICE bool is_posted(std::uint64_t head, std::uint32_t& dw3) const {
    nvme::completion_entry& entry = q_->cq[q_->cq_size.slot(head)];
    // Relaxed: consume() fences once for all that it found. Pairs with the controller's release of dw3.
    dw3 = simt::atomic<M, simt::scope::system>(entry.dw3).load(simt::order::relaxed);
    return (dw3 >> 16 & 1) == Rules::phase(q_->cq_size.lap(head));
  }

  /// Requires the poll flag.
  FOREBAY_DEVICE void consume(prp_page_pool const& prp_pages, record_pool<M> const& records) const {
    std::uint64_t const first = M::ld(&q_->cq_head);
    std::uint64_t head = first;
    std::uint32_t freed_commands = 0;
    std::uint32_t freed_slots = 0;
    std::uint32_t dw3[window];
    // One lap at most: a thread that waits for its own request does not serve the others for ever.
    while (head - first < q_->cq_size.entries() && is_posted(head, dw3[0])) {
      std::uint32_t ready = 1;
      bool posted[window];
      for (std::uint32_t i = 1; i < window; ++i) posted[i] = is_posted(head + i, dw3[i]);
      while (ready < window && ready < q_->cq_size.entries() && posted[ready]) ++ready;
      // Acquire pairs with the controller's release of each dw3: the data and dw2 of the entries are there.
      M::fence(simt::scope::system, simt::order::acquire);
      // SQ heads only grow, so the last entry's frees all slots that the others would.
      freed_slots += advance_sq_head(M::ld(&q_->cq[q_->cq_size.slot(head + ready - 1)].dw2) & 0xffff);
      for (std::uint32_t i = 0; i < Rules::delivered(ready); ++i) freed_commands += deliver(dw3[i], prp_pages, records);
      head += ready;
    }
    if (head == first) return;
    M::st(&q_->cq_head, head);
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

  /// Returns how many command ids became free.
  FOREBAY_DEVICE std::uint32_t deliver(std::uint32_t dw3, prp_page_pool const& prp_pages,
                                       record_pool<M> const& records) const {
    std::uint32_t const id = dw3 & 0xffff;
    if (id < q_->command_ring.entries() && finish(id, status::from_nvme(dw3 >> 17), prp_pages, records)) return 1;
    count_protocol_error();
    return 0;
  }

  /// False if the command was not in flight.
  FOREBAY_DEVICE bool finish(std::uint32_t id, status result, prp_page_pool const& prp_pages,
                             record_pool<M> const& records) const {
    auto owner = simt::atomic<M>(q_->commands[id].owner);
    // Acquire pairs with the release in try_submit() after prp_page was set.
    std::uint32_t const record = owner.load(simt::order::acquire);
    if (record == 0 || (record & command_slot::reserved) != 0) return false;
    std::uint32_t const prp_page = M::ld(&q_->commands[id].prp_page);
    if (prp_page != prp_page_pool::none) prp_pages.free.template give<M>(prp_page);
    // Release pairs with the acquire in try_take_command_id().
    owner.store(0, simt::order::release);
    records.complete(record - 1, result);
    return true;
  }

  /// A dead queue's ids are not recycled: it takes no more commands. Repeated at every poll, so that a submitter who had
  /// passed the dead check is cancelled too.
  FOREBAY_DEVICE void cancel_all(prp_page_pool const& prp_pages, record_pool<M> const& records) const {
    for (std::uint32_t id = 0; id < q_->command_ring.entries(); ++id) {
      finish(id, fault::cancelled, prp_pages, records);
    }
  }

  FOREBAY_DEVICE void count_protocol_error() const {
    // Relaxed: a statistic.
    simt::atomic<M>(q_->protocol_errors).fetch_add(1, simt::order::relaxed);
  }

  queue_pair_state* q_ = nullptr;
};

}  // namespace forebay
