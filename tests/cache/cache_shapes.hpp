// SPDX-License-Identifier: Apache-2.0
//! \file
//! Parameters of the page directory's random schedules.
#pragma once

#include <algorithm>
#include <cstdint>

#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/simt/run.hpp"
#include "support/recovery_agent.hpp"

namespace forebay::test {

/// What a schedule looks like; the programs of its lanes follow from the seed.
struct cache_shape {
  std::uint32_t sets = 1;
  std::uint32_t overflow = 0;     ///< frames
  std::uint32_t users = 0;        ///< frames for buffers that are shared
  std::uint32_t staging = 2;      ///< staging pages; not used where pools have no staged frames
  std::uint32_t host_groups = 1;  ///< of 16 pages for each set; not used without a host pool
  std::uint32_t drives = 1;
  std::uint32_t queues_per_drive = 1;
  std::uint32_t entries = 4;  ///< of each queue's rings
  std::uint32_t units = 1;    ///< service units of each drive
  simt::grid lanes{1, 4, 0};
  std::uint32_t operations = 40;  ///< of each lane
  std::uint32_t pages = 24;       ///< of all drives together
  std::uint32_t hot_pages = 4;    ///< the first ones: half of the operations go to these alone
  std::uint32_t whole_pages = 6;  ///< the last of all pages, each written by one lane only
  std::uint32_t guards = 1;       ///< pins that a lane holds at most
  // Percent of the operations; the rest read through a pin.
  std::uint32_t try_read = 20;
  std::uint32_t write = 30;
  std::uint32_t prefetch = 5;
  std::uint32_t flush = 1;
  std::uint32_t invalidate = 2;
  std::uint32_t read_async = 4;
  std::uint32_t write_async = 4;
  std::uint32_t views = 0;  ///< array views, cursors, elements in two pages
  std::uint32_t share = 0;
  std::uint32_t reclaim = 0;  ///< takes a buffer back whose owner may be about to do the same
  /// Not 0: warps are full, and each lane does so many operations together with its warp, and some alone between them.
  std::uint32_t warp_operations = 0;
  bool burst = false;  ///< all lanes read the same pages, in the same order, from the same moment on
  emulator::fault_plan faults;
  /// Time limit of a command, and of calls that name no deadline. Time passes only while every lane and drive waits.
  std::uint64_t timeout_ns = no_timeout;
  std::uint32_t impatient = 0;  ///< percent of the calls that name a deadline: those name one that most commands miss
  recovery_policy recovery = recovery_policy::none;
  std::uint64_t max_steps = 20'000'000;

  static constexpr std::uint64_t no_timeout = 1'000'000'000'000;
  bool has_timeout() const { return timeout_ns != no_timeout; }
  bool withholds() const { return faults.withhold_ppm != 0; }
};

inline emulator::fault_plan delays(std::uint64_t seed) {
  emulator::fault_plan plan;
  plan.seed = seed;
  plan.delay_ppm = 400'000;
  plan.delay_max_ns = 20'000;
  return plan;
}

/// What all tests start from: more pages than frames, a few lanes, small rings.
inline cache_shape load(std::uint64_t seed, simt::random_source& random) {
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
  shape.views = 6;
  shape.faults = delays(seed);
  return shape;
}

inline cache_shape c1_one_frame_a_page(std::uint64_t seed, simt::random_source& random) {
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
inline cache_shape c2_no_write_is_lost(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.sets = 1;
  shape.pages = cache_ways + 1 + random.below(2 * cache_ways);
  shape.write = 45;
  shape.flush = 5;
  shape.invalidate = 5;
  return shape;
}
inline cache_shape c3_pins_hold(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.sets = 1;
  shape.pages = 2 * cache_ways;
  shape.hot_pages = shape.pages;
  shape.lanes = {1, 4, 0};
  shape.guards = 4 + random.below(5);
  // Halved, because the lowest bit says which pools there are.
  if (seed / 2 % 4 == 0) {
    // Crowded: the sets are full of pinned pages, and several lanes at a time want pages that are in overflow frames.
    shape.sets = 2;
    shape.pages = 2 * cache_ways + 2 + random.below(cache_ways);
    shape.hot_pages = 1 + random.below(4);
    shape.lanes = {1, 12, 0};
    shape.guards = 10;
    shape.overflow = 1 + random.below(3);
  }
  return shape;
}
inline cache_shape c4_failures_reach_their_callers(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.faults.error_ppm = 100'000;
  shape.faults.delay_ppm = 300'000;
  shape.flush = 3;
  return shape;
}
inline cache_shape c5_prefetch_never_waits(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.entries = 2 + random.below(2);
  shape.queues_per_drive = shape.units = 1;
  shape.prefetch = 40;
  shape.guards = 1 + random.below(4);
  return shape;
}
inline cache_shape c6_reads_see_writes(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.sets = 1;
  shape.hot_pages = 2;
  shape.pages = cache_ways + 4;
  shape.try_read = 40;
  shape.write = 30;
  shape.invalidate = 5;
  return shape;
}

/// Every command takes a while, and a drive serves few at a time. To write all pages back takes several times
/// `timeout_ns`, but no single command takes that long.
inline cache_shape slow_drives(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.sets = 1 + random.below(2);
  shape.entries = 2 + random.below(2);
  shape.queues_per_drive = shape.units = 1;
  shape.faults.delay_ppm = 1'000'000;
  shape.timeout_ns = 40'000;
  shape.write = 45;
  shape.flush = 4;
  shape.recovery = recovery_policy::abort;
  return shape;
}
/// The drives keep commands back until recovery ends them.
inline cache_shape withheld_commands(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.queues_per_drive = 1 + random.below(3);
  shape.units = 1;
  shape.faults.withhold_ppm = 20'000;
  shape.timeout_ns = 200'000;
  shape.impatient = random.below(2) * 20;
  shape.flush = 3;
  constexpr recovery_policy policies[] = {recovery_policy::abort, recovery_policy::abort_then_delete,
                                          recovery_policy::delete_silently, recovery_policy::delete_with_completions};
  shape.recovery = policies[random.below(4)];
  return shape;
}
/// Commands of one drive hold the only staging page while another drive has nothing to do.
inline cache_shape slow_drives_with_one_staging_page(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = slow_drives(seed, random);
  shape.drives = 2;
  shape.staging = 1;
  return shape;
}
inline cache_shape withheld_commands_on_staged_frames(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = withheld_commands(seed, random);
  shape.staging = random.below(2) == 0 ? 1 + random.below(5) : 70;
  return shape;
}
/// Callers look again and again at drives that are slow, and healthy.
inline cache_shape impatient_callers(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.faults.delay_ppm = 1'000'000;
  shape.impatient = 70;
  shape.flush = 3;
  shape.invalidate = 5;
  shape.read_async = 10;
  shape.write_async = 10;
  shape.recovery = recovery_policy::delete_silently;
  return shape;
}

/// Views, cursors and elements in two pages, with whatever else comes and goes.
inline cache_shape views(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.views = 60;
  shape.try_read = 5;
  shape.write = 10;
  shape.invalidate = 5;
  shape.hot_pages = 8;
  if (random.below(3) == 0) shape.faults.error_ppm = 30'000;
  return shape;
}
/// Windows and cursors of full warps.
inline cache_shape windows(std::uint64_t seed, simt::random_source& random) {
  cache_shape shape = load(seed, random);
  shape.lanes = {1 + random.below(4) / 3, 32, 0};
  shape.sets = 1 + random.below(2);
  shape.pages = shape.sets * cache_ways + 2 + random.below(2 * shape.sets * cache_ways);
  shape.operations = 0;
  shape.warp_operations = 4;
  shape.guards = 1;
  shape.share = shape.reclaim = 0;
  shape.hot_pages = shape.pages;
  if (random.below(4) == 0) shape.faults.error_ppm = 10'000;
  return shape;
}

}  // namespace forebay::test
