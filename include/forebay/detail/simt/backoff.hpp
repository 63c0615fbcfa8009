// SPDX-License-Identifier: Apache-2.0
//! \file
//! What an OS thread does between two looks at what it waits for.
#pragma once

#include <cstdint>

namespace forebay::simt {

/// First looks again at once, for as long as a cached answer takes. Then yields, for as long as a fast drive may take.
/// Then sleeps, each time for an eighth of what it has waited so far. So a wait lasts at most an eighth longer than it
/// must, and a thread that has nothing to do leaves its processor to others. Yielding alone does not achieve that. When
/// the many threads of clients and of a daemon only yielded, Linux 6.18 was seen to run nothing but these threads for a
/// minute. It did not run its own threads, which complete the writes of files. Each thread has its own object.
///
/// If there is `waiting_work`, the thread does that first, and rests only if it had nothing to do or to wait for.
class backoff {
 public:
  static constexpr std::uint64_t looking_ns = 2'000;
  static constexpr std::uint64_t yielding_ns = 200'000;
  /// In the first `precise_wait_ns` of a wait, the thread does not sleep during the last `waking_ns` before the end of
  /// the wait.
  static constexpr std::uint64_t waking_ns = 100'000;
  static constexpr std::uint64_t precise_wait_ns = 2'000'000;
  /// After the first `precise_wait_ns` it always sleeps, however near the end is.
  static constexpr std::uint64_t shortest_nap_ns = 10'000;
  static constexpr std::uint64_t longest_nap_ns = 50'000;
  /// The longest sleep, once the thread has waited for `long_wait_ns`.
  static constexpr std::uint64_t longest_sleep_ns = 500'000;
  static constexpr std::uint64_t long_wait_ns = 1'000'000'000;

  /// How long to sleep after a wait of `waited_ns`; 0: not at all.
  static constexpr std::uint64_t nap_ns(std::uint64_t waited_ns) {
    if (waited_ns < yielding_ns) return 0;
    if (waited_ns >= long_wait_ns) return longest_sleep_ns;
    return waited_ns / 8 < longest_nap_ns ? waited_ns / 8 : longest_nap_ns;
  }

  /// Called after a look in vain, at `now_ns` of `native::clock_ns()`. Does not sleep beyond `latest_ns` by more than
  /// `shortest_nap_ns`.
  void pause(std::uint64_t now_ns, std::uint64_t latest_ns) {
    if (!waits_) {
      waits_ = true;
      since_ns_ = now_ns;
    }
    rest(now_ns, latest_ns);
  }
  /// How long the thread has waited, if it has called `pause` since it last got something.
  std::uint64_t waited_ns(std::uint64_t now_ns) const { return waits_ ? now_ns - since_ns_ : 0; }
  /// The thread has got what it waited for: the next `pause` begins another wait.
  void start_over() { waits_ = false; }

 private:
  void rest(std::uint64_t now_ns, std::uint64_t latest_ns) const;

  std::uint64_t since_ns_ = 0;
  bool waits_ = false;
};

}  // namespace forebay::simt
