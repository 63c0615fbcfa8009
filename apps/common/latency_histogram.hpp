// SPDX-License-Identifier: Apache-2.0
//! \file
//! Latencies of many commands, recorded by many threads of any machine, in bins whose width grows with the value.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "forebay/machine.hpp"

namespace forebay::apps {

/// The bins of fio's `io_u_plat`: 64 for each power of two, so a value is off by less than 1/64 of itself; values below
/// 128 are exact.
struct latency_bins {
  static constexpr std::uint32_t bits = 6;
  static constexpr std::uint32_t per_octave = 1u << bits;
  static constexpr std::uint32_t count = (64 - bits + 1) * per_octave;

  FOREBAY_DEVICE static constexpr std::uint32_t index(std::uint64_t value) {
    if (value < per_octave) return static_cast<std::uint32_t>(value);
    std::uint32_t const shift = floor_log2(value) - bits;
    return (shift + 1) * per_octave + static_cast<std::uint32_t>((value >> shift) - per_octave);
  }
  /// The middle of bin `index`.
  static constexpr std::uint64_t value(std::uint32_t index) {
    if (index < 2 * per_octave) return index;
    std::uint32_t const shift = index / per_octave - 1;
    return (std::uint64_t{per_octave + index % per_octave} << shift) + (std::uint64_t{1} << (shift - 1));
  }

 private:
  FOREBAY_DEVICE static constexpr std::uint32_t floor_log2(std::uint64_t value) {
    std::uint32_t result = 0;
    for (std::uint32_t step = 32; step != 0; step /= 2) {
      if (value >> step != 0) {
        value >>= step;
        result += step;
      }
    }
    return result;
  }
};

/// Exact moments of a set of latencies in nanoseconds.
struct latency_summary {
  std::uint64_t count = 0;
  std::uint64_t min_ns = ~std::uint64_t{0};
  std::uint64_t max_ns = 0;
  double mean_ns = 0;
  double squared_deviations = 0;  ///< sum of (latency - mean)^2

  FOREBAY_DEVICE void add(std::uint64_t latency_ns) {
    count += 1;
    if (latency_ns < min_ns) min_ns = latency_ns;
    if (latency_ns > max_ns) max_ns = latency_ns;
    // Welford: one pass, without the cancellation of a sum of squares.
    double const value = static_cast<double>(latency_ns);
    double const delta = value - mean_ns;
    mean_ns += delta / static_cast<double>(count);
    squared_deviations += delta * (value - mean_ns);
  }
  /// Chan, Golub and LeVeque (1979): moments of the union of two disjoint sets.
  void merge(latency_summary const& other) {
    if (other.count == 0) return;
    double const n = static_cast<double>(count), m = static_cast<double>(other.count);
    double const delta = other.mean_ns - mean_ns;
    mean_ns += delta * m / (n + m);
    squared_deviations += other.squared_deviations + delta * delta * n * m / (n + m);
    count += other.count;
    if (other.min_ns < min_ns) min_ns = other.min_ns;
    if (other.max_ns > max_ns) max_ns = other.max_ns;
  }
  double stddev_ns() const { return count > 1 ? std::sqrt(squared_deviations / static_cast<double>(count - 1)) : 0; }
};

/// One thread's recorder: moments of its own, bins that the threads share.
template <class M>
class latency_recorder {
 public:
  /// `bins` points at `latency_bins::count` words, zeroed before the first launch. `so_far` is what this thread
  /// recorded in earlier launches.
  FOREBAY_DEVICE explicit latency_recorder(std::uint64_t* bins, latency_summary const& so_far = {})
      : bins_(bins), summary_(so_far) {}

  FOREBAY_DEVICE void add(std::uint64_t latency_ns) {
    summary_.add(latency_ns);
    // relaxed: a counter; the host reads it after the launch has ended.
    simt::atomic<M>(bins_[latency_bins::index(latency_ns)]).fetch_add(1, simt::order::relaxed);
  }
  FOREBAY_DEVICE latency_summary const& summary() const { return summary_; }

 private:
  std::uint64_t* bins_;
  latency_summary summary_;
};

/// The summary that the host computes from it.
struct latency_distribution {
  latency_summary summary;
  std::vector<std::uint64_t> bins = std::vector<std::uint64_t>(latency_bins::count);

  /// The smallest latency that at least `percent` percent of the commands did not exceed; 0 where there is none.
  std::uint64_t percentile_ns(double percent) const {
    double const wanted = std::ceil(percent / 100.0 * static_cast<double>(summary.count));
    std::uint64_t seen = 0;
    for (std::uint32_t i = 0; i < latency_bins::count; ++i) {
      seen += bins[i];
      if (seen == 0 || static_cast<double>(seen) < wanted) continue;
      std::uint64_t const middle = latency_bins::value(i);
      return middle < summary.min_ns ? summary.min_ns : middle > summary.max_ns ? summary.max_ns : middle;
    }
    return 0;
  }
};

}  // namespace forebay::apps
