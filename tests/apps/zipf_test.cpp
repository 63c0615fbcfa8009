// SPDX-License-Identifier: Apache-2.0
#include "apps/common/zipf.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "apps/chi_square.hpp"
#include "apps/common/random.hpp"
#include "support/seed.hpp"

namespace forebay::test {
namespace {

using emulator::testing::replay;
using emulator::testing::test_seed;

TEST(ChiSquare, TellsADistributionFromOneThatIsClose) {
  std::vector<double> const fair(10, 0.1);
  EXPECT_LT(chi_square_excess(std::vector<std::uint64_t>(10, 1000), fair), 0.01);
  EXPECT_GT(chi_square_excess({1300, 700, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, fair), 1);
  EXPECT_GT(chi_square_excess({2000, 0, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000}, fair), 1);
}

TEST(Zipf, HasTheExactProbabilities) {
  std::uint64_t const seed = test_seed();
  SCOPED_TRACE(replay(seed));
  for (double const skew : {0.0, 0.3, 0.8, 0.99, 1.0, 1.0 + 1e-12, 1.2, 2.0, 4.0}) {
    for (std::uint64_t const items : {1u, 2u, 3u, 10u, 1000u}) {
      apps::zipf const draw(items, skew);
      apps::splitmix64 random(seed, items);
      std::vector<std::uint64_t> counts(items);
      for (std::uint32_t k = 0; k < 300'000; ++k) {
        std::uint64_t const item = draw(random);
        ASSERT_LT(item, items);
        ++counts[item];
      }
      EXPECT_LT(chi_square_excess(counts, zipf_probabilities(items, skew)), 1) << items << " items, skew " << skew;
    }
  }
}

TEST(Zipf, HasThemForMoreItemsThanDraws) {
  std::uint64_t const seed = test_seed();
  SCOPED_TRACE(replay(seed));
  constexpr std::uint64_t items = 3'000'000;
  for (double const skew : {0.5, 0.99, 1.1}) {
    std::vector<double> const each = zipf_probabilities(items, skew);
    auto const bin_of = [](std::uint64_t item) {
      return item < 64 ? item : 64 + static_cast<std::uint64_t>(8 * std::log2(static_cast<double>(item) / 64));
    };
    std::vector<double> probabilities(bin_of(items - 1) + 1);
    for (std::uint64_t k = 0; k < items; ++k) probabilities[bin_of(k)] += each[k];
    apps::zipf const draw(items, skew);
    apps::splitmix64 random(seed, 0);
    std::vector<std::uint64_t> counts(probabilities.size());
    for (std::uint32_t k = 0; k < 1'000'000; ++k) ++counts[bin_of(draw(random))];
    EXPECT_LT(chi_square_excess(counts, probabilities), 1) << "skew " << skew;
  }
}

TEST(Zipf, StaysWithinHugeNumbersOfItems) {
  for (double const skew : {0.0, 0.5, 1.0, 1.5, 3.0}) {
    std::uint64_t const items = std::uint64_t{1} << 52;
    apps::zipf const draw(items, skew);
    apps::splitmix64 random(1, 2);
    std::uint64_t most = 0;
    for (std::uint32_t k = 0; k < 100'000; ++k) {
      std::uint64_t const item = draw(random);
      ASSERT_LT(item, items);
      most = item > most ? item : most;
    }
    EXPECT_GT(most, 10u);
    if (skew < 1) {
      EXPECT_GT(most, items / 2);
    }
  }
}

/// Counts the draws.
struct counting {
  apps::splitmix64 random;
  std::uint64_t numbers = 0;
  std::uint64_t next() {
    ++numbers;
    return random.next();
  }
};

TEST(Zipf, NeedsHardlyMoreThanOneNumberADraw) {
  for (double const skew : {0.0, 0.5, 0.99, 1.2, 2.0, 4.0}) {
    for (std::uint64_t const items : {2u, 100u, 1'000'000u}) {
      apps::zipf const draw(items, skew);
      counting random{apps::splitmix64(3, 4)};
      for (std::uint32_t k = 0; k < 100'000; ++k) draw(random);
      EXPECT_LT(random.numbers, 103'000u) << items << " items, skew " << skew;
    }
  }
}

}  // namespace
}  // namespace forebay::test
