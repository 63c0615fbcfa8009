// SPDX-License-Identifier: Apache-2.0
//! \file
//! Invariants C1 to C6 of the page directory, each under schedules whose load stresses it.
//!
//! FOREBAY_SCHEDULES: each test runs three times as many schedules (default 200 times three). FOREBAY_SEED: run that
//! one alone.
#include "cache_schedule.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "forebay/cache/clock.hpp"
#include "forebay/cache/s3_fifo.hpp"

namespace forebay::test {
namespace {

emulator::fault_plan delays(std::uint64_t seed) {
  emulator::fault_plan plan;
  plan.seed = seed;
  plan.delay_ppm = 400'000;
  plan.delay_max_ns = 20'000;
  return plan;
}

/// What all tests start from: more pages than frames, a few lanes, small rings.
cache_shape load(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape;
  shape.sets = 1 + random.below(3);
  shape.drives = 1 + random.below(2);
  shape.queues_per_drive = 1 + random.below(2);
  constexpr std::uint32_t entries[] = {2, 3, 4, 16};
  shape.entries = entries[random.below(4)];
  shape.units = 1 + random.below(2);
  if (shape.units > shape.queues_per_drive) shape.units = 1;
  shape.lanes = {1 + random.below(2), 1u << random.below(3), 0};
  shape.pages = shape.sets * cache_ways + 2 + random.below(2 * shape.sets * cache_ways);
  shape.overflow = random.below(2) == 0 ? 0 : 1 + random.below(4);
  shape.guards = 1 + random.below(3);
  shape.users = random.below(4);
  shape.host_groups = 1 + random.below(2);
  shape.share = 6;
  shape.reclaim = 2;
  shape.faults = delays(seed);
  return shape;
}

cache_shape c1_one_frame_a_page(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.invalidate = 0;
  shape.flush = 0;
  shape.share = shape.reclaim = 0;
  shape.write_async = 0;
  shape.burst = true;
  shape.sets = 2 + random.below(6);
  shape.pages = 1 + random.below(shape.sets);
  shape.operations = 2 * shape.pages;
  shape.lanes = {1 + random.below(2), 4, 0};
  return shape;
}
cache_shape c2_no_write_is_lost(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.sets = 1;
  shape.pages = cache_ways + 1 + random.below(2 * cache_ways);
  shape.write = 45;
  shape.flush = 5;
  shape.invalidate = 5;
  return shape;
}
cache_shape c3_pins_hold(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.sets = 1;
  shape.pages = 2 * cache_ways;
  shape.hot_pages = shape.pages;
  shape.lanes = {1, 4, 0};
  shape.guards = 4 + random.below(5);
  // Halved, for the lowest bit says which pools there are.
  if (seed / 2 % 4 == 0) {
    // Crowded: the sets are full of pinned pages, and several lanes at a time want what is in overflow frames.
    shape.sets = 2;
    shape.pages = 2 * cache_ways + 2 + random.below(cache_ways);
    shape.hot_pages = 1 + random.below(4);
    shape.lanes = {1, 12, 0};
    shape.guards = 10;
    shape.overflow = 1 + random.below(3);
  }
  return shape;
}
cache_shape c4_failures_reach_their_callers(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.faults.error_ppm = 100'000;
  shape.faults.delay_ppm = 300'000;
  shape.flush = 3;
  return shape;
}
cache_shape c5_prefetch_never_waits(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.entries = 2 + random.below(2);
  shape.queues_per_drive = shape.units = 1;
  shape.prefetch = 40;
  shape.guards = 1 + random.below(4);
  return shape;
}
cache_shape c6_reads_see_writes(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.sets = 1;
  shape.hot_pages = 2;
  shape.pages = cache_ways + 4;
  shape.try_read = 40;
  shape.write = 30;
  shape.invalidate = 5;
  return shape;
}

std::uint64_t number_from_environment(char const* name, std::uint64_t otherwise) {
  char const* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

using shape_of = cache_shape (*)(std::uint64_t seed, simt::random_source& random);

/// Runs the schedules of one invariant on two threads, half with each replacement policy.
cache_outcome explore(shape_of make, std::uint64_t salt) {
  bool const one = std::getenv("FOREBAY_SEED") != nullptr;
  std::uint64_t const first = number_from_environment("FOREBAY_SEED", 0);
  std::uint64_t const end = one ? first + 1 : 3 * number_from_environment("FOREBAY_SCHEDULES", 200);
  std::atomic<std::uint64_t> next = first;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  cache_outcome sum;
  auto const work = [&] {
    for (;;) {
      // Relaxed: hands out numbers; the mutex guards the results.
      std::uint64_t const seed = next.fetch_add(1, std::memory_order_relaxed);
      if (seed >= end || failed.load(std::memory_order_relaxed)) return;
      simt::random_source random(emulator::mix(seed ^ salt));
      cache_shape const shape = make(seed, random);
      schedule_mode const mode = mode_of(seed ^ salt);
      using pools = frame_pools<share_all, replacement::clock>;
      cache_outcome const outcome = seed % 2 == 0 ? run_cache_schedule<replacement::clock>(shape, seed, mode)
                                    : shape.users == 0
                                        ? run_cache_schedule<replacement::s3_fifo>(shape, seed, mode)
                                        : run_cache_schedule<replacement::s3_fifo, pools>(shape, seed, mode);
      std::scoped_lock const lock(mutex);
      sum.operations += outcome.operations;
      sum.steps += outcome.steps;
      sum.commands += outcome.commands;
      sum.failures += outcome.failures;
      sum.no_frame += outcome.no_frame;
      sum.counted += outcome.counted;
      if (outcome.ok) continue;
      failed.store(true, std::memory_order_relaxed);
      auto const* const info = testing::UnitTest::GetInstance()->current_test_info();
      ADD_FAILURE() << outcome.what << "\n  seed " << seed << ", " << name_of(mode)
                    << "\n  replay: FOREBAY_SEED=" << seed
                    << " build/cpu/bin/cache_schedule_test --gtest_filter=" << info->test_suite_name() << '.'
                    << info->name();
    }
  };
  std::thread second(work);
  work();
  second.join();
  auto const n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("  %llu operations, %llu steps, %llu commands, %llu failed, %llu without a frame\n", n(sum.operations),
              n(sum.steps), n(sum.commands), n(sum.failures), n(sum.no_frame));
  std::printf(
      "  %llu hits (%llu merged), %llu misses (%llu overflow), %llu evictions, %llu write-backs, %llu prefetches, %llu "
      "refused, %llu shared, %llu to the host, %llu back\n",
      n(sum.counted.hits), n(sum.counted.merged), n(sum.counted.misses), n(sum.counted.overflow_frames),
      n(sum.counted.evictions), n(sum.counted.write_backs), n(sum.counted.prefetches),
      n(sum.counted.refused_prefetches), n(sum.counted.shared), n(sum.counted.to_host), n(sum.counted.from_host));
  return sum;
}

TEST(CacheInvariants, C1_AtMostOneFrameHoldsAPage) {
  EXPECT_GT(explore(c1_one_frame_a_page, 0xc1).counted.merged, 0u);
}
TEST(CacheInvariants, C2_NoWriteIsLost) {
  EXPECT_GT(explore(c2_no_write_is_lost, 0xc2).counted.write_backs, 0u);
}
TEST(CacheInvariants, C3_PinnedFramesAreNotEvicted) {
  EXPECT_GT(explore(c3_pins_hold, 0xc3).counted.evictions, 0u);
}
TEST(CacheInvariants, C4_FailuresReachTheirCallers) {
  EXPECT_GT(explore(c4_failures_reach_their_callers, 0xc4).failures, 0u);
}
TEST(CacheInvariants, C5_PrefetchNeverWaits) {
  EXPECT_GT(explore(c5_prefetch_never_waits, 0xc5).counted.refused_prefetches, 0u);
}
TEST(CacheInvariants, C6_ReadsSeeTheWritesBeforeThem) {
  EXPECT_GT(explore(c6_reads_see_writes, 0xc6).counted.hits, 0u);
}

}  // namespace
}  // namespace forebay::test
