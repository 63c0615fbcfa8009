// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/paged_view.hpp"
#include "library/mean.hpp"

namespace forebay::bench {
namespace {

using cpu_executor = apps::executor<simt::fiber>;
using testing::paged_array;
using testing::paged_view;
using paged_mean = mean<cpu_executor, paged_view<float>>;

void fill(paged_array<float>& vector, std::size_t size) {
  cpu_executor const run;
  vector.elements.resize(size);
  run({.blocks = 1, .threads_per_block = 32}, mean_fill<simt::fiber>{0, size, vector.elements.data()});
}

TEST(library_mean, is_the_mean_for_any_size_page_and_chunk) {
  cpu_executor const run;
  for (std::size_t const size : {1, 31, 32, 256, 257, 4096, 20000}) {
    paged_array<float> vector;
    fill(vector, size);
    double const want =
        std::accumulate(vector.elements.begin(), vector.elements.end(), 0.0) / static_cast<double>(size);
    std::uint64_t exact = 0;
    run({.blocks = 2, .threads_per_block = 64}, mean_exact<simt::fiber>{size, &exact});
    EXPECT_DOUBLE_EQ(static_cast<double>(exact) * 0x1p-24 / static_cast<double>(size), want);
    for (std::uint64_t const page : {1, 100, 1024}) {
      for (std::uint64_t const chunk : {7, 1024, 5000}) {
        vector.page_elements = page;
        paged_mean const work(run, paged_view(vector), chunk, 1);
        work();
        EXPECT_NEAR(work.value(), want, 1e-6) << size << ' ' << page << ' ' << chunk;
        EXPECT_EQ(work.failures().failures, 0u);
      }
    }
    EXPECT_EQ(vector.stray_prefetches, 0u);
  }
}

TEST(library_mean, each_page_is_asked_for_once_and_prefetched_but_for_a_warps_first) {
  cpu_executor const run;
  paged_array<float> vector;
  fill(vector, 64 * 1024);
  vector.page_elements = 1024;
  paged_mean const work(run, paged_view(vector), 1024, 1);
  work();
  EXPECT_EQ(vector.moves, 64u);
  EXPECT_EQ(vector.prefetches, 64u - 2 * run.warps());
}

TEST(library_mean, a_page_that_cannot_be_had_is_told) {
  cpu_executor const run;
  paged_array<float> vector;
  fill(vector, 5000);
  vector.bad_page = 100;
  paged_mean const work(run, paged_view(vector), 512);
  work();
  EXPECT_EQ(work.failures().failures, 32u);
  EXPECT_EQ(work.failures().status_bits, status::from_nvme(0x281).bits());
}

}  // namespace
}  // namespace forebay::bench
