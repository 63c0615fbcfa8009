// SPDX-License-Identifier: Apache-2.0
//! \file
//! Invariants C1 to C6 of the page directory, and its promises about deadlines, each under schedules whose load
//! stresses it.
//!
//! FOREBAY_SCHEDULES: each test runs three times as many schedules (default 200 times three). FOREBAY_SEED: run that
//! one alone.
#include "cache_schedule.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "forebay/clock.hpp"
#include "forebay/s3_fifo.hpp"
#include "support/environment.hpp"

namespace forebay::test {
namespace {

using shape_of = cache_shape (*)(std::uint64_t seed, simt::random_source& random);

enum class frames : std::uint8_t { a_quarter_staged, all_staged };

/// Runs the schedules of one invariant on two threads. Unless all frames are staged, half with each replacement policy.
cache_outcome explore(shape_of make, std::uint64_t salt, frames how = frames::a_quarter_staged) {
  bool const one = std::getenv("FOREBAY_SEED") != nullptr;
  std::uint64_t const first = test::number_from_environment("FOREBAY_SEED", 0);
  std::uint64_t const end = one ? first + 1 : 3 * test::number_from_environment("FOREBAY_SCHEDULES", 200);
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
      cache_shape shape = make(seed, random);
      // Sometimes so many that two commands may have no word of the pool in common.
      if (how == frames::a_quarter_staged)
        shape.staging = seed / 4 % 3 == 0 ? 70 : 1 + static_cast<std::uint32_t>(seed / 4 % 5);
      schedule_mode const mode = mode_of(seed ^ salt);
      using pools = frame_pools<share_all, replacement::clock>;
      using staged = frame_pools<share_all, replacement::clock, staged_frames>;
      bool const stages = how == frames::all_staged || seed % 4 == 2;
      cache_outcome const outcome = stages          ? run_cache_schedule<replacement::clock, staged>(shape, seed, mode)
                                    : seed % 2 == 0 ? run_cache_schedule<replacement::clock>(shape, seed, mode)
                                    : shape.users == 0
                                        ? run_cache_schedule<replacement::s3_fifo>(shape, seed, mode)
                                        : run_cache_schedule<replacement::s3_fifo, pools>(shape, seed, mode);
      std::scoped_lock const lock(mutex);
      sum.operations += outcome.operations;
      sum.steps += outcome.steps;
      sum.commands += outcome.commands;
      sum.failures += outcome.failures;
      sum.no_frame += outcome.no_frame;
      sum.late += outcome.late;
      sum.cancelled += outcome.cancelled;
      sum.asked += outcome.asked;
      sum.overwrites += outcome.overwrites;
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
  std::printf(
      "  %llu operations, %llu steps, %llu commands, %llu failed, %llu without a frame, %llu late, %llu "
      "cancelled, %llu asked for, %llu overwrites\n",
      n(sum.operations), n(sum.steps), n(sum.commands), n(sum.failures), n(sum.no_frame), n(sum.late), n(sum.cancelled),
      n(sum.asked), n(sum.overwrites));
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

TEST(CacheViews, ViewsAndCursorsSeeWhatPinsSee) {
  cache_outcome const sum = explore(views, 0xe1);
  EXPECT_GT(sum.counted.hits, 0u);
  EXPECT_GT(sum.overwrites, 0u);
}
TEST(CacheViews, WindowsAndWarpCursorsSeeWhatPinsSee) {
  EXPECT_GT(explore(windows, 0xe2).counted.hits, 0u);
}

TEST(CacheDeadlines, AWriteBackThatTakesLongerThanTheTimeoutLosesNothing) {
  cache_outcome const sum = explore(slow_drives, 0xd1);
  EXPECT_GT(sum.late, 0u);
  EXPECT_GT(sum.counted.write_backs, 0u);
  EXPECT_EQ(sum.asked, 0u);
}
TEST(CacheDeadlines, ADriveThatWaitsForTheStagingPageOfAnotherIsNotGivenUp) {
  EXPECT_GT(explore(slow_drives_with_one_staging_page, 0xd4, frames::all_staged).late, 0u);
}
TEST(CacheDeadlines, StagingPagesOfCancelledCommandsAreGivenBackOnce) {
  EXPECT_GT(explore(withheld_commands_on_staged_frames, 0xd5, frames::all_staged).cancelled, 0u);
}
TEST(CacheDeadlines, CommandsThatTheDrivesKeepBackAreRecoveredAndNothingIsLost) {
  cache_outcome const sum = explore(withheld_commands, 0xd2);
  EXPECT_GT(sum.asked, 0u);
  EXPECT_GT(sum.cancelled, 0u);
}
TEST(CacheDeadlines, ShortDeadlinesEndNoCommandAndLoseNothing) {
  cache_outcome const sum = explore(impatient_callers, 0xd3);
  EXPECT_GT(sum.late, 0u);
  EXPECT_EQ(sum.asked, 0u);
}

}  // namespace
}  // namespace forebay::test
