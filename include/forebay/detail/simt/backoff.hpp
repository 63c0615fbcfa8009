// SPDX-License-Identifier: Apache-2.0
//! \file
//! What an OS thread does between two looks at what it waits for.
#pragma once

#include <cstdint>

namespace forebay::simt {

/// Looks again at once, for as long as a cached answer takes; then yields, for as long as a fast drive may take; then
/// sleeps, an eighth of what it has waited so far at a time. So a wait is longer than it must be by an eighth at most,
/// and a thread that has nothing to do leaves its processor to others. Yielding alone does not: of clients and a
/// daemon whose many threads only yielded, Linux 6.18 was seen to run these alone for a minute. It did not run its own
/// threads, which complete the writes of files. Each thread has its own.
class backoff {
 public:
  static constexpr std::uint64_t looking_ns = 2'000;
  static constexpr std::uint64_t yielding_ns = 200'000;
  /// In the first `precise_wait_ns` of a wait the thread does not sleep into the last `waking_ns` before its end.
  static constexpr std::uint64_t waking_ns = 100'000;
  static constexpr std::uint64_t precise_wait_ns = 2'000'000;
  /// After them it always sleeps, however near the end is.
  static constexpr std::uint64_t shortest_nap_ns = 10'000;
  static constexpr std::uint64_t longest_nap_ns = 50'000;
  /// Once it has waited for `long_wait_ns`.
  static constexpr std::uint64_t longest_sleep_ns = 500'000;
  static constexpr std::uint64_t long_wait_ns = 1'000'000'000;

  /// How long to sleep after a wait of `waited_ns`; 0: not at all.
  static constexpr std::uint64_t nap_ns(std::uint64_t waited_ns) {
    if (waited_ns < yielding_ns) return 0;
    if (waited_ns >= long_wait_ns) return longest_sleep_ns;
    return waited_ns / 8 < longest_nap_ns ? waited_ns / 8 : longest_nap_ns;
  }

  /// After a look in vain, at `now_ns` of `native::clock_ns()`. Does not sleep beyond `latest_ns`, or by
  /// `shortest_nap_ns` at most.
  void pause(std::uint64_t now_ns, std::uint64_t latest_ns) {
    if (!waits_) {
      waits_ = true;
      since_ns_ = now_ns;
    }
    if (now_ns - since_ns_ >= looking_ns) rest(now_ns, latest_ns);
  }
  /// What it waited for has come: the next `pause` begins another wait.
  void start_over() { waits_ = false; }

 private:
  void rest(std::uint64_t now_ns, std::uint64_t latest_ns) const;

  std::uint64_t since_ns_ = 0;
  bool waits_ = false;
};

}  // namespace forebay::simt
