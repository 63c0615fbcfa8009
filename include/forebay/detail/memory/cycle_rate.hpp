// SPDX-License-Identifier: Apache-2.0
//! \file
//! How many cycles of its multiprocessor a nanosecond has, as the threads that wait find out while they work.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::memory {

/// When something was, by the clock that all threads share and by the finer one of the thread's multiprocessor.
struct moment {
  std::uint64_t ns = 0;
  std::uint64_t cycles = 0;  ///< 0 on a machine that does not count them
};

/// Of one thread. Without `M::counts_cycles` it is empty, and the rate is unknown.
template <class M, bool Counts = M::counts_cycles>
class cycle_rate {
 public:
  FOREBAY_DEVICE explicit cycle_rate(std::uint64_t& /*known*/) {}
  FOREBAY_DEVICE moment look() { return {M::clock_ns(), 0}; }
  FOREBAY_DEVICE float cycles_per_ps() const { return 0; }
};

template <class M>
class cycle_rate<M, true> {
 public:
  /// `known`: what threads found out before, for those that end too soon. It starts as 0.
  FOREBAY_DEVICE explicit cycle_rate(std::uint64_t& known) : known_(&known) {
    // Relaxed, here and below: a number that orders nothing. Any value that a thread stored will do.
    per_ps_ = static_cast<float>(simt::atomic<M>(known).load(simt::order::relaxed)) * 0x1p-40f;
  }

  /// Now. Each look also shows how fast the cycles go.
  FOREBAY_DEVICE moment look() {
    // The finer clock first: what lies between the two readings then belongs to the wait.
    std::uint64_t const cycles = M::cycles();
    moment const now{M::clock_ns(), cycles};
    std::uint64_t const passed_ns = now.ns - since_.ns;
    if (since_.ns == 0) {
      since_ = now;
    } else if (passed_ns >= span_ns) {
      learn(static_cast<float>(now.cycles - since_.cycles) / (static_cast<float>(passed_ns) * 1000));
      since_ = now;
    }
    return now;
  }

  /// 0 as long as nobody knows.
  FOREBAY_DEVICE float cycles_per_ps() const { return per_ps_; }

 private:
  /// A clock that ticks once a microsecond is then read to a hundredth, and a change of the rate is soon seen.
  static constexpr std::uint64_t span_ns = 1 << 17;

  FOREBAY_DEVICE void learn(float per_ps) {
    // A thread that the GPU put aside may go on where the count is another.
    if (!(per_ps > 1e-5f && per_ps < 1e-2f)) return;
    float const change = per_ps - per_ps_;
    bool const is_news = change > per_ps * 0x1p-8f || change < per_ps * -0x1p-8f;
    per_ps_ = per_ps;
    // If each thread told each of its figures, they would wait for one word.
    if (is_news) {
      simt::atomic<M>(*known_).store(static_cast<std::uint64_t>(per_ps * 0x1p40f), simt::order::relaxed);
    }
  }

  std::uint64_t* known_;
  moment since_;
  float per_ps_;
};

}  // namespace forebay::memory
