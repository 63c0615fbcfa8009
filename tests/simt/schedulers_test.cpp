// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/schedulers.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <set>

#include "forebay/detail/simt/run.hpp"

namespace forebay::simt {
namespace {

using ::testing::HasSubstr;

/// A spin lock whose holder counts in two steps; `broken` takes it without an atomic step.
struct counter_under_lock {
  std::uint32_t lock = 0, count = 0;
  bool broken = false;

  run_result run(scheduler& schedule, run_options const& options = {}) {
    lock = count = 0;
    return simt::run(options, schedule, {1, 8, 0}, [this] {
      for (int i = 0; i < 2; ++i) {
        fiber::check(fiber::wait_until(
                         [this] {
                           std::uint32_t expected = 0;
                           if (!broken) return atomic<fiber>(lock).compare_exchange(expected, 1, order::acquire);
                           if (atomic<fiber>(lock).load(order::acquire) != 0) return false;
                           atomic<fiber>(lock).store(1, order::relaxed);
                           return true;
                         },
                         no_deadline),
                     "lock");
        std::uint32_t const before = fiber::ld(&count);
        fiber::st(&count, before + 1);
        // Pairs with the acquire that takes the lock.
        atomic<fiber>(lock).store(0, order::release);
      }
      fiber::this_block().sync();
      fiber::check(fiber::ld(&count) == 16, "no count is lost");
    });
  }
};

std::vector<std::unique_ptr<scheduler>> all_schedulers(std::uint64_t seed) {
  std::vector<std::unique_ptr<scheduler>> all;
  all.push_back(std::make_unique<round_robin>());
  all.push_back(std::make_unique<simt::random>(seed, 1));
  all.push_back(std::make_unique<simt::random>(seed));
  all.push_back(std::make_unique<pct>(seed, 3, 400));
  all.push_back(std::make_unique<pct>(seed, 5, 400));
  return all;
}

TEST(Schedulers, ACorrectLockPassesUnderAll) {
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (auto const& schedule : all_schedulers(seed))
      for (auto const memory : {memory_model::sequential, memory_model::store_buffers, memory_model::race_detector,
                                memory_model::stale_reads}) {
        auto const result = counter_under_lock{}.run(*schedule, {.memory = memory});
        ASSERT_TRUE(result) << result.what;
      }
}

TEST(Schedulers, RandomAndPctFindABrokenLock) {
  int by_random = 0, by_sticky = 0, by_pct = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    counter_under_lock broken{.broken = true};
    simt::random spread(seed, 1), sticky(seed);
    pct priorities(seed, 3, 300);
    by_random += !broken.run(spread);
    by_sticky += !broken.run(sticky);
    by_pct += !broken.run(priorities);
  }
  EXPECT_GT(by_random, 0);
  EXPECT_GT(by_sticky, 0);
  EXPECT_GT(by_pct, 0);
}

TEST(Schedulers, TheSameSeedGivesTheSameRun) {
  for (auto const& schedule : all_schedulers(77)) {
    counter_under_lock counter;
    auto const first = counter.run(*schedule), second = counter.run(*schedule);
    EXPECT_EQ(first.trace, second.trace) << schedule->describe();
    EXPECT_EQ(first.steps, second.steps);
  }
}

TEST(Schedulers, DifferentSeedsGiveDifferentRuns) {
  std::set<trace> by_random, by_pct;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    counter_under_lock counter;
    simt::random r(seed);
    pct p(seed, 3, 300);
    by_random.insert(counter.run(r).trace);
    by_pct.insert(counter.run(p).trace);
  }
  EXPECT_EQ(by_random.size(), 20u);
  EXPECT_EQ(by_pct.size(), 20u);
}

TEST(Schedulers, RoundRobinTakesLanesInTurn) {
  std::vector<std::uint32_t> order_of_steps;
  std::uint32_t words[40] = {};
  auto const result = run({}, round_robin(), {1, 40, 0}, [&] {
    for (int i = 0; i < 3; ++i) {
      fiber::st(&words[fiber::thread_rank()], 1u);
      order_of_steps.push_back(fiber::thread_rank());
    }
  });
  ASSERT_TRUE(result) << result.what;
  for (std::uint32_t i = 0; i < 120; ++i) ASSERT_EQ(order_of_steps[i], i % 40);
}

TEST(Replay, ReproducesFailuresToTheStep) {
  int failures = 0;
  for (auto const memory : {memory_model::sequential, memory_model::store_buffers, memory_model::stale_reads})
    for (std::uint64_t seed = 0; seed < 30; ++seed)
      for (auto const& schedule : all_schedulers(seed)) {
        counter_under_lock broken{.broken = true};
        auto const failed = broken.run(*schedule, {.memory = memory});
        if (failed) continue;
        ++failures;
        replay again(failed.trace);
        auto const repeated = broken.run(again, {.memory = memory});
        ASSERT_FALSE(repeated) << schedule->describe();
        ASSERT_EQ(repeated.steps, failed.steps) << schedule->describe();
        ASSERT_EQ(repeated.trace, failed.trace) << schedule->describe();
        auto without_scheduler = [](std::string const& what) { return what.substr(0, what.find("\n  scheduler")); };
        ASSERT_EQ(without_scheduler(repeated.what), without_scheduler(failed.what));
      }
  EXPECT_GT(failures, 50);
}

TEST(Replay, SaysWhereATraceNoLongerFits) {
  counter_under_lock counter;
  simt::random schedule(5, 1);
  auto recorded = counter.run(schedule).trace;
  recorded[recorded.size() / 2] = 500;  // no such lane
  replay again(recorded);
  // Lane 500 lies beyond the run: refused as any other lane that cannot run.
  EXPECT_THAT(counter.run(again).what, HasSubstr("replay diverged"));
}

TEST(Pct, HelpingWaitsDoNotLivelock) {
  // Each waiter's predicate changes what the others watch, as a helping lock does.
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::uint32_t lock = 0, turn = 0;
    auto const result = run({}, pct(seed, 5, 500), {1, 16, 0}, [&] {
      fiber::check(fiber::wait_until(
                       [&] {
                         std::uint32_t expected = 0;
                         if (!atomic<fiber>(lock).compare_exchange(expected, 1, order::acquire)) return false;
                         bool const mine = fiber::ld(&turn) == fiber::thread_rank();
                         if (mine) fiber::st(&turn, fiber::thread_rank() + 1);
                         // Pairs with the acquire that takes the lock.
                         atomic<fiber>(lock).store(0, order::release);
                         return mine;
                       },
                       no_deadline),
                   "turn");
    });
    ASSERT_TRUE(result) << result.what;
  }
}

}  // namespace
}  // namespace forebay::simt
