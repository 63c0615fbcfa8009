// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cache of a storage hits where the textbook's policy says it must, access by access.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "docs/examples/storage_with_lru.hpp"
#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/storage.hpp"
#include "policy_models.hpp"
#include "policy_traces.hpp"
#include "support/seed.hpp"
#include "support/traits.hpp"

namespace forebay::test {
namespace {

struct too_many_marks : replacement::clock {
  static constexpr std::uint32_t mark_bits = replacement::max_mark_bits + 1;
};
struct no_functions {
  static constexpr char const* name = "no_functions";
  static constexpr std::uint32_t mark_bits = 0;
  struct set_state {};
};

template <class Policy>
concept taken = requires { replacement_policy::of<Policy>(); };

static_assert(taken<replacement::clock> && !taken<too_many_marks> && !taken<no_functions>);

using emulator::testing::replay;
using emulator::testing::test_seed;

constexpr std::uint32_t sets = 16;
constexpr std::uint32_t page_bytes = 512;
constexpr std::uint64_t drive_pages = 16384;

/// One thread that reads a word of each page.
template <class Cache>
struct reads_pages {
  Cache cache;
  std::uint64_t const* pages;
  std::size_t accesses;
  std::uint8_t* hit;

  void operator()() const {
    for (std::size_t k = 0; k < accesses; ++k) {
      std::uint64_t word = 0;
      hit[k] = cache.try_read(pages[k], 0, word) ? 1 : 0;
      if (hit[k] != 0) continue;
      page_pin const pinned = cache.pin(pages[k], access::read);
      simt::fiber::check(pinned.outcome.ok(), "a page that cannot be read");
      cache.unpin(pinned.frame);
    }
  }
};

template <class Policy>
std::vector<std::uint8_t> hits_of_reference(trace_of_pages const& trace) {
  page_sets const mapping(sets);
  std::vector<std::unique_ptr<reference_policy>> policies;
  for (std::uint32_t s = 0; s < sets; ++s) policies.push_back(reference_of<Policy>(replacement::max_ways));
  std::vector<std::set<std::uint32_t>> held(sets);
  std::vector<std::uint8_t> hit(trace.size());
  for (std::size_t k = 0; k < trace.size(); ++k) {
    auto const [set, tag] = mapping.locate(trace[k]);
    auto& policy = *policies[set];
    if (held[set].contains(tag)) {
      hit[k] = 1;
      policy.hit(tag);
      continue;
    }
    if (held[set].size() == replacement::max_ways) {
      held[set].erase(policy.evict([](std::uint32_t) { return true; }).value());
    }
    policy.insert(tag);
    held[set].insert(tag);
  }
  return hit;
}

template <class Policy>
class CacheHits : public testing::Test {};
using policies = testing::Types<replacement::clock, replacement::s3_fifo, lru>;
struct policy_names {
  template <class Policy>
  static std::string GetName(int) {
    return Policy::name;
  }
};
TYPED_TEST_SUITE(CacheHits, policies, policy_names);

TYPED_TEST(CacheHits, AreThoseOfTheReferenceOnZipfScansAndLoops) {
  std::uint64_t const seed = test_seed();
  SCOPED_TRACE(replay(seed));
  constexpr std::uint64_t frames = sets * replacement::max_ways;
  trace_of_pages const scan = loop_trace(4096, drive_pages - 4096, 4'000);
  trace_of_pages const zipf = zipf_trace(4096, 0.9, 8'000, seed);
  for (trace_of_pages const& trace : {zipf, mixed_trace(zipf, scan), loop_trace(0, frames * 5 / 4, 4'000)}) {
    storage_options options;
    options.drives = {"emulated:profile=ideal,size=" + std::to_string(drive_pages * page_bytes)};
    options.device = "cpu";
    options.cache.page_bytes = page_bytes;
    options.cache.size_bytes = frames * page_bytes;
    options.cache.statistics = true;
    options.cache.policy = replacement_policy::of<TypeParam>();
    storage st(options);
    std::vector<std::uint8_t> hit(trace.size());
    auto const cache = st.ref<simt::fiber, test::traits<TypeParam, true>>().cache();
    simt::launch<simt::fiber>(
        {1, 1, 0}, reads_pages<std::remove_const_t<decltype(cache)>>{cache, trace.data(), trace.size(), hit.data()});
    std::vector<std::uint8_t> const expected = hits_of_reference<TypeParam>(trace);
    std::uint64_t total = 0;
    for (std::size_t k = 0; k < trace.size(); ++k) {
      ASSERT_EQ(hit[k], expected[k]) << "access " << k << ", of page " << trace[k];
      total += expected[k];
    }
    EXPECT_EQ(st.cache_statistics().hits, total);
    EXPECT_EQ(st.cache_statistics().misses, trace.size() - total);
  }
}

TEST(StorageWithLru, IsReadThroughItsCache) {
  storage opened = open_with_lru("emulated:profile=ideal,size=1M", "cpu");
  auto const ref = ref_with_lru<simt::fiber>(opened);
  std::uint64_t sum = 1;
  simt::launch<simt::fiber>({1, 1, 0}, [&] {
    auto const words = ref.template array<std::uint64_t const>();
    sum = 0;
    for (std::uint64_t i = 0; i < words.size(); i += 64) sum += words[i];
  });
  EXPECT_EQ(sum, 0u) << "a new drive is all zero";
  EXPECT_TRUE(opened.take_errors().first.ok());
}

}  // namespace
}  // namespace forebay::test
