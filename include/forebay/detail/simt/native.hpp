// SPDX-License-Identifier: Apache-2.0
//! \file
//! The machine of plain CPU threads: a warp has one lane, a block has one thread, and time is real.
//!
//! The emulator's engine, the driver's waits and the host's own queue pairs run on it. Under ThreadSanitizer the
//! atomics are the compiler's own, so that a missing order is found.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "forebay/detail/simt/backoff.hpp"
#include "forebay/detail/simt/host_atomic.hpp"
#include "forebay/detail/simt/machine_traits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

struct native : machine_traits {
  static constexpr std::uint32_t full_warp_lanes = 1;
  static constexpr bool lanes_are_alone = true;
  static constexpr bool reaches_files = true;

  template <word T, scope S>
  class atomic_ref {
   public:
    explicit atomic_ref(T& object) : object_(&object) {}
    T load(order o) const { return detail::host_load(object_, o); }
    void store(T value, order o) const { detail::host_store(object_, value, o); }
    T exchange(T value, order o) const { return detail::host_exchange(object_, value, o); }
    T fetch_add(T value, order o) const { return detail::host_fetch_add(object_, value, o); }
    T fetch_sub(T value, order o) const { return detail::host_fetch_sub(object_, value, o); }
    T fetch_or(T value, order o) const { return detail::host_fetch_or(object_, value, o); }
    T fetch_and(T value, order o) const { return detail::host_fetch_and(object_, value, o); }
    /// Raises the object to `value` if it is less; returns the value before.
    T fetch_max(T value, order o) const { return detail::host_fetch_max(object_, value, o); }
    /// On failure `expected` receives what was found, read with order relaxed.
    bool compare_exchange(T& expected, T desired, order success) const {
      return detail::host_compare_exchange(object_, expected, desired, success);
    }

   private:
    T* object_;
  };

  static void fence(scope, order o) { detail::host_fence(o); }

  template <plain T>
  static T ld(T const* address) {
    return *address;
  }
  template <plain T>
  static void st(T* address, std::type_identity_t<T> value) {
    *address = value;
  }
  /// Starts to read the byte at `address`. The value goes to `finish_loads`, which returns when it is there.
  static std::uint32_t start_load(std::byte const* address) { return static_cast<std::uint32_t>(ld(address)); }
  static void finish_loads(std::uint32_t /*values*/) {}

  /// Two neighbouring words, at a multiple of 16 bytes. Each is read as by a relaxed atomic load at device scope.
  static vec16 load_pair(std::uint64_t const* words) {
    return {detail::host_load(words, order::relaxed), detail::host_load(words + 1, order::relaxed)};
  }
  /// Reads memory that other threads may be overwriting; the result may be any mixture of old and new bytes. The value
  /// may be used only if an atomic load of some word afterwards, which this load is ordered before, shows that no
  /// thread did.
  template <plain T>
  static T ld_speculative(T const* address) {
    T const value = detail::host_load_racy(address);
    detail::host_fence(order::acquire);
    return value;
  }

  /// Moves `bytes` bytes between areas that do not overlap; one thread does all of it.
  static void copy(void* to, void const* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

  /// Stores to a controller's doorbell register. Order it after the entries with `fence(scope::system,
  /// order::release)`.
  static void st_mmio(std::uint32_t* doorbell, std::uint32_t value) {
    detail::host_store(doorbell, value, order::relaxed);
  }

  /// Nanoseconds of a monotonic clock whose origin is unspecified.
  static std::uint64_t clock_ns() {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  }

  /// Evaluates `predicate` until it holds (true) or `clock_ns()` reaches `deadline_ns` (false), backing off in between.
  template <class Predicate>
  [[nodiscard]] static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns) {
    for (backoff between_looks;;) {
      if (predicate()) return true;
      std::uint64_t const now_ns = clock_ns();
      // A thread that was held up looks once more.
      if (now_ns >= deadline_ns) return predicate();
      between_looks.pause(now_ns, deadline_ns);
    }
  }

  /// The same for a wait that may be long and whose end is not urgent.
  template <class Predicate>
  [[nodiscard]] static bool idle_until(Predicate&& predicate, std::uint64_t deadline_ns) {
    return wait_until(predicate, deadline_ns);
  }

  static void check(bool holds, char const* what) {
    if (holds) return;
    std::fprintf(stderr, "forebay: check failed: %s\n", what);
    std::abort();
  }

  /// The one-lane warp: every collective is the identity.
  struct warp {
    static constexpr std::uint32_t thread_rank() { return 0; }
    static constexpr std::uint32_t size() { return 1; }
    static constexpr std::uint32_t mask() { return 1; }
    warp subset(std::uint32_t) const { return {}; }
    void sync() const {}
    bool any(bool p) const { return p; }
    bool all(bool p) const { return p; }
    std::uint32_t ballot(bool p) const { return p ? 1u : 0u; }
    template <class T>
    T shfl(T value, std::uint32_t) const {
      return value;
    }
    template <word T>
    std::uint32_t match_any(T) const {
      return 1;
    }
  };
  static warp this_warp() { return {}; }
  static warp converged() { return {}; }

  /// Waits until `done()` holds or the deadline has passed; returns whether it holds. Calls `help()` meanwhile, which
  /// returns whether it did anything.
  template <class Done, class Help>
  [[nodiscard]] static bool wait_together(warp const&, Done&& done, Help&& help, std::uint64_t deadline_ns) {
    return wait_until(
        [&] {
          std::uint32_t late_helps = 0;
          while (!done()) {
            if (!help()) return done();
            if (clock_ns() >= deadline_ns && ++late_helps == late_helps_max) return done();
          }
          return true;
        },
        deadline_ns);
  }

  /// The one-thread block.
  struct block {
    std::uint32_t rank = 0;
    static constexpr std::uint32_t thread_rank() { return 0; }
    static constexpr std::uint32_t size() { return 1; }
    void sync() const {}
  };
  static block this_block() { return {}; }
  /// Rank of the calling thread in its grid, and how many the grid has. A native thread is a grid of its own.
  static std::uint32_t thread_rank() { return 0; }
  static std::uint32_t thread_count() { return 1; }
  /// A number that distinguishes the calling thread's grid from others that run at the same time. Grids of a launch
  /// have numbers below `host_grids`.
  static std::uint32_t grid_id() {
    static std::atomic<std::uint32_t> next{0};
    // Relaxed: the numbers only have to differ.
    thread_local std::uint32_t const mine = host_grids | next.fetch_add(1, std::memory_order_relaxed);
    return mine;
  }
};

}  // namespace forebay::simt
