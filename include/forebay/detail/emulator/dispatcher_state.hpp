// SPDX-License-Identifier: Apache-2.0
//! \file
//! What all parts of a dispatcher know.
#pragma once

#include <cstdint>
#include <type_traits>

#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/engine_view.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// What a dispatcher knows of itself, of the time and of the places of its unit's queues. This class has all data
/// members of a dispatcher. The other parts, each of which builds on the one before it, add functions.
template <class M>
class dispatcher_state {
 protected:
  using team = simt::team<M>;

  FOREBAY_DEVICE dispatcher_state(engine_view<M> const& view, std::uint32_t index, dispatcher_scratch& scratch,
                                  unit_memory<M> const& unit)
      : view_(view),
        lanes_(team::here()),
        index_(index),
        scratch_(scratch),
        unit_(unit),
        queue_count_(view.queues_per_dispatcher()),
        first_place_(index / view.options.units * queue_count_),
        stats_(view.unit_statistics[index % view.options.units]) {}

  FOREBAY_DEVICE std::uint64_t since_epoch_ps(std::uint64_t clock_ns) const {
    return (clock_ns - view_.options.epoch_ns) * 1000;
  }
  FOREBAY_DEVICE void read_clock() { now_ps_ = since_epoch_ps(lanes_.broadcast(lanes_.leader() ? M::clock_ns() : 0)); }
  /// How long before it is due a completion is made ready; another dispatcher does so only if the queue's own one is
  /// late.
  FOREBAY_DEVICE std::uint64_t ahead_ps(bool own = true) const {
    return view_.options.post_ahead_ns * (own ? 1000 : 800);
  }
  FOREBAY_DEVICE bool helps() const { return view_.options.dispatchers_per_unit > 1; }
  FOREBAY_DEVICE std::uint32_t places() const { return view_.options.dispatchers_per_unit * queue_count_; }
  /// The place of the `k`th queue to look at. The dispatcher's own queues are the first.
  FOREBAY_DEVICE std::uint32_t place(std::uint32_t k) const {
    return first_place_ + k < places() ? first_place_ + k : first_place_ + k - places();
  }
  FOREBAY_DEVICE std::uint32_t place_of(std::uint32_t slot) const { return first_place_ + slot / view_.dispatchers(); }
  /// Reads a word whose lock another dispatcher may hold.
  template <class T>
  FOREBAY_DEVICE static T hint(T& word) {
    // Relaxed: a caller that acts on the value takes the lock and looks again.
    return simt::atomic<M, simt::scope::block>(word).load(simt::order::relaxed);
  }
  /// Writes a word whose lock the caller holds.
  template <class T>
  FOREBAY_DEVICE static void set(T& word, std::type_identity_t<T> value) {
    // Relaxed: for threads that look without the lock it is a hint; for the others the lock orders it.
    simt::atomic<M, simt::scope::block>(word).store(value, simt::order::relaxed);
  }
  FOREBAY_DEVICE void count_invalid_doorbell() const {
    // Relaxed: a counter.
    simt::atomic<M, simt::scope::device>(view_.words->invalid_doorbells).fetch_add(1, simt::order::relaxed);
  }
  /// One lane calls it.
  FOREBAY_DEVICE void count_in_flight(submission_queue<M>& sq, std::uint32_t n) const {
    auto const word = simt::atomic<M, simt::scope::block>(sq.in_flight);
    // Relaxed, both: `fetch` may see fewer free slots than there are, never more.
    if (helps()) {
      word.fetch_add(n, simt::order::relaxed);
    } else {
      word.store(word.load(simt::order::relaxed) + n, simt::order::relaxed);
    }
  }

  // There is no padding after the last member: nvcc copies a base class with padding piece by piece where a part passes
  // itself by value, and then needs more of a GPU's stack.
  engine_view<M> const& view_;
  team lanes_;
  std::uint32_t index_;
  dispatcher_scratch& scratch_;
  unit_memory<M> unit_;
  std::uint32_t queue_count_;
  std::uint32_t first_place_;
  statistics& stats_;
  bool contended_ = false;    ///< the step wanted what another dispatcher had
  std::uint64_t now_ps_ = 0;  ///< not after the present
  std::uint32_t mail_ = 0;    ///< in the leader: how many requests were posted when it looked
  std::uint32_t seen_batches_ = 0;
};

}  // namespace forebay::emulator
