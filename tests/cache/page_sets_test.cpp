// SPDX-License-Identifier: Apache-2.0
//! \file
//! Pages and (set, tag) name each other, for any number of sets.
#include "forebay/detail/cache/page_sets.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace forebay {
namespace {

std::vector<std::uint32_t> set_counts(std::uint64_t seed) {
  std::vector<std::uint32_t> counts = {1,
                                       2,
                                       3,
                                       4,
                                       5,
                                       7,
                                       8,
                                       13,
                                       16,
                                       31,
                                       64,
                                       97,
                                       127,
                                       1000,
                                       4096,
                                       65535,
                                       65537,
                                       1u << 20,
                                       (1u << 24),
                                       16777213,
                                       (1u << 24) + 1,
                                       (1u << 31),
                                       (1u << 31) + 1,
                                       4294967291u,
                                       4294967295u};
  std::mt19937_64 random(seed);
  for (int i = 0; i < 40; ++i) counts.push_back(1 + static_cast<std::uint32_t>(random() >> (32 + random() % 31)));
  return counts;
}

void expect_named(page_sets const& sets, std::uint64_t page) {
  page_location const at = sets.locate(page);
  ASSERT_LT(at.set, sets.sets()) << "page " << page << " of " << sets.sets() << " sets";
  ASSERT_EQ(at.tag, page / sets.sets()) << "page " << page << " of " << sets.sets() << " sets";
  ASSERT_EQ(sets.page_of(at), page) << sets.sets() << " sets";
}

TEST(PageSets, EveryPageIsFoundUnderItsSetAndTag) {
  std::uint64_t const seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (std::uint32_t const count : set_counts(seed)) {
    page_sets const sets(count);
    // Where the quotient changes, and at the ends of the range.
    std::uint64_t const end = (std::uint64_t{1} << 32) * count;
    for (std::uint64_t k = 0; k < 300; ++k) {
      expect_named(sets, k);
      expect_named(sets, end - 1 - k);
      std::uint64_t const multiple = random() % (std::uint64_t{1} << 32) * count;
      expect_named(sets, multiple);
      expect_named(sets, multiple + count - 1);
      expect_named(sets, random() % end);
    }
  }
}

TEST(PageSets, ATagNamesEverySetOnce) {
  for (std::uint32_t const count : {1u, 2u, 3u, 16u, 97u, 1000u, 4096u}) {
    page_sets const sets(count);
    for (std::uint64_t const tag : {0u, 1u, 2u, 12345u, (1u << 28) - 1}) {
      std::set<std::uint32_t> seen;
      for (std::uint64_t k = 0; k < count; ++k) seen.insert(sets.locate(tag * count + k).set);
      EXPECT_EQ(seen.size(), count) << "tag " << tag;
    }
  }
}

TEST(PageSets, NeighboursLieInNeighbouringSets) {
  for (std::uint32_t const count : {2u, 3u, 64u, 97u, 1000u, (1u << 24) + 1}) {
    page_sets const sets(count);
    for (std::uint64_t page = 0; page < 100000; ++page) {
      page_location const one = sets.locate(page), next = sets.locate(page + 1);
      if (one.tag != next.tag) continue;
      ASSERT_EQ(next.set, (one.set + 1) % count) << "page " << page;
    }
  }
}

TEST(PageSets, PagesOneColumnApartSpreadOverTheSets) {
  // A matrix whose rows are as many pages as there are sets: its columns, walked down, must not crowd one set.
  for (std::uint32_t const count : {64u, 97u, 1000u, 4096u}) {
    page_sets const sets(count);
    std::vector<std::uint32_t> crowd(count);
    for (std::uint64_t row = 0; row < 4 * std::uint64_t{count}; ++row) ++crowd[sets.locate(row * count + 5).set];
    for (std::uint32_t s = 0; s < count; ++s) {
      EXPECT_GE(crowd[s], 2u) << "set " << s << " of " << count;
      EXPECT_LE(crowd[s], 6u) << "set " << s << " of " << count;
    }
  }
}

}  // namespace
}  // namespace forebay
