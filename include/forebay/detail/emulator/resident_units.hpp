// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernel of an I/O engine that stays on a GPU: a thread block for each service unit, a warp for each dispatcher.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/dispatcher.hpp"
#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/engine_options.hpp"
#include "forebay/detail/emulator/engine_view.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Words that the units share, in memory of the engine's GPU.
struct alignas(128) residency_words {
  std::uint32_t stop = 0;                  ///< not 0 asks the units to leave
  std::uint32_t beat = 0;                  ///< changes from time to time while the host lives
  alignas(128) std::uint32_t arrived = 0;  ///< dispatchers that have begun
  std::uint32_t orphaned = 0;              ///< dispatchers that found the host silent; all dispatchers leave then
  std::uint32_t left = 0;                  ///< dispatchers that have ended
};

/// Words between the units and the host that launched them, in page-locked memory. The host needs no call to CUDA for
/// them; such a call would wait for a `cudaFree` of another thread, which waits for the units. Only one dispatcher
/// looks at them, and seldom: if many did, the kernel would slow every client down.
struct alignas(128) residency_orders {
  std::uint32_t stop = 0;               ///< written by the host: not 0 asks the units to leave
  std::uint32_t beat = 0;               ///< written by the host: changes from time to time while it lives
  alignas(128) std::uint32_t left = 0;  ///< written by the units: not 0 once all have left
};

/// The settings that serve a GPU's clients best, by measurement (docs/internals/engine.md). Of `options`, this sets how
/// many dispatchers a unit has, how early they make completions ready, and what is assumed about when they learn of
/// commands.
inline void choose_for_gpu(engine_options& options) {
  options.dispatchers_per_unit = 16;
  options.post_ahead_ns = options.timing.immediate() ? 0 : 11'000;
  options.poll_period_ns = 1600;
  options.timing.disorder_ps = 2'000'000;
}

/// Launched with `shape()`. Ends at once when `words->stop` is set, whatever is in flight: all state is in the engine's
/// memory, and a later launch goes on from there. Ends by itself when `words->beat` has not changed for
/// `orphan_timeout_ns` (0: never). Then all dispatchers leave, so that a later launch finds none of them still there.
/// If `orders` is not null, one dispatcher passes what it says on to the words: within `relay_ns`, plus the time of
/// what it is working on then.
template <class M>
struct resident_units {
  static constexpr unsigned max_threads_per_block = 512;

  engine_view<M> view;
  residency_words* words = nullptr;
  std::uint64_t orphan_timeout_ns = 0;
  residency_orders* orders = nullptr;

  simt::grid shape() const {
    engine_options const& options = view.options;
    return {options.units, options.dispatchers_per_unit * 32, static_cast<std::uint32_t>(shared_bytes())};
  }

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const warp = block.thread_rank() / 32;
    std::uint32_t const index = block.rank + warp * view.options.units;
    std::byte* const shared = &block.template shared<std::byte>();
    auto& scratch = reinterpret_cast<dispatcher_scratch*>(shared)[warp];
    unit_memory<M> unit;
    unit.queues = reinterpret_cast<submission_queue<M>*>(shared + queues_at());
    unit.locks = reinterpret_cast<queue_locks*>(shared + locks_at());
    unit.words = reinterpret_cast<unit_words*>(shared + words_at());

    std::uint32_t const count = view.queues_per_dispatcher();
    submission_queue<M>* const home = view.submission_queues + std::size_t{index} * count;
    auto const lanes = simt::team<M>::here();
    for (std::uint32_t k = lanes.rank(); k < count; k += lanes.count()) {
      unit.queues[warp * count + k] = home[k];
      unit.locks[warp * count + k] = {};
    }
    if (lanes.leader()) scratch.visit_ps = 0;
    if (block.thread_rank() == 0) *unit.words = {};
    block.sync();  // the dispatchers look at each other's queues
    dispatcher<M> self(view, index, scratch, unit);
    if (lanes.leader()) {
      // Release: pairs with the host's look at whether the engine is there. It orders nothing else.
      simt::atomic<M, simt::scope::system>(words->arrived).fetch_add(1, simt::order::release);
    }
    serve(self, orders != nullptr && index == 0);
    self.leave();
    block.sync();
    for (std::uint32_t k = lanes.rank(); k < count; k += lanes.count()) home[k] = unit.queues[warp * count + k];
    lanes.sync();
    if (orders == nullptr || !lanes.leader()) return;
    // Release and acquire: pair with each other; all have left before the host learns it.
    auto const before = simt::atomic<M>(words->left).fetch_add(1, simt::order::acq_rel);
    if (before + 1 != view.dispatchers()) return;
    // Release: pairs with the host's acquire.
    simt::atomic<M, simt::scope::system>(orders->left).store(1, simt::order::release);
  }

 private:
  static constexpr std::uint64_t idle_ns = 1'000'000;  ///< after this long without work, a dispatcher looks less often
  static constexpr std::uint64_t longest_rest_ns = 100'000'000;  ///< between looks at the host's heartbeat
  static constexpr std::uint32_t visits_per_look = 256;          ///< at `stop`, while there is work
  static constexpr std::uint64_t relay_ns = 1'000'000;           ///< between looks at `orders`

  FOREBAY_DEVICE static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 15) / 16 * 16; }
  FOREBAY_DEVICE std::size_t queues_at() const {
    return aligned(view.options.dispatchers_per_unit * sizeof(dispatcher_scratch));
  }
  FOREBAY_DEVICE std::size_t places() const {
    return std::size_t{view.options.dispatchers_per_unit} * view.queues_per_dispatcher();
  }
  FOREBAY_DEVICE std::size_t locks_at() const { return aligned(queues_at() + places() * sizeof(submission_queue<M>)); }
  FOREBAY_DEVICE std::size_t words_at() const { return aligned(locks_at() + places() * sizeof(queue_locks)); }
  FOREBAY_DEVICE std::size_t shared_bytes() const { return words_at() + aligned(sizeof(unit_words)); }

  FOREBAY_DEVICE bool stopping() const {
    // Relaxed: the host gives the order to leave, and no data with it.
    return simt::atomic<M, simt::scope::system>(words->stop).load(simt::order::relaxed) != 0;
  }

  /// One lane calls it.
  FOREBAY_DEVICE void pass_orders_on() const {
    // Relaxed, all: no data comes with an order.
    auto const from = [](std::uint32_t& word) {
      return simt::atomic<M, simt::scope::system>(word).load(simt::order::relaxed);
    };
    simt::atomic<M, simt::scope::system>(words->beat).store(from(orders->beat), simt::order::relaxed);
    if (from(orders->stop) != 0) simt::atomic<M, simt::scope::system>(words->stop).store(1, simt::order::relaxed);
  }

  /// `relays`: the dispatcher passes orders on.
  FOREBAY_DEVICE void serve(dispatcher<M>& self, bool relays) const {
    auto const& lanes = self.lanes();
    std::uint64_t last_work_ns = M::clock_ns();
    std::uint64_t last_beat_ns = last_work_ns, last_relay_ns = last_work_ns;
    std::uint64_t const most_rest_ns = relays ? relay_ns : longest_rest_ns;
    std::uint32_t last_beat = 0;
    for (std::uint32_t visits = 1;; ++visits) {
      bool const worked = self.step();
      if (relays) {
        std::uint64_t const relay_at_ns = lanes.broadcast(M::clock_ns());
        if (relay_at_ns - last_relay_ns >= relay_ns / 2) {
          last_relay_ns = relay_at_ns;
          if (lanes.leader()) pass_orders_on();
        }
      }
      if (worked && visits % visits_per_look != 0) continue;
      std::uint64_t const now_ns = lanes.broadcast(M::clock_ns());
      if (worked) {
        last_work_ns = now_ns;
      } else {
        std::uint64_t const due_ns = self.next_due_ns();
        bool const idle = due_ns == simt::no_deadline && now_ns - last_work_ns > idle_ns;
        std::uint64_t const until_ns = due_ns < now_ns + most_rest_ns ? due_ns : now_ns + most_rest_ns;
        bool const found = self.rest(until_ns, idle, words->stop);
        if (found) last_work_ns = now_ns;
        // Commands that were found must not wait for the words below.
        if (visits % visits_per_look != 0 && (found || until_ns == due_ns)) continue;
      }
      bool leave = false;
      if (lanes.leader()) {
        // Relaxed: as in `stopping`.
        std::uint32_t beat = simt::atomic<M, simt::scope::system>(words->beat).load(simt::order::relaxed);
        if (beat == last_beat && orphan_timeout_ns != 0 && now_ns - last_beat_ns > orphan_timeout_ns) {
          // If the host is silent, all dispatchers leave. So the value must not be stale, and the host must not seem
          // silent because the dispatcher that passes orders on is busy for long.
          if (orders != nullptr) pass_orders_on();
          // Relaxed: as in `stopping`; an addition finds the last value that there is.
          beat = simt::atomic<M, simt::scope::system>(words->beat).fetch_add(0, simt::order::relaxed);
        }
        leave = stopping();
        if (beat != last_beat) {
          last_beat = beat;
          last_beat_ns = now_ns;
        } else if (orphan_timeout_ns != 0 && now_ns - last_beat_ns > orphan_timeout_ns) {
          // Relaxed: a counter.
          simt::atomic<M, simt::scope::system>(words->orphaned).fetch_add(1, simt::order::relaxed);
          // Relaxed: as in `stopping`. If only some of the units left, the others would serve no client.
          simt::atomic<M, simt::scope::system>(words->stop).store(1, simt::order::relaxed);
          leave = true;
        }
      }
      if (lanes.any(leave)) return;
    }
  }
};

}  // namespace forebay::emulator
