// SPDX-License-Identifier: Apache-2.0
//! \file
//! Proof that the schedules of the queue layer find the errors that they are for. Five wrong queues must each be caught
//! within a limit of schedules, and the right one must survive the same schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "support/gpu_like.hpp"
#include "support/queue_schedule.hpp"

namespace forebay::test {
namespace {

struct doorbell_before_entry : queue_rules {
  static constexpr bool entry_before_publish = false;
};

struct phase_at_wrap : queue_rules {
  FOREBAY_DEVICE static constexpr std::uint32_t phase(std::uint32_t /*lap*/) { return 1; }
};

struct command_id_reuse : queue_rules {
  FOREBAY_DEVICE static constexpr std::uint32_t command_id(std::uint32_t /*free_id*/, std::uint32_t slot) {
    return slot;
  }
};

struct lost_completion : queue_rules {
  FOREBAY_DEVICE static constexpr std::uint32_t delivered(std::uint32_t ready) { return ready > 1 ? ready - 1 : ready; }
};

struct missing_release : queue_rules {
  static constexpr simt::order publish = simt::order::relaxed;
};

/// Takes a caller's deadline for proof that a command is lost.
struct deadline_is_proof : queue_rules {
  static constexpr bool asks_by_age = false;
};

/// Gives buffers back though detached commands are in flight.
struct forgets_the_detached : queue_rules {
  static constexpr bool settles_all = false;
};

/// A lane goes when its own request is done, though other lanes of its warp count on it.
struct leaves_early : simt::in_step_rules {
  static constexpr bool stays_for_others = false;
};

/// A small load of the kind that the tests of the invariants share.
schedule_shape shape_of(std::uint64_t seed) {
  simt::random_source random(emulator::mix(seed ^ 0x5be0cd19137e2179u));
  constexpr std::uint32_t depths[] = {2, 3, 4, 32};
  schedule_shape shape;
  shape.sq_entries = shape.cq_entries = depths[seed % 4];
  shape.queues = 1 + random.below(2);
  shape.lanes = {1, 2 + random.below(5), 0};
  shape.requests_per_lane = 1 + shape.queues * 3 * std::max(8u, shape.sq_entries) / shape.lanes.threads_per_block;
  shape.open_per_lane = shape.requests_per_lane;
  shape.faults.seed = seed;
  shape.faults.delay_ppm = 400'000;
  shape.faults.delay_max_ns = 20'000;
  shape.max_steps = 2'000'000;  // a wrong queue may loop for ever
  return shape;
}
/// The same with lanes that come to their waits together.
schedule_shape in_step_shape_of(std::uint64_t seed) {
  schedule_shape shape = shape_of(seed);
  shape.detach_percent = 0;
  shape.in_step = true;
  return shape;
}
/// The same on a drive whose data comes after completions.
schedule_shape lagging_shape_of(std::uint64_t seed, bool flushes) {
  schedule_shape shape = shape_of(seed);
  shape.flushes = flushes;
  shape.faults.data_after_completion_ppm = 500'000;
  shape.faults.data_lag_ns = 5'000;
  return shape;
}
/// The same with callers that poll, detach and want their buffers back.
schedule_shape impatient_shape_of(std::uint64_t seed) {
  schedule_shape shape = shape_of(seed);
  shape.detach_percent = 40;
  shape.settle_percent = 10;
  shape.poll_ns = 1'000;
  shape.recovery = recovery_policy::abort;
  return shape;
}

/// Under the mix of modes that the tests of the invariants run, the mutant must be caught.
template <class Mutant>
void expect_caught_among_the_impatient(char const* name) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    schedule_outcome const outcome = run_schedule<Mutant>(impatient_shape_of(seed), seed, mode_of(seed));
    if (outcome.ok) continue;
    std::printf("  %s: caught after %llu schedules, by %s: %s\n", name, static_cast<unsigned long long>(seed + 1),
                name_of(mode_of(seed)).c_str(), outcome.what.substr(0, outcome.what.find(';')).c_str());
    return;
  }
  FAIL() << name << " survives 200 schedules";
}

constexpr schedule_mode::policy policies[] = {schedule_mode::policy::sticky_random, schedule_mode::policy::random,
                                              schedule_mode::policy::pct3, schedule_mode::policy::pct5,
                                              schedule_mode::policy::round_robin};
constexpr simt::memory_model memories[] = {simt::memory_model::sequential, simt::memory_model::store_buffers,
                                           simt::memory_model::race_detector, simt::memory_model::stale_reads};

/// How many schedules of each mode: 40 where each invariant gets its 200.
std::uint64_t table_schedules() {
  char const* const text = std::getenv("FOREBAY_SCHEDULES");
  return text == nullptr ? 40 : std::min<std::uint64_t>(400, 1 + std::strtoull(text, nullptr, 10) / 5);
}

/// Under the mix of modes that the tests of the invariants run, the mutant must be caught. Then a table for
/// docs/internals/queue.md: how many schedules each mode takes to catch it, over `catches` catches.
template <class Mutant>
void expect_caught(char const* name) {
  constexpr std::uint64_t limit = 200;
  std::uint64_t seed = 0;
  schedule_outcome outcome;
  for (; seed < limit; ++seed) {
    outcome = run_schedule<Mutant>(shape_of(seed), seed, mode_of(seed));
    if (!outcome.ok) break;
  }
  ASSERT_FALSE(outcome.ok) << name << " survives " << limit << " schedules";
  std::printf("  %s: caught after %llu schedules, by %s: %s\n", name, static_cast<unsigned long long>(seed + 1),
              name_of(mode_of(seed)).c_str(), outcome.what.substr(0, outcome.what.find(';')).c_str());

  std::uint64_t const schedules = table_schedules();
  std::printf("  | %s |", name);
  for (auto const policy : policies) {
    std::printf(" ");
    for (auto const memory : memories) {
      std::uint64_t caught = 0;
      for (std::uint64_t s = 1000; s < 1000 + schedules; ++s) {
        if (!run_schedule<Mutant>(shape_of(s), s, {policy, memory}).ok) ++caught;
      }
      if (memory != memories[0]) std::printf(" / ");
      if (caught == 0) {
        std::printf("-");
      } else {
        std::printf("%.1f", static_cast<double>(schedules) / static_cast<double>(caught));
      }
    }
    std::printf(" |");
  }
  std::printf("\n");
}

TEST(QueueMutants, DoorbellBeforeEntryIsCaught) {
  expect_caught<doorbell_before_entry>("doorbell before entry");
}
TEST(QueueMutants, PhaseAtWrapIsCaught) {
  expect_caught<phase_at_wrap>("phase at wrap");
}
TEST(QueueMutants, CommandIdReuseIsCaught) {
  expect_caught<command_id_reuse>("command id reuse");
}
TEST(QueueMutants, LostCompletionIsCaught) {
  expect_caught<lost_completion>("lost completion");
}
TEST(QueueMutants, MissingReleaseIsCaught) {
  expect_caught<missing_release>("missing release");
}

TEST(QueueMutants, ALaneThatLeavesThoseThatWaitInStepIsCaught) {
  constexpr std::uint64_t limit = 200;
  for (std::uint64_t seed = 0; seed < limit; ++seed) {
    schedule_outcome const outcome =
        run_schedule<queue_rules, gpu_like<audited_client, leaves_early>>(in_step_shape_of(seed), seed, mode_of(seed));
    if (outcome.ok) continue;
    std::printf("  leaves early: caught after %llu schedules, by %s: %s\n", static_cast<unsigned long long>(seed + 1),
                name_of(mode_of(seed)).c_str(), outcome.what.substr(0, outcome.what.find(';')).c_str());
    auto const right = run_schedule<queue_rules, gpu_like<audited_client>>(in_step_shape_of(seed), seed, mode_of(seed));
    EXPECT_TRUE(right.ok) << right.what;
    return;
  }
  FAIL() << "survives " << limit << " schedules";
}

TEST(QueueMutants, ADeadlineTakenForProofIsCaught) {
  expect_caught_among_the_impatient<deadline_is_proof>("deadline taken for proof");
}
TEST(QueueMutants, ForgottenDetachedRequestsAreCaught) {
  expect_caught_among_the_impatient<forgets_the_detached>("forgotten detached requests");
}

TEST(QueueMutants, PlacementTwoWithoutItsOrderingFlushIsCaught) {
  std::uint32_t caught = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    if (!run_schedule<queue_rules>(lagging_shape_of(seed, false), seed, mode_of(seed)).ok) ++caught;
    schedule_outcome const right = run_schedule<queue_rules>(lagging_shape_of(seed, true), seed, mode_of(seed));
    EXPECT_TRUE(right.ok) << right.what << "\n  seed " << seed << ", " << name_of(mode_of(seed));
  }
  std::printf("  without its flush: caught in %u of 20 schedules\n", caught);
  EXPECT_GE(caught, 10u);
}

TEST(QueueMutants, TheRightQueueSurvivesTheSameSchedules) {
  std::uint64_t const schedules = table_schedules();
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    auto const outcome = run_schedule<queue_rules>(impatient_shape_of(seed), seed, mode_of(seed));
    ASSERT_TRUE(outcome.ok) << outcome.what << "\n  impatient, seed " << seed << ", " << name_of(mode_of(seed));
  }
  for (std::uint64_t seed = 0; seed < 5 * schedules; ++seed) {
    auto const outcome = seed % 4 == 0
                             ? run_schedule<queue_rules, gpu_like<audited_client>>(shape_of(seed), seed, mode_of(seed))
                             : run_schedule<queue_rules>(shape_of(seed), seed, mode_of(seed));
    ASSERT_TRUE(outcome.ok) << outcome.what << "\n  seed " << seed << ", " << name_of(mode_of(seed));
  }
  for (auto const policy : policies) {
    for (auto const memory : memories) {
      for (std::uint64_t seed = 1000; seed < 1000 + schedules; ++seed) {
        auto const outcome = run_schedule<queue_rules>(shape_of(seed), seed, {policy, memory});
        ASSERT_TRUE(outcome.ok) << outcome.what << "\n  seed " << seed << ", " << name_of({policy, memory});
      }
    }
  }
}

}  // namespace
}  // namespace forebay::test
