// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fibers that answer queries about the machine as a GPU does, so that schedules run the code that only a GPU ran.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/detail/simt/wait_in_step.hpp"

namespace forebay::test {

/// Its waits poll, with pauses of at most `longest_ns` of virtual time, and its warps wait in step.
template <class Base = simt::fiber, class WaitRules = simt::in_step_rules, std::uint64_t longest_ns = 1000>
struct gpu_like : Base {
  using location = typename Base::location;

  static constexpr std::uint32_t looks_per_poll = 2;
  static constexpr bool asks_again_and_again = true;
  static constexpr bool lanes_share_looks = true;
  static constexpr bool looks_beside_work = true;
  static constexpr bool lock_holders_go_on = true;

  /// The longest time that it does not look while it waits.
  static constexpr std::uint64_t longest_pause_ns = longest_ns;

  /// How many pauses the schedules of the calling thread made. Each ends at a deadline.
  static std::uint64_t pauses() { return pauses_.load(std::memory_order_relaxed); }  // relaxed: a count
  static void pause(std::uint64_t ns, location where = location::current()) {
    (void)Base::wait_until([] { return false; }, Base::clock_ns() + ns, where);
    // Relaxed: a count. Atomic, because ThreadSanitizer takes each lane for a thread.
    pauses_.fetch_add(1, std::memory_order_relaxed);
  }

  template <class Predicate>
  [[nodiscard]] static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns,
                                       location where = location::current()) {
    for (std::uint64_t pause_ns = longest_pause_ns / 8;; pause_ns = std::min(2 * pause_ns, longest_pause_ns)) {
      std::uint64_t const now_ns = Base::clock_ns();
      if (predicate()) return true;
      if (now_ns >= deadline_ns) return false;
      pause(std::min(pause_ns, deadline_ns - now_ns), where);
    }
  }
  template <class Predicate>
  [[nodiscard]] static bool idle_until(Predicate&& predicate, std::uint64_t deadline_ns,
                                       location where = location::current()) {
    return wait_until(predicate, deadline_ns, where);
  }
  template <class Done, class Help>
  [[nodiscard]] static bool wait_together(typename Base::warp const& lanes, Done&& done, Help&& help,
                                          std::uint64_t deadline_ns) {
    return simt::wait_in_step<gpu_like, WaitRules>(lanes, done, help, deadline_ns);
  }

 private:
  inline static thread_local std::atomic<std::uint64_t> pauses_ = 0;
};

}  // namespace forebay::test
