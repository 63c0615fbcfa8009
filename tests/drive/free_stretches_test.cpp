// SPDX-License-Identifier: Apache-2.0
#include "drive/free_stretches.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "support/seed.hpp"

namespace forebay::drive {
namespace {

TEST(free_stretches, takes_the_lowest_that_is_aligned) {
  free_stretches all;
  EXPECT_FALSE(all.take(1, 1));
  all.add(0x1100, 0x3000);
  EXPECT_EQ(all.take(0x1000, 0x1000), 0x2000u);
  EXPECT_EQ(all.used_bytes(0x2000), 0x1000u);
  EXPECT_EQ(all.take(0x100, 0x100), 0x1100u);
  EXPECT_EQ(all.take(0x1000, 0x1000), 0x3000u);
  EXPECT_FALSE(all.take(0x1000, 0x1000));
  all.give_back(0x2000);
  EXPECT_EQ(all.used_bytes(0x2000), 0u);
  EXPECT_EQ(all.take(0x1000, 0x1000), 0x2000u);
  all.give_back(0x2000);
  all.give_back(0x2000);  // which nobody has
}

TEST(free_stretches, lie_in_one_range_each) {
  free_stretches all;
  all.add(0x1000, 0x1000);
  all.add(0x2000, 0x1000);
  EXPECT_FALSE(all.take(0x2000, 1));
  auto const lower = all.take(0x1000, 1), upper = all.take(0x1000, 1);
  ASSERT_TRUE(lower && upper);
  all.give_back(*upper);
  all.give_back(*lower);
  EXPECT_FALSE(all.take(0x2000, 1));
  EXPECT_TRUE(all.take(0x1000, 1));
}

/// Against a list of what is in use.
TEST(free_stretches, are_never_handed_out_twice_and_join_again) {
  std::uint64_t const seed = emulator::testing::test_seed();
  SCOPED_TRACE(emulator::testing::replay(seed));
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> const ranges = {
      {0x10'0000, 0x8000}, {0x10'8000, 0x4000}, {0x20'0000, 0x10000}};
  free_stretches all;
  for (auto const& [first, bytes] : ranges) all.add(first, bytes);
  std::map<std::uint64_t, std::uint64_t> used;
  for (int step = 0; step < 20'000; ++step) {
    if (random() % 2 == 0 && !used.empty()) {
      auto const one = std::next(used.begin(), static_cast<std::ptrdiff_t>(random() % used.size()));
      all.give_back(one->first);
      used.erase(one);
      continue;
    }
    std::uint64_t const bytes = 1 + random() % 0x2000, alignment = std::uint64_t{1} << random() % 14;
    auto const got = all.take(bytes, alignment);
    if (!got) continue;
    ASSERT_EQ(*got % alignment, 0u);
    ASSERT_TRUE(std::any_of(ranges.begin(), ranges.end(),
                            [&](auto const& r) { return *got >= r.first && *got + bytes <= r.first + r.second; }));
    auto const after = used.lower_bound(*got);
    ASSERT_TRUE(after == used.end() || *got + bytes <= after->first);
    ASSERT_TRUE(after == used.begin() || std::prev(after)->first + std::prev(after)->second <= *got);
    used.emplace(*got, bytes);
  }
  for (auto const& [first, bytes] : used) all.give_back(first);
  for (auto const& [first, bytes] : ranges) EXPECT_TRUE(all.take(bytes, 1)) << "of " << bytes;
}

}  // namespace
}  // namespace forebay::drive
