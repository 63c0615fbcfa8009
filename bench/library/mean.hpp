// SPDX-License-Identifier: Apache-2.0
//! \file
//! The mean of a vector behind a view: every element once, in order, which is as fast as a view can be read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/failure_latch.hpp"
#include "apps/common/random.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

/// Element `i` of the vector that is made for it, in [0, 1): a multiple of 2^-24, so that sums can be exact.
FOREBAY_DEVICE std::uint32_t mean_element_24(std::uint64_t i) {
  return static_cast<std::uint32_t>(apps::mix64(i + 0x632be59bd9b4e019u) >> 40);
}

/// Elements [first, first + count).
template <class M>
struct mean_fill {
  std::uint64_t first;
  std::uint64_t count;
  float* values;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) {
      values[i] = static_cast<float>(mean_element_24(first + i)) * 0x1p-24f;
    }
  }
};

/// The exact sum of the first `count` elements, times 2^24. Warps of 32 lanes.
template <class M>
struct mean_exact {
  std::uint64_t count;
  std::uint64_t* sum;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t mine = 0;
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) mine += mean_element_24(i);
    auto const team = simt::team<M>::here();
    mine = team.sum(mine);
    // relaxed: the host reads it after the grid.
    if (team.leader()) simt::atomic<M>(*sum).fetch_add(mine, simt::order::relaxed);
  }
};

/// Each warp adds up every n-th chunk of the vector, where n is the number of warps. Warps of 32 lanes.
template <class M, class Vector>
struct mean_add {
  Vector vector;
  std::uint64_t chunk;  ///< elements; should be those of a page
  std::uint32_t warps;
  std::uint32_t prefetch_ahead;  ///< how many of its chunks ahead a warp prefetches; 0: it does not
  double* sums;                  ///< one for each warp
  apps::failure_latch* failure;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    std::uint64_t const rank = M::thread_rank() / 32;
    if (rank >= warps) return;
    std::uint64_t const size = vector.size(), apart = chunk * warps;
    auto page = vector.warp_page();
    double sum = 0;
    for (std::uint64_t begin = rank * chunk; begin < size; begin += apart) {
      std::uint64_t const ahead = begin + prefetch_ahead * apart;
      if (prefetch_ahead != 0 && lane == 0 && ahead < size) vector.prefetch(ahead);
      std::uint64_t const end = begin + chunk < size ? begin + chunk : size;
      for (std::uint64_t at = begin; at < end;) {
        if (!failure->passes<M>(page.seek(at))) return;
        std::uint64_t const stop = page.end() < end ? page.end() : end;
        sum += static_cast<double>(add(page, at, stop, lane));
        at = stop;
      }
    }
    for (std::uint32_t d = 16; d != 0; d /= 2) sum += warp.shfl(sum, lane ^ d);
    if (lane == 0) sums[rank] = sum;
  }

 private:
  /// Elements [at, stop), with eight loads of each lane in flight.
  template <class Page>
  FOREBAY_DEVICE static float add(Page const& page, std::uint64_t at, std::uint64_t stop, std::uint32_t lane) {
    constexpr std::uint32_t batch = 8;
    auto const count = static_cast<std::uint32_t>(stop - at);
    float sums[batch] = {};
    std::uint32_t base = 0;
    for (; base + batch * 32 <= count; base += batch * 32) {
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) sums[k] += page[at + base + k * 32 + lane];
    }
    for (std::uint32_t i = base + lane; i < count; i += 32) sums[0] += page[at + i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  }
};

/// Computes the mean any number of times.
template <class Executor, class Vector>
class mean {
  using M = typename Executor::machine;

 public:
  mean(Executor const& run, Vector vector, std::uint64_t chunk = 1024, std::uint32_t prefetch_ahead = 0)
      : run_(run),
        kernel_{vector, chunk, warps_for(run, vector, chunk), prefetch_ahead, nullptr, nullptr},
        sums_(run.memory(), kernel_.warps),
        failure_(run.memory(), 1) {
    kernel_.sums = sums_.data();
    kernel_.failure = failure_.data();
  }

  /// Starts adding up.
  void operator()() const { run_({.blocks = (kernel_.warps + 7) / 8, .threads_per_block = 256}, kernel_); }
  /// Only valid while nothing runs. Of an empty vector the mean is not a number.
  double value() const {
    double sum = 0;
    for (double const s : sums_.to_host()) sum += s;
    return sum / static_cast<double>(kernel_.vector.size());
  }
  apps::failure_latch failures() const { return failure_.to_host()[0]; }

 private:
  static std::uint32_t warps_for(Executor const& run, Vector const& vector, std::uint64_t chunk) {
    std::uint64_t const chunks = (vector.size() + chunk - 1) / chunk;
    return std::max(1u, static_cast<std::uint32_t>(std::min<std::uint64_t>(2 * run.warps(), chunks)));
  }

  Executor const& run_;
  mean_add<M, Vector> kernel_;
  apps::device_array<double> sums_;
  apps::device_array<apps::failure_latch> failure_;
};

/// The best rate of the memory: reads all of it in 16-byte loads, and uses none of the data.
template <class M>
struct mean_read_all {
  simt::vec16 const* from;
  std::uint64_t count;
  std::uint32_t* sink;

  FOREBAY_DEVICE void operator()() const {
    constexpr std::uint32_t batch = 8;
    std::uint64_t const threads = M::thread_count();
    std::uint64_t mixed = 0;
    for (std::uint64_t i = M::thread_rank(); i < count; i += batch * threads) {
      simt::vec16 part[batch];
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k)
        part[k] = i + k * threads < count ? M::ld(from + i + k * threads) : simt::vec16{};
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) mixed ^= part[k].low ^ part[k].high;
    }
    // Never true, which the compiler cannot know.
    if (mixed == 0x6a09e667f3bcc908u) *sink = 1;
  }
};

}  // namespace forebay::bench
