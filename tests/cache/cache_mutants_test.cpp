// SPDX-License-Identifier: Apache-2.0
//! \file
//! Proof that the schedules of the page directory find the errors that they are for. Wrong directories must each be
//! caught within a limit of schedules, and the right one must survive the same schedules.
#include <gtest/gtest.h>

#include <cstdio>

#include "cache_schedule.hpp"
#include "forebay/clock.hpp"

namespace forebay::test {
namespace {

/// A hit that takes whatever page is in the frame by the time it has pinned the frame.
struct pin_race : cache_rules {
  FOREBAY_DEVICE static constexpr bool pin_holds(page_word /*seen*/, std::uint32_t /*tag*/) { return true; }
};

/// A write-back after which a page counts as clean though someone who has it pinned may yet write.
struct lost_dirty_bit : cache_rules {
  FOREBAY_DEVICE static constexpr page_word written_back(page_word before) {
    return {(before.bits | page_word::writing) & ~page_word::dirty};
  }
};

/// A miss that does not check whether another thread was faster.
struct double_miss : cache_rules {
  static constexpr bool look_again = false;
};

/// An eviction that does not wait for the page's write-back.
struct reuse_before_write_back : cache_rules {
  FOREBAY_DEVICE static constexpr bool evictable(page_word word) {
    return word.state() == page_state::valid && word.pins() == 0 && !word.is_dirty();
  }
};

/// A shared buffer that is unpinned by each thread that releases it.
struct double_release : cache_rules {
  FOREBAY_DEVICE static constexpr bool takes_owners_pin(bool /*was_owner*/) { return true; }
};

/// A reader that does not pin, and looks at the page's bytes without having acquired that they are there.
struct first_look_relaxed : cache_rules {
  static constexpr simt::order first_look = simt::order::relaxed;
};

/// A flush that gives all pages together the time of one command.
struct one_deadline_for_all : cache_rules {
  static constexpr bool patient = false;
};

/// A thread that finds no room in the queues, and asks for the recovery of nothing there.
struct silent_without_room : cache_rules {
  static constexpr bool asks_for_room = false;
};

/// Frames that other threads may use before the page has been copied into them.
struct hasty_frames : staged_frames {
  static constexpr bool copies_before_valid = false;
};

cache_shape shape_of(std::uint64_t seed) {
  simt::random_source random(emulator::mix(seed ^ 0x1f83d9abfb41bd6bu));
  cache_shape shape;
  shape.pages = cache_ways + 1 + random.below(cache_ways);
  shape.hot_pages = 1 + random.below(shape.pages);
  shape.lanes = {1, 4, 0};
  shape.guards = 1 + random.below(2);
  shape.overflow = random.below(3);
  shape.users = 1 + random.below(3);
  shape.share = 6;
  shape.reclaim = 3;
  shape.write = 50;
  shape.flush = 8;
  shape.faults.seed = seed;
  shape.faults.delay_ppm = 400'000;
  shape.faults.delay_max_ns = 20'000;
  shape.max_steps = 2'000'000;  // a wrong directory may loop for ever
  return shape;
}

/// Pages come and go all the time, and lanes read them as soon as they are there.
cache_shape busy_shape_of(std::uint64_t seed) {
  simt::random_source random(emulator::mix(seed ^ 0xcbbb9d5dc1059ed8u));
  cache_shape shape;
  shape.pages = cache_ways + 1 + random.below(4);
  shape.hot_pages = shape.pages;
  shape.lanes = {1, 6 + random.below(4), 0};
  shape.operations = 60;
  shape.whole_pages = 0;
  shape.users = 1;
  shape.try_read = 45;
  shape.write = 5;
  shape.prefetch = 10;
  shape.flush = 0;
  shape.faults.seed = seed;
  shape.max_steps = 2'000'000;
  return shape;
}

cache_shape slow_shape_of(std::uint64_t seed) {
  simt::random_source random(emulator::mix(seed ^ 0x629a292a367cd507u));
  return slow_drives(seed, random);
}
cache_shape withheld_shape_of(std::uint64_t seed) {
  simt::random_source random(emulator::mix(seed ^ 0x9159015a3070dd17u));
  cache_shape shape = withheld_commands(seed, random);
  // Prefetches, for which no lane waits, fill the only queue of a drive.
  shape.queues_per_drive = 1;
  shape.entries = 2;
  shape.flush = 0;
  shape.prefetch = 15;
  shape.faults.withhold_ppm = 50'000;
  return shape;
}

/// Some mutants are caught by the first few schedules, others by one in a hundred.
constexpr std::uint64_t limit = 1500;
/// The right directory runs fewer schedules here: cache_schedule_test has the rest.
constexpr std::uint64_t survived = 300;
template <class Frames = direct_frames>
using pools = frame_pools<share_all, replacement::clock, Frames>;

/// How many schedules it takes to catch a mutant, of the mix that the tests of the invariants run; 0: it survived all.
template <class Rules, class Pools = pools<>>
std::uint64_t schedules_to_catch(char const* name, std::uint64_t most = limit,
                                 cache_shape (*shape)(std::uint64_t seed) = &shape_of) {
  for (std::uint64_t seed = 0; seed < most; ++seed) {
    cache_outcome const outcome =
        run_cache_schedule<replacement::clock, Pools, Rules>(shape(seed), seed, mode_of(seed));
    if (outcome.ok) continue;
    std::printf("  %s: caught after %llu schedules, by %s: %s\n", name, static_cast<unsigned long long>(seed + 1),
                name_of(mode_of(seed)).c_str(), outcome.what.substr(0, outcome.what.find(';')).c_str());
    return seed + 1;
  }
  return 0;
}

TEST(CacheMutants, TheRightDirectorySurvives) {
  EXPECT_EQ(schedules_to_catch<cache_rules>("none", survived), 0u);
  EXPECT_EQ(schedules_to_catch<cache_rules>("none", survived, &busy_shape_of), 0u);
}
TEST(CacheMutants, PinRaceIsCaught) {
  EXPECT_NE(schedules_to_catch<pin_race>("pin race", limit, &busy_shape_of), 0u);
}
TEST(CacheMutants, LostDirtyBitIsCaught) {
  EXPECT_NE(schedules_to_catch<lost_dirty_bit>("lost dirty bit"), 0u);
}
TEST(CacheMutants, DoubleMissIsCaught) {
  EXPECT_NE(schedules_to_catch<double_miss>("double miss"), 0u);
}
TEST(CacheMutants, ReuseBeforeWriteBackIsCaught) {
  EXPECT_NE(schedules_to_catch<reuse_before_write_back>("reuse before write-back"), 0u);
}
TEST(CacheMutants, UserBufferDoubleReleaseIsCaught) {
  EXPECT_NE(schedules_to_catch<double_release>("user-buffer double release"), 0u);
}
TEST(CacheMutants, RelaxedFirstLookIsCaught) {
  EXPECT_NE(schedules_to_catch<first_look_relaxed>("relaxed first look", limit, &busy_shape_of), 0u);
}
TEST(CacheMutants, FramesThatAreValidBeforeTheirCopyAreCaught) {
  EXPECT_EQ((schedules_to_catch<cache_rules, pools<staged_frames>>("none", survived)), 0u);
  EXPECT_NE((schedules_to_catch<cache_rules, pools<hasty_frames>>("hasty frames")), 0u);
}
TEST(CacheMutants, OneDeadlineForAllPagesIsCaught) {
  EXPECT_EQ(schedules_to_catch<cache_rules>("none", survived, &slow_shape_of), 0u);
  EXPECT_NE(schedules_to_catch<one_deadline_for_all>("one deadline for all pages", limit, &slow_shape_of), 0u);
}
TEST(CacheMutants, ASilentWaitForRoomIsCaught) {
  EXPECT_EQ(schedules_to_catch<cache_rules>("none", survived, &withheld_shape_of), 0u);
  EXPECT_NE(schedules_to_catch<silent_without_room>("silent without room", limit, &withheld_shape_of), 0u);
}

}  // namespace
}  // namespace forebay::test
