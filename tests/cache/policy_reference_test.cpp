// SPDX-License-Identifier: Apache-2.0
//! \file
//! Each policy evicts the very pages that its textbook version evicts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iomanip>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/schedulers.hpp"
#include "policy_hits.hpp"
#include "policy_models.hpp"
#include "policy_set.hpp"
#include "policy_traces.hpp"
#include "support/folders.hpp"
#include "support/seed.hpp"

namespace forebay::test {
namespace {

using emulator::testing::replay;
using emulator::testing::test_seed;

template <class Policy>
std::vector<std::uint64_t> reference_hits_by_set(trace_of_pages const& trace, std::uint32_t sets, std::uint32_t ways) {
  std::vector<std::unique_ptr<reference_policy>> policies;
  for (std::uint32_t s = 0; s < sets; ++s) policies.push_back(reference_of<Policy>(ways));
  std::vector<std::set<std::uint32_t>> held(sets);
  std::vector<std::uint64_t> hits(sets);
  for (std::uint64_t const page : trace) {
    auto& policy = *policies[page % sets];
    auto& pages = held[page % sets];
    auto const tag = static_cast<std::uint32_t>(page / sets);
    if (pages.contains(tag)) {
      ++hits[page % sets];
      policy.hit(tag);
      continue;
    }
    if (pages.size() == ways) pages.erase(policy.evict([](std::uint32_t) { return true; }).value());
    policy.insert(tag);
    pages.insert(tag);
  }
  return hits;
}

template <class Policy>
class PolicyReference : public testing::Test {};
using policies = testing::Types<replacement::clock, replacement::s3_fifo, lru>;
struct policy_names {
  template <class Policy>
  static std::string GetName(int) {
    return Policy::name;
  }
};
TYPED_TEST_SUITE(PolicyReference, policies, policy_names);

TYPED_TEST(PolicyReference, HitsAreEqualSetBySetOnZipfScansAndLoops) {
  std::uint64_t const seed = test_seed();
  SCOPED_TRACE(replay(seed));
  struct cache_shape {
    std::uint32_t sets, ways;
  };
  for (auto const [sets, ways] : {cache_shape{64, 16}, {16, 11}, {32, 4}, {8, 2}, {8, 1}}) {
    std::uint64_t const frames = std::uint64_t{sets} * ways;
    trace_of_pages const scan = loop_trace(16 * frames, 100 * frames, 20'000);
    std::vector<trace_of_pages> traces = {scan, loop_trace(0, frames * 5 / 4, 20'000)};
    for (double const skew : {0.6, 0.8, 0.99, 1.2}) {
      traces.push_back(zipf_trace(16 * frames, skew, 40'000, seed));
      traces.push_back(mixed_trace(traces.back(), scan));
      traces.push_back(mixed_trace(traces.back(), loop_trace(0, frames / 2 + 1, 20'000)));
    }
    for (std::size_t t = 0; t < traces.size(); ++t) {
      ASSERT_EQ(hits_by_set<TypeParam>(traces[t], sets, ways), reference_hits_by_set<TypeParam>(traces[t], sets, ways))
          << "trace " << t << ", " << sets << " sets of " << ways << " ways";
    }
  }
}

/// The same with pages that may not be evicted for a while, and pages that are dropped for other reasons: every
/// eviction is compared.
TYPED_TEST(PolicyReference, EvictsTheSamePagesWhileSomeMayNotLeaveAndOthersGo) {
  std::uint64_t const seed = test_seed();
  SCOPED_TRACE(replay(seed));
  for (std::uint32_t round = 0; round < 160; ++round) {
    std::uint32_t const ways = 1 + round % replacement::max_ways;
    simt::random_source random(seed + round);
    policy_set<simt::native, TypeParam> set(ways);
    auto const reference = reference_of<TypeParam>(ways);
    std::set<std::uint32_t> pinned;
    std::uint64_t evictions = 0;
    for (std::uint32_t step = 0; step < 3000; ++step) {
      // Two draws: low tags are more frequent.
      std::uint32_t const tag = random.below(1 + random.below(ways * 4));
      std::uint32_t const way = set.find(tag);
      if (way == replacement::no_way) {
        std::uint32_t place = set.free_way();
        if (place == replacement::no_way) {
          place = set.victim();
          auto const leaves = reference->evict([&](std::uint32_t page) { return !pinned.contains(page); });
          ASSERT_EQ(place != replacement::no_way, leaves.has_value()) << ways << " ways, step " << step;
          if (!leaves) continue;
          ASSERT_EQ(set.tag(place), *leaves) << ways << " ways, step " << step;
          set.evict(place);
          ++evictions;
        }
        set.fill(place, tag);
        reference->insert(tag);
        continue;
      }
      std::uint32_t const what = random.below(20);
      if (what == 0) {
        set.erase(way);
        reference->erase(tag);
        pinned.erase(tag);
      } else if (what < 4) {
        bool const may = random.below(3) != 0;
        set.set_evictable(way, may);
        if (may) {
          pinned.erase(tag);
        } else {
          pinned.insert(tag);
        }
      } else {
        set.hit(way);
        reference->hit(tag);
      }
    }
    EXPECT_GT(evictions, 50u);
  }
}

/// The table of docs/how-to/write-a-replacement-policy.md.
std::string table_of_hit_ratios() {
  constexpr std::uint32_t sets = 64, ways = 16, frames = sets * ways;
  trace_of_pages const scan = loop_trace(16 * frames, ~std::uint64_t{0}, 200'000);
  struct row {
    std::string name;
    trace_of_pages trace;
  };
  std::vector<row> rows;
  for (double const skew : {0.6, 0.8, 0.99, 1.2}) {
    std::ostringstream name;
    name << "Zipf " << skew;
    rows.push_back({name.str(), zipf_trace(16 * frames, skew, 200'000, 1)});
  }
  rows.push_back({"Zipf 0.99, every third access a scan", mixed_trace(rows[2].trace, scan)});
  rows.push_back({"a loop over 1.25 times the cache", loop_trace(0, frames * 5 / 4, 200'000)});
  rows.push_back({"a scan, once over", scan});

  std::ostringstream table;
  table << "| pages are drawn from | `lru` | `clock` | `s3_fifo` |\n|---|---|---|---|\n" << std::fixed;
  for (auto const& [name, trace] : rows) {
    table << "| " << name;
    for (auto const& hits : {hits_by_set<lru>(trace, sets, ways), hits_by_set<replacement::clock>(trace, sets, ways),
                             hits_by_set<replacement::s3_fifo>(trace, sets, ways)}) {
      double total = 0;
      for (std::uint64_t const in_set : hits) total += static_cast<double>(in_set);
      table << " | " << std::setprecision(1) << 100 * total / static_cast<double>(trace.size()) << " %";
    }
    table << " |\n";
  }
  return table.str();
}

TEST(PolicyHitRatios, AreWhatThePageSays) {
  std::ifstream file(source_path("docs/how-to/write-a-replacement-policy.md"));
  std::stringstream page;
  page << file.rdbuf();
  std::string const table = table_of_hit_ratios();
  EXPECT_NE(page.str().find(table), std::string::npos) << "the table should be:\n" << table;
}

}  // namespace
}  // namespace forebay::test
