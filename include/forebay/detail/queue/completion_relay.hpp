// SPDX-License-Identifier: Apache-2.0
//! \file
//! The ordering flush of placement 2: completions reach a GPU's threads only once their data has.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/ring_position.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/memory.hpp"
#include "forebay/queue_pair_rings.hpp"

namespace forebay {

/// Where a drive's data and its completions take different paths, a completion may be seen before its data. So the
/// threads that drive such a queue pair look at a second completion ring. A host thread looks at the ring that the
/// controller fills. When it finds completions there it flushes, and then copies them to the second ring. The threads'
/// code is the same for all pairs, and those of other pairs pay nothing. All members but `step` are thread-safe.
class completion_relay {
 public:
  /// `flush`: when it returns, what the drives wrote before the call is in its place. If it throws, no completion is
  /// copied. `shared_memory`: reached by the host and by the threads that drive the pairs.
  completion_relay(memory::resource& shared_memory, std::function<void()> flush)
      : shared_memory_(shared_memory), flush_(std::move(flush)) {}
  completion_relay(completion_relay const&) = delete;
  completion_relay& operator=(completion_relay const&) = delete;

  /// The rings for the threads that drive the pair whose rings the controller has. Comes before the pair's first
  /// command. `first_ticket`: as `io_queues_options` has it.
  queue_pair_rings add(queue_pair_rings const& rings, std::uint64_t first_ticket = 0) {
    // Made without the lock: to allocate may wait for kernels, and those for completions.
    std::list<relayed> made(1);
    relayed& r = made.front();
    r.from = rings.cq;
    r.entries = rings.cq_entries;
    r.next = ring_position::of(first_ticket, rings.cq_entries);
    r.memory = memory::allocation(shared_memory_, rings.cq_entries * sizeof(nvme::completion_entry), 4096);
    queue_pair_rings theirs = rings;
    theirs.cq = r.to = r.memory.as<nvme::completion_entry>();
    std::lock_guard const lock(mutex_);
    pairs_.splice(pairs_.end(), made);
    return theirs;
  }
  /// The pair to which `add` gave the ring `cq` is no more: neither the controller nor a thread uses its rings. Does
  /// nothing for another ring.
  void remove(nvme::completion_entry const* cq) noexcept {
    std::list<relayed> gone;  // freed without the lock
    std::lock_guard const lock(mutex_);
    for (auto r = pairs_.begin(); r != pairs_.end(); ++r) {
      if (r->to != cq) continue;
      gone.splice(gone.end(), pairs_, r);
      return;
    }
  }

  /// Whether a step would find something to do.
  template <class M = simt::native>
  bool has_news() {
    std::lock_guard const lock(mutex_);
    // Relaxed: as in `end`.
    if (ended_.load(std::memory_order_relaxed)) return false;
    // Relaxed: `step` looks again.
    if (word<M>(asked_).load(simt::order::relaxed) != word<M>(answered_).load(simt::order::relaxed)) return true;
    for (relayed const& r : pairs_) {
      if (is_posted<M>(r, r.next)) return true;
    }
    return false;
  }

  /// Flushes, and copies what the controllers have posted. Returns whether there was anything. One thread at a time
  /// calls it. Throws what the flush throws.
  template <class M = simt::native>
  bool step() {
    std::lock_guard const lock(mutex_);
    // Acquire pairs with the release in `catch_up`: what was posted before that is found below.
    std::uint32_t const asked = word<M>(asked_).load(simt::order::acquire);
    // Relaxed: only steps write it.
    bool const is_asked = asked != word<M>(answered_).load(simt::order::relaxed);
    bool any = false;
    for (relayed& r : pairs_) {
      ring_position at = r.next;
      for (r.found = 0; r.found < r.entries && is_posted<M>(r, at); ++r.found) at = at.after(1, r.entries);
      any = any || r.found != 0;
    }
    // Also for a caller of `catch_up`: commands that end without a completion may have data under way.
    if (any || is_asked) {
      // Acquire pairs with the controllers' release of each dw3: the flush comes after these looks.
      M::fence(simt::scope::system, simt::order::acquire);
      flush_();
      for (relayed& r : pairs_) copy<M>(r);
    }
    if (!is_asked) return any;
    // Release pairs with the acquire in `catch_up`: the completions are in the second ring.
    word<M>(answered_).store(asked, simt::order::release);
    return true;
  }

  /// There will be no more steps, because the flush has failed.
  void end() {
    // Relaxed: it hurries those that wait.
    ended_.store(true, std::memory_order_relaxed);
  }

  /// Returns once another thread's step has flushed and has copied all completions that were posted before the call.
  /// False at `deadline_ns`, or if there are no more steps.
  template <class M = simt::native>
  bool catch_up(std::uint64_t deadline_ns) {
    // Release pairs with the acquire in `step`.
    std::uint32_t const ticket = word<M>(asked_).fetch_add(1, simt::order::release) + 1;
    bool caught_up = false;
    static_cast<void>(M::wait_until(
        [&] {
          // Acquire pairs with the release in `step`.
          caught_up = static_cast<std::int32_t>(word<M>(answered_).load(simt::order::acquire) - ticket) >= 0;
          // Relaxed: as in `end`.
          return caught_up || ended_.load(std::memory_order_relaxed);
        },
        deadline_ns));
    return caught_up;
  }

 private:
  struct relayed {
    nvme::completion_entry* from = nullptr;
    nvme::completion_entry* to = nullptr;
    std::uint32_t entries = 0;
    std::uint32_t found = 0;  ///< by the step that is under way
    ring_position next;
    memory::allocation memory;
  };

  template <class M>
  static auto word(std::uint32_t& of) {
    return simt::atomic<M, simt::scope::system>(of);
  }
  template <class M>
  static bool is_posted(relayed const& r, ring_position at) {
    // Relaxed: `step` executes one fence for all that it finds.
    std::uint32_t const dw3 = word<M>(r.from[at.slot].dw3).load(simt::order::relaxed);
    return (dw3 >> 16 & 1) == ((at.lap & 1) ^ 1);
  }
  template <class M>
  static void copy(relayed& r) {
    for (; r.found != 0; --r.found) {
      nvme::completion_entry& from = r.from[r.next.slot];
      // Acquire pairs with the controller's release of dw3: the rest of the entry is there.
      std::uint32_t const dw3 = word<M>(from.dw3).load(simt::order::acquire);
      // The slot is free: the controller posts here only after the threads have given back the entry of the lap before.
      nvme::completion_entry& to = r.to[r.next.slot];
      M::st(&to.dw0, M::ld(&from.dw0));
      M::st(&to.dw1, M::ld(&from.dw1));
      M::st(&to.dw2, M::ld(&from.dw2));
      // Release pairs with the acquire in `queue_pair_ref::try_poll`: the data is there, and the rest of the entry.
      word<M>(to.dw3).store(dw3, simt::order::release);
      r.next = r.next.after(1, r.entries);
    }
  }

  memory::resource& shared_memory_;
  std::function<void()> flush_;
  std::mutex mutex_;  ///< of the pairs
  std::list<relayed> pairs_;
  std::uint32_t asked_ = 0;
  std::uint32_t answered_ = 0;
  std::atomic<bool> ended_ = false;
};

/// A queue pair as the threads that drive it see it, through a relay or not. Destroy it before the controller's rings
/// go, and once no thread uses it. Move-only.
class relayed_pair {
 public:
  /// `relay`: null if completions need none. Throws as `memory::resource::allocate` does.
  relayed_pair(completion_relay* relay, queue_pair_rings const& of_controller)
      : relay_(relay), rings_(relay != nullptr ? relay->add(of_controller) : of_controller) {}
  relayed_pair(relayed_pair&& other) noexcept : relay_(std::exchange(other.relay_, nullptr)), rings_(other.rings_) {}
  relayed_pair& operator=(relayed_pair&&) = delete;
  ~relayed_pair() {
    if (relay_ != nullptr) relay_->remove(rings_.cq);
  }

  queue_pair_rings const& rings() const { return rings_; }
  completion_relay* relay() const { return relay_; }

 private:
  completion_relay* relay_;
  queue_pair_rings rings_;
};

}  // namespace forebay
