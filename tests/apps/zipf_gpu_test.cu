// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "apps/chi_square.hpp"
#include "apps/common/random.hpp"
#include "apps/common/zipf.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/memory.hpp"

namespace forebay::test {
namespace {

struct counts_draws {
  apps::zipf draw;
  std::uint64_t seed;
  std::uint32_t draws_per_thread;
  std::uint64_t* counts;
  FOREBAY_DEVICE void operator()() const {
    using M = simt::cuda;
    apps::splitmix64 random(seed, M::thread_rank());
    for (std::uint32_t k = 0; k < draws_per_thread; ++k) {
      // Relaxed: the end of the launch orders it before the host's read.
      simt::atomic<M>(counts[draw(random)]).fetch_add(1, simt::order::relaxed);
    }
  }
};

TEST(ZipfOnGpu, HasTheExactProbabilities) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  constexpr std::uint64_t items = 1000;
  for (double const skew : {0.0, 0.5, 0.99, 1.0, 1.2, 2.0}) {
    memory::allocation counts(memory::pinned(), items * sizeof(std::uint64_t), 128);
    auto* const words = counts.as<std::uint64_t>();
    for (std::uint64_t k = 0; k < items; ++k) words[k] = 0;
    memory::cuda_stream const stream(0);
    simt::launch<simt::cuda>({.blocks = 16, .threads_per_block = 128},
                             counts_draws{apps::zipf(items, skew), 5, 200, words}, stream.get());
    stream.synchronize();
    std::vector<std::uint64_t> const seen(words, words + items);
    EXPECT_LT(chi_square_excess(seen, zipf_probabilities(items, skew)), 1) << "skew " << skew;
  }
}

}  // namespace
}  // namespace forebay::test
