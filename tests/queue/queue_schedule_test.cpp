// SPDX-License-Identifier: Apache-2.0
//! \file
//! Invariants Q1 to Q9 of the queue layer, each under schedules whose load stresses it.
//!
//! FOREBAY_SCHEDULES: how many schedules each test runs (default 200). FOREBAY_SEED: run that one alone.
#include "support/queue_schedule.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "forebay/queue_rules.hpp"
#include "support/environment.hpp"
#include "support/gpu_like.hpp"

namespace forebay::test {
namespace {

/// Small rings are cheap and wrap often; one schedule in a hundred goes to each of the large ones.
std::uint32_t depth_of(std::uint64_t seed, std::uint32_t least) {
  if (seed % 100 == 49) return 1023;
  if (seed % 100 == 99) return 1024;
  constexpr std::uint32_t small[] = {2, 3, 4, 32};
  return std::max(least, small[seed % 4]);
}

emulator::fault_plan delays(std::uint64_t seed) {
  emulator::fault_plan plan;
  plan.seed = seed;
  plan.delay_ppm = 400'000;
  plan.delay_max_ns = 20'000;
  return plan;
}

/// The base of all tests: a load of a few laps of the ring from a few lanes, with `depth` entries in both rings.
schedule_shape load(std::uint64_t seed, std::uint32_t depth, simt::random_source& random) {
  schedule_shape shape;
  shape.sq_entries = shape.cq_entries = depth;
  shape.faults = delays(seed);
  shape.queues = depth > 32 ? 1 : 1 + random.below(3);
  shape.units = 1 + random.below(std::min(2u, shape.queues));
  if (depth > 32) {
    shape.lanes = {1, 4, 0};
    shape.max_blocks = 1;
    shape.requests_per_lane = depth / 4 + 40;
    shape.open_per_lane = 2 * depth;
    return shape;
  }
  shape.lanes = {1 + random.below(2), 2 + random.below(6), 0};
  // Now and then whole warps, and one with a rest.
  if (random.below(16) == 0) shape.lanes.threads_per_block = 32 + random.below(2) * 9;
  std::uint32_t const lanes = shape.lanes.blocks * shape.lanes.threads_per_block;
  std::uint32_t const commands = shape.queues * (depth <= 4 ? 12 * depth : 3 * depth);
  shape.requests_per_lane = 1 + commands / lanes;
  shape.open_per_lane = 1 + random.below(shape.requests_per_lane);
  shape.max_blocks = 1 + random.below(12);
  return shape;
}

schedule_shape q1_every_command_completes_once(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.drives = 1 + random.below(shape.queues);
  shape.commands_per_request = 1 + random.below(4);
  shape.requests_per_lane = 1 + shape.requests_per_lane / shape.commands_per_request;
  shape.detach_percent = 25;
  shape.faults.error_ppm = 100'000;
  return shape;
}

schedule_shape q2_slots_and_ids(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  // Either ring may be the short one: then ids or slots run out first.
  std::uint32_t const other = std::max(2u, shape.sq_entries / (2 + random.below(3)));
  std::uint32_t const shorter = random.below(3);
  if (shorter == 1) shape.cq_entries = other;
  if (shorter == 2) shape.sq_entries = other;
  shape.faults.delay_ppm = 700'000;
  shape.flush_percent = 60;
  return shape;
}

schedule_shape q3_doorbells(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.queues = shape.units = 1;
  shape.burst = true;
  shape.flush_percent = 80;
  shape.open_per_lane = shape.requests_per_lane;
  if (random.below(2) == 0) shape.faults.delay_ppm = 0;
  return shape;
}

schedule_shape q4_no_wait_while_holding(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  std::uint32_t const lanes = shape.lanes.blocks * shape.lanes.threads_per_block;
  shape.gated_lanes = 1 + random.below(lanes - 1);
  shape.open_per_lane = shape.requests_per_lane;
  return shape;
}

schedule_shape q5_full_queues(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.drives = 1 + random.below(shape.queues);
  shape.open_per_lane = shape.requests_per_lane;
  if (shape.max_blocks > 1) shape.max_blocks = 8 + random.below(8);
  shape.prp_pages = 1 + random.below(3);
  std::uint32_t const lanes = shape.lanes.blocks * shape.lanes.threads_per_block;
  if (random.below(2) == 0) shape.records = lanes + random.below(lanes);
  return shape;
}

schedule_shape q6_completion_doorbell_and_phase(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.flush_percent = 100;
  shape.requests_per_lane *= 2;
  // All at once or far apart: completions come in batches of every size.
  shape.faults.delay_ppm = random.below(2) == 0 ? 900'000 : 0;
  shape.faults.delay_max_ns = 1 + random.below(3);
  if (shape.sq_entries > 4 && random.below(2) == 0) shape.cq_entries = 2 + random.below(shape.sq_entries - 2);
  return shape;
}

schedule_shape q7_status_timeout_and_recovery(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.commands_per_request = 1 + random.below(2);
  shape.detach_percent = 0;
  shape.faults.error_ppm = 100'000;
  shape.faults.error_status_field =
      static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::access_denied) | nvme::do_not_retry);
  std::uint32_t const lanes = shape.lanes.blocks * shape.lanes.threads_per_block;
  shape.faults.withhold_ppm = 1'000'000 / std::min(100u, lanes * shape.requests_per_lane) * 3;
  shape.wait_timeout_ns = 1'000'000;
  shape.recovery = static_cast<recovery_policy>(1 + random.below(4));
  if (random.below(3) == 0) shape.mailbox_words = 1;  // requests get lost; a waiter asks again
  return shape;
}

/// The fault plan of `base` with the least seed under which exactly one command of all is withheld.
emulator::fault_plan withhold_one(emulator::fault_plan base, std::uint64_t commands, std::uint32_t queues) {
  base.withhold_ppm = static_cast<std::uint32_t>(1'000'000 / commands);
  for (;; base.seed += 0x10000) {
    std::uint64_t withheld = 0;
    for (std::uint64_t q = 1; q <= queues; ++q) {
      for (std::uint64_t n = 0; n < commands && withheld < 2; ++n) withheld += base.at((q << 48) + n).withheld ? 1 : 0;
    }
    if (withheld == 1) return base;
  }
}

schedule_shape q8_slow_command(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 3), random);
  shape.queues = shape.units = 1;
  shape.detach_percent = 0;
  shape.open_per_lane = shape.requests_per_lane;
  std::uint32_t const lanes = shape.lanes.blocks * shape.lanes.threads_per_block;
  shape.faults = withhold_one(shape.faults, lanes * shape.requests_per_lane, 1);
  shape.wait_timeout_ns = 10'000'000'000;
  shape.recovery = recovery_policy::abort;
  shape.all_but_withheld_first = true;
  return shape;
}

/// Data comes after completions; in half of the schedules recovery deletes queues meanwhile.
schedule_shape q9_data_after_completion(std::uint64_t seed, simt::random_source& random) {
  bool const recovers = random.below(2) == 0;
  schedule_shape shape =
      recovers ? q7_status_timeout_and_recovery(seed, random) : q1_every_command_completes_once(seed, random);
  shape.faults.data_after_completion_ppm = random.below(2) == 0 ? 1'000'000 : 300'000;
  shape.faults.data_lag_ns = 1 + random.below(30'000);
  shape.flush_percent = 5;
  return shape;
}

/// Healthy commands that take twenty times as long as the callers' deadlines, one that is withheld now and then, and
/// callers that wait again.
schedule_shape polls_with_short_deadlines(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.commands_per_request = 1 + random.below(3);
  shape.poll_ns = 1'000;
  shape.recovery = recovery_policy::abort;
  shape.settle_percent = random.below(3) * 5;
  return shape;
}

schedule_shape detach_and_settle(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.drives = 1 + random.below(shape.queues);
  shape.commands_per_request = 1 + random.below(3);
  shape.requests_per_lane = 1 + shape.requests_per_lane / shape.commands_per_request;
  shape.detach_percent = 70;
  shape.settle_percent = 20;
  shape.flush_percent = 5;
  shape.faults.error_ppm = 50'000;
  return shape;
}

schedule_shape lanes_in_step(std::uint64_t seed, simt::random_source& random) {
  schedule_shape shape = load(seed, depth_of(seed, 2), random);
  shape.commands_per_request = 1 + random.below(3);
  shape.requests_per_lane = 1 + shape.requests_per_lane / shape.commands_per_request;
  shape.detach_percent = 0;
  shape.in_step = true;
  return shape;
}

using shape_of = schedule_shape (*)(std::uint64_t seed, simt::random_source& random);

struct totals {
  std::map<std::uint32_t, std::uint64_t> schedules_by_depth;
  std::array<std::uint64_t, 4> schedules_by_memory{};  // in the order of simt::memory_model
  std::uint64_t serviced = 0;
  std::uint64_t as_on_gpu = 0;
  std::uint64_t short_waits = 0;
  schedule_outcome sum;
};

/// Runs the schedules of one invariant on two threads. `least_depth`: the smallest ring that the invariant speaks of.
void explore(shape_of make, std::uint64_t salt, std::uint32_t least_depth = 2) {
  bool const one = std::getenv("FOREBAY_SEED") != nullptr;
  std::uint64_t const first = test::number_from_environment("FOREBAY_SEED", 0);
  std::uint64_t const end = one ? first + 1 : test::number_from_environment("FOREBAY_SCHEDULES", 200);
  std::atomic<std::uint64_t> next = first;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  totals all;
  auto const work = [&] {
    for (;;) {
      // Relaxed: hands out numbers; the mutex guards the results.
      std::uint64_t const seed = next.fetch_add(1, std::memory_order_relaxed);
      if (seed >= end || failed.load(std::memory_order_relaxed)) return;
      simt::random_source random(emulator::mix(seed ^ salt));
      schedule_shape const shape = make(seed, random);
      schedule_mode const mode = mode_of(seed ^ salt);
      // In one of three, completions are consumed by lanes that do nothing else. In one of six, lanes wait as on a GPU.
      std::uint32_t const kind = random.below(6);
      bool const serviced = kind < 2;
      // Those poll, and 10 s of virtual time would take them too many steps.
      bool const short_waits = shape.wait_timeout_ns < 1'000'000'000;
      bool const as_on_gpu = kind == 2 && short_waits;
      schedule_outcome const outcome = serviced ? run_schedule<service_rules>(shape, seed, mode)
                                       : as_on_gpu
                                           ? run_schedule<queue_rules, gpu_like<audited_client>>(shape, seed, mode)
                                           : run_schedule(shape, seed, mode);
      std::scoped_lock const lock(mutex);
      ++all.schedules_by_depth[std::max(shape.sq_entries, shape.cq_entries)];
      ++all.schedules_by_memory[static_cast<std::size_t>(mode.memory)];
      if (serviced) ++all.serviced;
      if (as_on_gpu) ++all.as_on_gpu;
      if (short_waits) ++all.short_waits;
      all.sum.commands += outcome.commands;
      all.sum.steps += outcome.steps;
      all.sum.timeouts += outcome.timeouts;
      all.sum.failures += outcome.failures;
      all.sum.cancelled += outcome.cancelled;
      all.sum.doorbell_writes += outcome.doorbell_writes;
      if (outcome.ok) continue;
      failed.store(true, std::memory_order_relaxed);
      auto const* const info = testing::UnitTest::GetInstance()->current_test_info();
      ADD_FAILURE() << outcome.what << "\n  seed " << seed << ", " << name_of(mode)
                    << (serviced    ? ", serviced"
                        : as_on_gpu ? ", as on a GPU"
                                    : "")
                    << ", depth " << shape.sq_entries << ", " << shape.queues
                    << " queues\n  replay: FOREBAY_SEED=" << seed
                    << " build/cpu/bin/queue_schedule_test --gtest_filter=" << info->test_suite_name() << '.'
                    << info->name();
    }
  };
  std::thread second(work);
  work();
  second.join();
  std::printf("  schedules by depth:");
  for (auto const& [depth, count] : all.schedules_by_depth) {
    std::printf(" %u: %llu;", depth, static_cast<unsigned long long>(count));
  }
  std::printf("\n  %llu commands, %llu steps, %llu doorbell writes, %llu failed, %llu timeouts, %llu cancelled\n",
              static_cast<unsigned long long>(all.sum.commands), static_cast<unsigned long long>(all.sum.steps),
              static_cast<unsigned long long>(all.sum.doorbell_writes),
              static_cast<unsigned long long>(all.sum.failures), static_cast<unsigned long long>(all.sum.timeouts),
              static_cast<unsigned long long>(all.sum.cancelled));
  std::printf("  memory: sequential %llu, store buffers %llu, race detector %llu, stale reads %llu\n",
              static_cast<unsigned long long>(all.schedules_by_memory[0]),
              static_cast<unsigned long long>(all.schedules_by_memory[1]),
              static_cast<unsigned long long>(all.schedules_by_memory[2]),
              static_cast<unsigned long long>(all.schedules_by_memory[3]));
  std::printf("  with a service: %llu, as on a GPU: %llu\n", static_cast<unsigned long long>(all.serviced),
              static_cast<unsigned long long>(all.as_on_gpu));
  if (one || failed) return;
  std::uint64_t const schedules = end - first;
  EXPECT_GE(all.as_on_gpu, all.short_waits / 20);
  for (std::uint32_t const depth : {2u, 3u, 4u, 32u}) {
    if (depth >= least_depth) {
      EXPECT_GE(all.schedules_by_depth[depth], schedules / 20) << "depth " << depth;
    }
  }
  for (std::uint32_t const depth : {1023u, 1024u}) {
    EXPECT_GE(all.schedules_by_depth[depth], schedules / 100) << "depth " << depth;
  }
}

TEST(QueueInvariants, Q1_EachCommandCompletesToItsTokenExactlyOnce) {
  explore(q1_every_command_completes_once, 1);
}
TEST(QueueInvariants, Q2_SlotsAndCommandIdsAreNotReusedTooEarly) {
  explore(q2_slots_and_ids, 2);
}
TEST(QueueInvariants, Q3_DoorbellsNeverPassVisibleEntriesNorGoBack) {
  explore(q3_doorbells, 3);
}
TEST(QueueInvariants, Q4_NobodyWaitsWhileHolding) {
  explore(q4_no_wait_while_holding, 4);
}
TEST(QueueInvariants, Q5_FullQueuesMakeSubmittersHelp) {
  explore(q5_full_queues, 5);
}
TEST(QueueInvariants, Q6_CompletionDoorbellAndPhaseAreRightAtEveryDepth) {
  explore(q6_completion_doorbell_and_phase, 6);
}
TEST(QueueInvariants, Q7_StatusesArriveAndTimeoutsKeepOwnership) {
  explore(q7_status_timeout_and_recovery, 7);
}
TEST(QueueInvariants, Q8_OneSlowCommandDoesNotStallItsQueue) {
  explore(q8_slow_command, 8, 3);
}
TEST(QueueInvariants, Q9_CompletionsAreDeliveredOnceTheirDataIsThere) {
  explore(q9_data_after_completion, 12);
}
TEST(QueueInvariants, Q7_ShortDeadlinesAskForTheRecoveryOfNoHealthyCommand) {
  explore(polls_with_short_deadlines, 9);
}
TEST(QueueInvariants, DetachedRequestsAreOverOnceAllWasSettled) {
  explore(detach_and_settle, 10);
}
TEST(QueueInvariants, LanesThatWaitTogetherGoOnTogether) {
  explore(lanes_in_step, 11);
}

}  // namespace
}  // namespace forebay::test
