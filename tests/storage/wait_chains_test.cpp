// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which notes are a circular wait, and which are not.
#include "storage/wait_chains.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "forebay/detail/cache/cache_state.hpp"

namespace forebay::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Thread `rank`, which has the frames [first, first + count) pinned.
traced_thread pinning(std::uint32_t rank, std::uint32_t first = 0, std::uint32_t count = 0) {
  traced_thread t{};
  t.name = rank + 1;
  for (std::uint32_t i = 0; i < count; ++i) t.held[i] = first + i + 1;
  return t;
}
traced_thread waiting(traced_thread t, wait_kind what, std::uint32_t subject) {
  t.what = static_cast<std::uint32_t>(what);
  t.subject = subject;
  return t;
}
constexpr wait_kind for_frame = wait_kind::unpinned_frame;

TEST(WaitChains, ThreadsThatPinAllFramesOfASetBetweenThemAndWaitForMoreAreOne) {
  std::vector const threads = {waiting(pinning(5, 32, 8), for_frame, 2), pinning(6, 0, 8),
                               waiting(pinning(7, 40, 8), for_frame, 2)};
  circular_wait const found = find_circular_wait(threads);
  EXPECT_THAT(found.threads, ElementsAre(0, 2));
  EXPECT_THAT(found.cycle, ElementsAre(0, 2));
  EXPECT_THAT(pinners_of_set(threads, 2), ElementsAre(0, 2));
}

TEST(WaitChains, AThreadThatPinsAWholeSetAndWaitsForItWaitsForItself) {
  std::vector const threads = {waiting(pinning(0, 0, cache_ways), for_frame, 0)};
  EXPECT_THAT(find_circular_wait(threads).cycle, ElementsAre(0));
}

TEST(WaitChains, OneFrameWhoseHolderGoesOnIsEnough) {
  // Frame 15 is pinned by a thread that does not wait.
  EXPECT_THAT(find_circular_wait(std::vector{waiting(pinning(0, 0, 8), for_frame, 0),
                                             waiting(pinning(1, 8, 7), for_frame, 0), pinning(2, 15, 1)})
                  .threads,
              IsEmpty());
  // It waits for a drive.
  EXPECT_THAT(
      find_circular_wait(std::vector{waiting(pinning(0, 0, 8), for_frame, 0), waiting(pinning(1, 8, 7), for_frame, 0),
                                     waiting(pinning(2, 15, 1), wait_kind::record, 3)})
          .threads,
      IsEmpty());
  // No thread reports that it has the frame pinned.
  EXPECT_THAT(
      find_circular_wait(std::vector{waiting(pinning(0, 0, 8), for_frame, 0), waiting(pinning(1, 8, 7), for_frame, 0)})
          .threads,
      IsEmpty());
}

TEST(WaitChains, ThreadsOfTwoSetsWaitForEachOther) {
  std::vector const threads = {waiting(pinning(0, 0, cache_ways), for_frame, 1),
                               waiting(pinning(1, cache_ways, cache_ways), for_frame, 0),
                               // Stuck behind them, but part of no circle.
                               waiting(pinning(2), for_frame, 0)};
  circular_wait const found = find_circular_wait(threads);
  EXPECT_THAT(found.threads, ElementsAre(0, 1, 2));
  EXPECT_THAT(found.cycle, ElementsAre(0, 1));
}

TEST(WaitChains, ALockIsAwaitedOfItsHolder) {
  traced_thread holder = waiting(pinning(1), wait_kind::set_lock, 8);
  holder.held[3] = traced_thread::lock_bit | 7;
  traced_thread waiter = waiting(pinning(2), wait_kind::set_lock, 7);
  EXPECT_THAT(find_circular_wait(std::vector{holder, waiter}).threads, IsEmpty());
  waiter.held[0] = traced_thread::lock_bit | 8;
  EXPECT_THAT(find_circular_wait(std::vector{holder, waiter}).cycle, ElementsAre(0, 1));
}

TEST(WaitChains, WhoTakesAPageBackWaitsForThoseWhoHaveItPinned) {
  std::vector threads = {waiting(pinning(0, 3, 1), wait_kind::page_unpinned, 40),
                         waiting(pinning(1, 40, 1), wait_kind::page_unpinned, 3)};
  EXPECT_THAT(find_circular_wait(threads).cycle, ElementsAre(0, 1));
  // The thread that has the frame pinned can go on.
  threads[1] = waiting(pinning(1, 40, 1), wait_kind::record, 0);
  EXPECT_THAT(find_circular_wait(threads).threads, IsEmpty());
}

TEST(WaitChains, OnlyWhatTwoLooksShowTheSameCounts) {
  traced_thread a = pinning(0), b = pinning(1), c = pinning(2), d = pinning(3);
  a.changes = b.changes = c.changes = 4;
  d.changes = 5;
  std::vector const earlier = {a, b, d};
  b.changes = 6;
  std::vector const later = {c, d, b, a};
  std::vector<traced_thread> const same = unchanged(earlier, later);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_EQ(same[0].rank(), 0u);
}

}  // namespace
}  // namespace forebay::detail
