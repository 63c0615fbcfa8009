// SPDX-License-Identifier: Apache-2.0
//! \file
//! The engine's side of submission and completion queues.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/emulator/pending_set.hpp"
#include "forebay/nvme/command.hpp"
#include "forebay/simt/team.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

/// How a completion queue is attached: addresses as the engine reaches them.
struct completion_queue_addresses {
  std::uint32_t slot = 0;                     ///< of the engine, below `engine_options::queue_slots`
  nvme::completion_entry* entries = nullptr;  ///< zeroed by the client
  std::uint32_t size = 0;
  std::uint32_t* head_doorbell = nullptr;  ///< 0 when attached
};

struct submission_queue_addresses {
  std::uint32_t slot = 0;  ///< of the engine, below `engine_options::queue_slots`
  std::uint16_t id = 1;    ///< what completions call it
  nvme::submission_entry const* entries = nullptr;
  std::uint32_t size = 0;
  std::uint32_t* tail_doorbell = nullptr;  ///< 0 when attached
  std::uint32_t cq_slot = 0;               ///< attached before; several submission queues may share it
  std::uint32_t page_bytes = 4096;         ///< CC.MPS of the controller that the queue belongs to
};

/// A completion queue as the client made it. A dispatcher that is not its only user takes it by a try-lock, which none
/// waits for.
class alignas(128) completion_queue {
 public:
  FOREBAY_DEVICE void open(completion_queue_addresses const& queue) {
    entries_ = queue.entries;
    size_ = queue.size;
    head_doorbell_ = queue.head_doorbell;
    lock_ = 0;
    tail_ = 0;
    head_ = 0;
    phase_ = 1;
  }
  FOREBAY_DEVICE std::uint32_t size() const { return size_; }

  template <class M>
  [[nodiscard]] FOREBAY_DEVICE bool try_lock() {
    std::uint32_t unlocked = 0;
    // Acquire: pairs with the release in `unlock`, so that tail and phase are the last holder's.
    return simt::atomic<M, simt::scope::device>(lock_).compare_exchange(unlocked, 1, simt::order::acquire);
  }
  template <class M>
  FOREBAY_DEVICE void unlock() {
    // Release: pairs with the acquire in `try_lock`.
    simt::atomic<M, simt::scope::device>(lock_).store(0, simt::order::release);
  }

  /// Entries that may be written now. The caller, one lane, holds the queue. False for a doorbell value that cannot be
  /// right; such a value is ignored.
  template <class M>
  FOREBAY_DEVICE bool free_entries(std::uint32_t& free) {
    // Acquire: pairs with the client's release before it rings the head doorbell, so that an entry is not written
    // before the client has read what it held.
    std::uint32_t const head = simt::atomic<M, simt::scope::system>(*head_doorbell_).load(simt::order::acquire);
    bool const valid = head < size_ && distance(head_, head) <= distance(head_, tail_);
    if (valid) head_ = head;
    free = size_ - 1 - distance(head_, tail_);
    return valid;
  }
  /// Whether an entry is free now. The caller need not hold the queue.
  template <class M>
  FOREBAY_DEVICE bool has_room() {
    // Relaxed, both: `free_entries` looks again.
    std::uint32_t const head = simt::atomic<M, simt::scope::system>(*head_doorbell_).load(simt::order::relaxed);
    std::uint32_t const tail = simt::atomic<M, simt::scope::device>(tail_).load(simt::order::relaxed);
    return head < size_ && distance(head, tail) != size_ - 1;
  }

  /// Free entries that are known of without a look at the doorbell.
  FOREBAY_DEVICE std::uint32_t known_free() const { return size_ - 1 - distance(head_, tail_); }

  /// Begins to post `count` entries that share dwords 0 and 2: from now on `publish` may show them. All lanes call it;
  /// the team holds the queue and knows of as many free entries.
  template <class M>
  FOREBAY_DEVICE void prepare(simt::team<M> const& lanes, std::uint32_t count, std::uint32_t dw0, std::uint32_t dw2) {
    for (std::uint32_t i = lanes.rank(); i < count; i += lanes.count()) {
      nvme::completion_entry& e = entries_[place(i)];
      M::st(&e.dw0, dw0);
      M::st(&e.dw1, 0);
      M::st(&e.dw2, dw2);
    }
    // The lanes' data, dwords 0 to 2 among them, are before this barrier.
    lanes.sync();
    // Release: with the store in `publish` it pairs with the client's acquire of the phase tag.
    M::fence(simt::scope::system, simt::order::release);
  }

  /// Shows entry `i` of those prepared to the client. Called by one lane for each.
  template <class M>
  FOREBAY_DEVICE void publish(std::uint32_t i, std::uint16_t command_id, std::uint16_t status_field) {
    std::uint32_t const phase = tail_ + i < size_ ? phase_ : phase_ ^ 1;
    // Relaxed: ordered by the fence in `prepare`.
    simt::atomic<M, simt::scope::system>(entries_[place(i)].dw3)
        .store(nvme::completion_entry::make_dw3(command_id, phase, status_field), simt::order::relaxed);
  }

  /// Ends the posting of `count` entries. All lanes call it.
  template <class M>
  FOREBAY_DEVICE void advance(simt::team<M> const& lanes, std::uint32_t count) {
    bool const wraps = tail_ + count >= size_;
    std::uint32_t const tail = wraps ? tail_ + count - size_ : tail_ + count;
    std::uint32_t const phase = wraps ? phase_ ^ 1 : phase_;
    lanes.sync();
    if (lanes.leader()) {
      // Relaxed: for `has_room`. Who posts next sees it by the lock.
      simt::atomic<M, simt::scope::device>(tail_).store(tail, simt::order::relaxed);
      phase_ = phase;
    }
    lanes.sync();
  }

 private:
  FOREBAY_DEVICE std::uint32_t distance(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + size_ - from;
  }

  FOREBAY_DEVICE std::uint32_t place(std::uint32_t i) const {
    return tail_ + i < size_ ? tail_ + i : tail_ + i - size_;
  }

  std::uint32_t lock_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t phase_ = 1;
  std::uint32_t* head_doorbell_ = nullptr;
  nvme::completion_entry* entries_ = nullptr;
};

/// A submission queue as the client made it, and its commands in flight. The dispatcher's own.
template <class M>
struct submission_queue {
  nvme::submission_entry const* entries = nullptr;
  std::uint32_t* tail_doorbell = nullptr;
  nvme::submission_entry* held = nullptr;  ///< by pending slot: entries of commands that move their data late
  std::uint32_t size = 0;                  ///< 0: none is attached
  std::uint32_t head = 0;                  ///< next entry to fetch; SQHD of the completions posted now
  std::uint32_t seen_tail = 0;             ///< entries before it were there at the poll that set `arrival_ps`
  std::uint32_t bad_tail = 0;              ///< the last invalid doorbell value counted
  std::uint32_t cq_slot = 0;
  std::uint32_t page_bytes = 4096;
  std::uint16_t id = 0;
  bool owns_cq = false;                   ///< no other dispatcher posts to the completion queue
  bool gap_is_new = false;                ///< the poll gap of the last poll is not counted yet
  bool blocked = false;                   ///< the completion queue was full when commands were due
  std::uint64_t last_poll_ps = never_ps;  ///< `never_ps`: not polled yet
  std::uint64_t arrival_ps = 0;
  std::uint64_t fetched = 0;  ///< commands fetched in the life of the queue
  pending_set<M> pending;
};

}  // namespace forebay::emulator
