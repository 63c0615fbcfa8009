// SPDX-License-Identifier: Apache-2.0
//! \file
//! The locks of a unit's queues, which keep its dispatchers from interfering with each other.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/dispatcher_state.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// A dispatcher tries each lock, and holds it for a few accesses. Work without a lock is counted in
/// `queue_locks::hands`.
template <class M>
class dispatcher_locks : protected dispatcher_state<M> {
  using base = dispatcher_state<M>;

 protected:
  using base::base;
  using base::contended_;
  using base::helps;
  using base::hint;
  using base::lanes_;
  using base::set;
  using base::unit_;

  /// One lane calls it.
  FOREBAY_DEVICE bool try_lock(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    if (!helps()) return true;
    std::uint32_t& word = unit_.locks[place].*lock;
    std::uint32_t open = 0;
    // Acquire: pairs with the release in `unlock`, so that what the lock covers is as the last holder left it.
    return hint(word) == 0 && simt::atomic<M, simt::scope::block>(word).compare_exchange(open, 1, simt::order::acquire);
  }
  /// One lane calls it.
  FOREBAY_DEVICE void unlock(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    // Release: pairs with the acquire in `try_lock`.
    if (helps()) simt::atomic<M, simt::scope::block>(unit_.locks[place].*lock).store(0, simt::order::release);
  }
  [[nodiscard]] FOREBAY_DEVICE bool try_take(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    if (!helps()) return true;
    bool const taken = lanes_.any(lanes_.leader() && try_lock(place, lock));
    lanes_.sync();  // all lanes see what the last holder left
    return taken;
  }
  FOREBAY_DEVICE void take(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    if (!helps()) return;
    if (lanes_.leader()) {
      // Another dispatcher of the unit holds it, and waits for nothing meanwhile.
      (void)M::wait_until(
          [&] {
            for (std::uint32_t turn = 0; turn < M::looks_per_poll; ++turn) {
              if (try_lock(place, lock)) return true;
            }
            return false;
          },
          simt::no_deadline);
    }
    lanes_.sync();
  }
  /// Called when another dispatcher has a lock: there is work. On a machine where the holder of a lock makes progress
  /// whatever others do, the step is then repeated at once. Always returns false.
  FOREBAY_DEVICE bool contend() {
    contended_ = M::lock_holders_go_on;
    return false;
  }
  FOREBAY_DEVICE void give(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    lanes_.sync();
    if (lanes_.leader()) unlock(place, lock);
  }
  /// The caller goes on working on what it has taken out of a queue. One lane calls it, under a lock of the queue.
  FOREBAY_DEVICE void keep_hand_on(std::uint32_t place) const {
    // Relaxed: the lock orders it.
    if (helps()) simt::atomic<M, simt::scope::block>(unit_.locks[place].hands).fetch_add(1, simt::order::relaxed);
  }
  /// The caller touches nothing of the queue any more.
  FOREBAY_DEVICE void take_hand_off(std::uint32_t place) const {
    lanes_.sync();
    // Release: pairs with the acquire in `claim_alone`.
    if (helps() && lanes_.leader())
      simt::atomic<M, simt::scope::block>(unit_.locks[place].hands).fetch_sub(1, simt::order::release);
  }
  /// Takes both locks of a queue from which no dispatcher may take anything any more. False: a dispatcher still works
  /// on it.
  [[nodiscard]] FOREBAY_DEVICE bool claim_alone(std::uint32_t place) const {
    if (!helps()) return true;
    if (!try_take(place, &queue_locks::fetch)) return false;
    if (try_take(place, &queue_locks::pending)) {
      if (lanes_.leader()) set(unit_.queues[place].leaving, 1);
      if (!in_hands(place)) return true;
      give(place, &queue_locks::pending);
    }
    give(place, &queue_locks::fetch);
    return false;
  }
  /// Whether a queue is attached and not about to be detached. The caller holds a lock of it.
  FOREBAY_DEVICE bool open(submission_queue<M>& sq) const {
    // Acquire: pairs with the release in `attach`.
    return simt::atomic<M, simt::scope::block>(sq.size).load(simt::order::acquire) != 0 && hint(sq.leaving) == 0;
  }

 private:
  /// Whether a dispatcher works on what was taken out of a queue.
  FOREBAY_DEVICE bool in_hands(std::uint32_t place) const {
    if (!helps()) return false;
    // Acquire: pairs with the release in `take_hand_off`.
    return lanes_.any(lanes_.leader() &&
                      simt::atomic<M, simt::scope::block>(unit_.locks[place].hands).load(simt::order::acquire) != 0);
  }
};

}  // namespace forebay::emulator
