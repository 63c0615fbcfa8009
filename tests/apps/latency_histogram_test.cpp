// SPDX-License-Identifier: Apache-2.0
#include "apps/common/latency_histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "apps/common/random.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::apps {
namespace {

std::uint64_t log_uniform(std::mt19937_64& random) {
  return random() >> random() % 64;
}

TEST(latency_bins, values_below_128_have_bins_of_their_own) {
  for (std::uint64_t v = 0; v < 128; ++v) EXPECT_EQ(latency_bins::value(latency_bins::index(v)), v);
}

TEST(latency_bins, order_is_kept_and_the_error_is_below_one_in_64) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t const a = log_uniform(random), b = log_uniform(random);
    if (a <= b) {
      EXPECT_LE(latency_bins::index(a), latency_bins::index(b)) << a << ' ' << b;
    }
    double const error =
        std::abs(static_cast<double>(latency_bins::value(latency_bins::index(a))) - static_cast<double>(a));
    ASSERT_LE(error, static_cast<double>(a) / 64) << a;
  }
}

TEST(latency_bins, the_largest_value_has_the_last_bin) {
  EXPECT_EQ(latency_bins::index(~std::uint64_t{0}), latency_bins::count - 1);
}

TEST(latency_recorder, merged_moments_and_percentiles_are_those_of_all_values) {
  std::mt19937_64 random(11);
  latency_distribution all;
  std::vector<latency_recorder<simt::native>> threads(4, latency_recorder<simt::native>(all.bins.data()));
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 20000; ++i) {
    std::uint64_t const v = 400'000 + random() % 300'000;
    threads[random() % 3].add(v);  // the fourth records nothing
    values.push_back(v);
  }
  for (auto const& t : threads) all.summary.merge(t.summary());
  std::sort(values.begin(), values.end());
  double mean = 0, variance = 0;
  for (auto v : values) mean += static_cast<double>(v) / 20000;
  for (auto v : values) variance += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean) / 19999;

  EXPECT_EQ(all.summary.count, values.size());
  EXPECT_EQ(all.summary.min_ns, values.front());
  EXPECT_EQ(all.summary.max_ns, values.back());
  EXPECT_NEAR(all.summary.mean_ns, mean, mean * 1e-9);
  EXPECT_NEAR(all.summary.stddev_ns(), std::sqrt(variance), std::sqrt(variance) * 1e-6);
  for (double percent : {1.0, 50.0, 90.0, 99.0, 99.9}) {
    auto const exact = static_cast<double>(values[static_cast<std::size_t>(std::ceil(percent * 200)) - 1]);
    EXPECT_NEAR(static_cast<double>(all.percentile_ns(percent)), exact, exact / 64) << percent;
  }
  EXPECT_EQ(all.percentile_ns(100), values.back());
}

TEST(latency_distribution, of_nothing_has_percentiles_of_zero) {
  EXPECT_EQ(latency_distribution().percentile_ns(99), 0u);
}

TEST(splitmix64, below_is_uniform_and_streams_differ) {
  splitmix64 a(1, 0), b(1, 1), again(1, 0);
  std::vector<int> counts(10);
  bool differs = false;
  for (int i = 0; i < 100000; ++i) {
    std::uint64_t const v = a.below(10);
    ASSERT_EQ(v, again.below(10));
    differs |= v != b.below(10);
    ++counts[v];
  }
  EXPECT_TRUE(differs);
  for (int c : counts) EXPECT_NEAR(c, 10000, 500);
  EXPECT_GT(splitmix64(3, 0).below(~std::uint64_t{0}), std::uint64_t{1} << 32);
}

}  // namespace
}  // namespace forebay::apps
