// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "forebay/detail/simt/native.hpp"

namespace forebay::emulator {
namespace {

using simt::native;

TEST(histogram, every_duration_lies_in_its_bin) {
  for (std::uint64_t ns = 0; ns < 100'000; ++ns) {
    std::uint32_t const bin = histogram::bin_of(ns);
    ASSERT_LE(ns, histogram::upper_ns(bin));
    ASSERT_TRUE(bin == 0 || ns > histogram::upper_ns(bin - 1));
  }
  EXPECT_EQ(histogram::bin_of(~std::uint64_t{0}), histogram::bins - 1);
}

TEST(histogram, bins_are_at_most_one_in_64_wide) {
  for (std::uint32_t bin = 129; bin < histogram::bins; ++bin) {
    double const low = static_cast<double>(histogram::upper_ns(bin - 1));
    ASSERT_LE(static_cast<double>(histogram::upper_ns(bin)) - low, low / 63) << bin;
  }
}

TEST(histogram, percentiles_follow_the_sample) {
  std::mt19937_64 random(5);
  auto const h = std::make_unique<histogram>();
  std::vector<std::uint64_t> sample;
  for (int i = 0; i < 10'000; ++i) {
    sample.push_back(static_cast<std::uint64_t>(std::exp2(static_cast<double>(random() % 3000) / 100.0)));
    h->record(simt::team<native>::here(), true, sample.back());
  }
  std::sort(sample.begin(), sample.end());
  for (double const fraction : {0.5, 0.9, 0.99, 0.999, 1.0}) {
    auto const rank = static_cast<std::size_t>(std::ceil(fraction * 10'000)) - 1;
    double const exact = static_cast<double>(sample[rank]);
    EXPECT_GE(static_cast<double>(h->percentile_ns(fraction)), exact);
    EXPECT_LE(static_cast<double>(h->percentile_ns(fraction)), exact * (1 + 1 / 63.0) + 1);
  }
  EXPECT_EQ(h->percentile_ns(1.0), sample.back());
  EXPECT_EQ(h->max_ns, sample.back());
}

TEST(histogram, above_counts_what_is_longer_than_the_bound) {
  auto const h = std::make_unique<histogram>();
  for (std::uint64_t ns : {1u, 5000u, 6000u, 70'000u}) h->record(simt::team<native>::here(), true, ns);
  EXPECT_EQ(h->above(5000), 2u);
  EXPECT_EQ(h->above(100'000), 0u);
  EXPECT_EQ(histogram{}.percentile_ns(0.99), 0u);
}

TEST(histogram, merge_adds_up) {
  auto const a = std::make_unique<histogram>(), b = std::make_unique<histogram>();
  a->record(simt::team<native>::here(), true, 10);
  b->record(simt::team<native>::here(), true, 10);
  b->record(simt::team<native>::here(), true, 1000);
  a->merge<native>(*b);
  EXPECT_EQ(a->total(), 3u);
  EXPECT_EQ(a->sum_ns, 1020u);
  EXPECT_EQ(a->max_ns, 1000u);
  EXPECT_EQ(a->percentile_ns(0.5), 10u);
}

}  // namespace
}  // namespace forebay::emulator
