// SPDX-License-Identifier: Apache-2.0
//! \file
//! The engine's side of submission and completion queues.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

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
  std::uint16_t id = 1;    ///< the id by which completions name it
  nvme::submission_entry const* entries = nullptr;
  std::uint32_t size = 0;
  std::uint32_t* tail_doorbell = nullptr;  ///< 0 when attached
  std::uint32_t cq_slot = 0;               ///< that queue was attached before; several submission queues may share it
  std::uint32_t page_bytes = 4096;         ///< CC.MPS of the controller that the queue belongs to
  dma_region_table regions = {};           ///< memory that its commands may name; must outlive the queue
};

/// Where a completion queue lies, and how far it is filled. A team that holds the queue has a copy in registers, so
/// that its next step waits for no memory.
class completion_ring {
 public:
  completion_ring() = default;
  explicit completion_ring(completion_queue_addresses const& queue)
      : size_(queue.size), head_doorbell_(queue.head_doorbell), entries_(queue.entries) {}

  FOREBAY_DEVICE std::uint32_t size() const { return size_; }
  FOREBAY_DEVICE std::uint32_t tail() const { return tail_; }
  FOREBAY_DEVICE std::uint32_t* head_doorbell() const { return head_doorbell_; }

  /// How many free entries are known without a look at the doorbell.
  FOREBAY_DEVICE std::uint32_t known_free() const { return size_ - 1 - distance(head_, tail_); }

  /// One lane looks at the doorbell for all. False for an invalid value, which is ignored.
  template <class M>
  FOREBAY_DEVICE bool look_at_head(simt::team<M> const& lanes) {
    // Acquire: pairs with the client's release before it rings the head doorbell, so that an entry is not written
    // before the client has read what it held.
    std::uint32_t const head = lanes.broadcast(
        lanes.leader() ? simt::atomic<M, simt::scope::system>(*head_doorbell_).load(simt::order::acquire) : 0);
    bool const valid = head < size_ && distance(head_, head) <= distance(head_, tail_);
    if (valid) head_ = head;
    return valid;
  }

  /// Consecutive entries that a team may write.
  struct places {
    std::uint32_t first = 0;
    std::uint32_t phase = 1;
    /// When the last of the entries before them is shown. A client reads entries in order, so it sees none of these
    /// earlier.
    std::uint64_t after_ps = 0;
  };

  /// Takes the next `count` entries; at least that many are free. They are to be shown by `last_ps` if all goes well.
  FOREBAY_DEVICE places take(std::uint32_t count, std::uint64_t last_ps) {
    places const taken{tail_, phase_, last_shown_ps_};
    bool const wraps = tail_ + count >= size_;
    tail_ = wraps ? tail_ + count - size_ : tail_ + count;
    if (wraps) phase_ ^= 1;
    if (last_ps > last_shown_ps_) last_shown_ps_ = last_ps;
    return taken;
  }

  /// Copies the members that change.
  FOREBAY_DEVICE void go_on_as(completion_ring const& other) {
    tail_ = other.tail_;
    head_ = other.head_;
    phase_ = other.phase_;
    last_shown_ps_ = other.last_shown_ps_;
  }

  /// Begins to post `count` entries that share dwords 0 and 2: from now on `publish` may show them. All lanes call it.
  template <class M>
  FOREBAY_DEVICE void prepare(simt::team<M> const& lanes, places const& at, std::uint32_t count, std::uint32_t dw0,
                              std::uint32_t dw2) const {
    for (std::uint32_t i = lanes.rank(); i < count; i += lanes.count()) {
      nvme::completion_entry& e = entries_[place(at, i)];
      M::st(&e.dw0, dw0);
      M::st(&e.dw1, 0);
      M::st(&e.dw2, dw2);
    }
    // The lanes' data, and dwords 0 to 2, come before this barrier.
    lanes.sync();
    // Release: with the store in `publish` it pairs with the client's acquire of the phase tag.
    M::fence(simt::scope::system, simt::order::release);
  }

  /// Shows entry `i` of those prepared to the client. Called by one lane for each.
  template <class M>
  FOREBAY_DEVICE void publish(places const& at, std::uint32_t i, std::uint16_t command_id,
                              std::uint16_t status_field) const {
    std::uint32_t const phase = at.first + i < size_ ? at.phase : at.phase ^ 1;
    // Relaxed: ordered by the fence in `prepare`.
    simt::atomic<M, simt::scope::system>(entries_[place(at, i)].dw3)
        .store(nvme::completion_entry::make_dw3(command_id, phase, status_field), simt::order::relaxed);
  }

 private:
  FOREBAY_DEVICE std::uint32_t distance(std::uint32_t from, std::uint32_t to) const {
    return to >= from ? to - from : to + size_ - from;
  }

  FOREBAY_DEVICE std::uint32_t place(places const& at, std::uint32_t i) const {
    return at.first + i < size_ ? at.first + i : at.first + i - size_;
  }

  std::uint32_t size_ = 0;
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t phase_ = 1;
  std::uint64_t last_shown_ps_ = 0;  ///< when all entries before the tail have been shown
  std::uint32_t* head_doorbell_ = nullptr;
  nvme::completion_entry* entries_ = nullptr;
};

/// A completion queue as the client made it. A dispatcher that is not its only user takes it by a try-lock, for which
/// no dispatcher waits.
class alignas(128) completion_queue {
 public:
  completion_queue() = default;
  explicit completion_queue(completion_queue_addresses const& queue) : ring_(queue) {}

  FOREBAY_DEVICE std::uint32_t size() const { return ring_.size(); }
  FOREBAY_DEVICE std::uint32_t* head_doorbell() const { return ring_.head_doorbell(); }

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

  /// The state of the ring, for a team that holds the queue.
  FOREBAY_DEVICE completion_ring const& ring() const { return ring_; }
  /// Leaves the state to the next holder. One lane calls it; the team releases the queue afterwards.
  FOREBAY_DEVICE void put_back(completion_ring const& ring) { ring_.go_on_as(ring); }
  /// For threads that do not hold the queue. One lane of a team that holds it calls this.
  template <class M>
  FOREBAY_DEVICE void show(completion_ring const& ring) {
    // Relaxed: for `full_head`.
    simt::atomic<M, simt::scope::device>(shown_tail_).store(ring.tail(), simt::order::relaxed);
  }

  /// The client's head at the time when no entry is free. The caller need not hold the queue.
  template <class M>
  FOREBAY_DEVICE std::uint32_t full_head() {
    // Relaxed: a hint, `look_at_head` looks again.
    std::uint32_t const tail = simt::atomic<M, simt::scope::device>(shown_tail_).load(simt::order::relaxed);
    return tail + 1 == size() ? 0 : tail + 1;
  }

 private:
  completion_ring ring_;
  std::uint32_t lock_ = 0;
  std::uint32_t shown_tail_ = 0;  ///< the ring's tail, for threads that do not hold the queue
};

/// A submission queue as the client made it, and its commands in flight. One dispatcher serves it, and other
/// dispatchers of its unit help if they have nothing else to do; see `queue_locks` for which of them may touch what.
template <class M>
struct submission_queue {
  nvme::submission_entry const* entries = nullptr;
  std::uint32_t* tail_doorbell = nullptr;
  nvme::submission_entry* held = nullptr;  ///< by pending slot: entries of commands that move their data late
  std::uint32_t cq_slot = 0;
  std::uint32_t page_bytes = 4096;
  dma_region_table regions;  ///< of the controller that the queue belongs to
  std::uint16_t id = 0;
  bool owns_cq = false;  ///< no dispatcher of another place posts to the completion queue

  std::uint32_t size = 0;       ///< 0: none is attached. Set last; `attached` reads it
  std::uint32_t leaving = 0;    ///< not 0: its detach waits for the dispatchers that work on it
  std::uint32_t in_flight = 0;  ///< commands fetched and not taken for posting
  std::uint32_t blocked = 0;    ///< not 0: the completion queue was full when commands were due

  // With `queue_locks::fetch`:
  std::uint32_t head = 0;       ///< next entry to fetch; SQHD of the completions posted now
  std::uint32_t seen_tail = 0;  ///< entries before it were there at the poll that set `arrival_ps`
  std::uint32_t bad_tail = 0;   ///< the last invalid doorbell value counted
  std::uint64_t new_gap_ps =
      never_ps;  ///< upper bound on how long what the last poll found had been there; then counted
  std::uint64_t last_poll_ps = never_ps;  ///< `never_ps`: not polled yet
  std::uint64_t arrival_ps = 0;
  std::uint64_t fetched = 0;  ///< commands fetched in the life of the queue
  std::uint64_t wants_help_ps =
      0;  ///< the time until which it wants help, since there were more entries than one fetch took

  std::uint64_t looked_ps = 0;  ///< when a lane last saw, outside of a poll, that there was nothing new

  pending_set<M> pending;  ///< with `queue_locks::pending`

  /// With `queue_locks::posting`: the ring of a completion queue to which only this submission queue posts, while that
  /// is so. If a dispatcher has no others in its unit, several of its queues may post to it.
  completion_ring ring;
};

/// The locks that say which dispatcher of a unit works on a queue. They are zeroed when the unit starts; a unit of one
/// dispatcher needs none.
struct queue_locks {
  std::uint32_t fetch = 0;    ///< for what the next fetch reads and writes
  std::uint32_t pending = 0;  ///< for the commands in flight
  std::uint32_t posting =
      0;  ///< only that of a dispatcher's first place is used: for the completion queues that its queues own
  std::uint32_t hands = 0;  ///< batches that were taken out under a lock and are now worked on without it
};

/// Words that the dispatchers of a unit share.
struct unit_words {
  std::uint64_t wants_help_ps = 0;  ///< the time until which help is wanted: the latest of its queues
  std::uint32_t batches = 0;        ///< how many batches of commands with a target any dispatcher has entered
};

/// What the dispatchers of a unit share, in the memory of a thread block. Queues and locks lie in the order of the
/// dispatchers that serve them, `engine_view::queues_per_dispatcher` for each.
template <class M>
struct unit_memory {
  submission_queue<M>* queues = nullptr;
  queue_locks* locks = nullptr;  ///< null for a unit of one dispatcher
  unit_words* words = nullptr;   ///< likewise
};

}  // namespace forebay::emulator
