// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/run.hpp"

#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <thread>

#include "forebay/error.hpp"

namespace forebay::simt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

template <class Predicate>
void wait_for(Predicate&& predicate, std::source_location where = std::source_location::current()) {
  fiber::check(fiber::wait_until(predicate, no_deadline, where), "waits without a deadline end by their predicate");
}

run_result run_in_turn(grid const& shape, std::function<void()> kernel, std::vector<agent> agents = {}) {
  return run({}, round_robin(), shape, std::move(kernel), std::move(agents));
}

TEST(Run, TellsEveryLaneItsPlace) {
  std::vector<int> seen(6 * 40);
  auto const result = run_in_turn({6, 40, 0}, [&] {
    auto const block = fiber::this_block();
    fiber::check(fiber::thread_rank() == block.rank * 40 + block.thread_rank(), "rank");
    fiber::check(block.size() == 40 && fiber::thread_count() == 240, "sizes");
    fiber::check(fiber::this_warp().thread_rank() == block.thread_rank() % 32, "lane id");
    ++seen[fiber::thread_rank()];
  });
  EXPECT_TRUE(result) << result.what;
  EXPECT_THAT(seen, ::testing::Each(1));
}

TEST(Run, OutsideARunAThreadIsAGridOfOneLane) {
  EXPECT_EQ(fiber::thread_count(), 1u);
  auto const warp = fiber::this_warp();
  EXPECT_EQ(warp.ballot(true), 1u);
  EXPECT_EQ(warp.match_any(5u), 1u);
  EXPECT_EQ(warp.shfl(7u, 0), 7u);
  EXPECT_EQ(fiber::converged().mask(), 1u);
  fiber::this_block().sync();
  std::uint32_t word = 1;
  EXPECT_EQ(atomic<fiber>(word).fetch_add(2, order::relaxed), 1u);
  EXPECT_FALSE(fiber::wait_until([&] { return fiber::ld(&word) == 0; }, fiber::clock_ns() + 1000));
}

TEST(Run, RefusesShapesThatItCannotRun) {
  EXPECT_THROW(run_in_turn({0, 32, 0}, [] {}), refused_input);
  EXPECT_THROW(run_in_turn({1, 0, 0}, [] {}), refused_input);
  EXPECT_THROW(run_in_turn({1, 1025, 0}, [] {}), refused_input);
  EXPECT_THROW(run_in_turn({64, 1024, 0}, [] {}), refused_input);
  EXPECT_THROW(run({.resident_blocks = 0}, round_robin(), {1, 1, 0}, [] {}), refused_input);
}

TEST(RunFailure, NamesTheLaneOfAFailedCheck) {
  auto const result =
      run_in_turn({3, 64, 0}, [] { fiber::check(fiber::thread_rank() != 64 + 35, "not the hundredth"); });
  EXPECT_FALSE(result);
  EXPECT_THAT(result.what, AllOf(HasSubstr("block 1 warp 1 lane 3: check failed: not the hundredth"),
                                 HasSubstr("run_test.cpp:"), HasSubstr("round_robin()")));
}

TEST(RunFailure, NamesTheLaneOfAnException) {
  auto const result = run_in_turn({1, 64, 0}, [] {
    if (fiber::thread_rank() == 33) throw std::runtime_error("out of luck");
    fiber::this_block().sync();
  });
  EXPECT_THAT(result.what, HasSubstr("block 0 warp 1 lane 1: exception: out of luck"));
}

TEST(RunFailure, NamesTheAgent) {
  auto const result = run_in_turn({1, 1, 0}, [] {}, {{"drive", [] { throw std::runtime_error("head crash"); }}});
  EXPECT_THAT(result.what, HasSubstr("agent drive: exception: head crash"));
}

TEST(RunFailure, SaysUnderWhichSeed) {
  auto const result = run({}, simt::random(4711, 3), {1, 1, 0}, [] { fiber::check(false, "always"); });
  EXPECT_THAT(result.what, HasSubstr("random(seed=4711, stickiness=3)"));
}

TEST(RunFailure, ExceptionsStayInTheirLanes) {
  auto const result = run({}, simt::random(1, 1), {2, 64, 0}, [] {
    for (int i = 0; i < 5; ++i) {
      try {
        std::uint32_t word = 0;
        atomic<fiber>(word).fetch_add(1, order::relaxed);
        throw fiber::thread_rank();
      } catch (std::uint32_t rank) {
        std::uint32_t word = 0;
        // Other lanes throw and catch while this one handles its own.
        for (int k = 0; k < 5; ++k) atomic<fiber>(word).fetch_add(1, order::relaxed);
        fiber::check(rank == fiber::thread_rank(), "my exception");
        try {
          throw;
        } catch (std::uint32_t again) {
          fiber::check(again == fiber::thread_rank(), "still my exception");
        }
      }
    }
  });
  EXPECT_TRUE(result) << result.what;
}

TEST(RunDeadlock, NamesEveryWaitingLaneAndItsPlace) {
  std::uint32_t never = 0;
  auto const result = run_in_turn({2, 40, 0},
                                  [&] {
                                    if (fiber::this_block().rank == 1) return;
                                    auto const warp = fiber::this_warp();
                                    if (fiber::thread_rank() == 7)
                                      wait_for([&] { return atomic<fiber>(never).load(order::acquire) != 0; });
                                    if (fiber::thread_rank() < 16) warp.subset(0x0000ffff).sync();
                                    fiber::this_block().sync();
                                  },
                                  {{"host", [&] { wait_for([&] { return fiber::ld(&never) == 2; }); }}});
  EXPECT_FALSE(result);
  EXPECT_THAT(result.what, HasSubstr("deadlock"));
  EXPECT_THAT(result.what, HasSubstr("block 0 warp 0 lane 7 waits in wait_until at run_test.cpp:"));
  EXPECT_THAT(result.what, HasSubstr("block 0 warp 0 lanes 0-6,8-15 waits in sync(mask 0x0000ffff) at run_test.cpp:"));
  EXPECT_THAT(result.what, HasSubstr("block 0 warp 0 lanes 16-31 waits in block sync at run_test.cpp:"));
  EXPECT_THAT(result.what, HasSubstr("block 0 warp 1 lanes 0-7 waits in block sync at run_test.cpp:"));
  EXPECT_THAT(result.what, HasSubstr("agent host waits in wait_until at run_test.cpp:"));
  EXPECT_THAT(result.what, Not(HasSubstr("block 1 ")));
}

TEST(RunDeadlock, ALostWakeUpIsFoundWhereAllSchedulesThatKeepItAreNot) {
  // The classic error: look at the flag, then announce the sleep, without looking again.
  auto lost = [](scheduler& schedule) {
    std::uint32_t flag = 0, sleeps = 0, woken = 0;
    return run({}, schedule, {1, 2, 0}, [&] {
      if (fiber::thread_rank() == 0) {
        if (atomic<fiber>(flag).load(order::acquire) == 0) {
          atomic<fiber>(sleeps).store(1, order::release);
          wait_for([&] { return atomic<fiber>(woken).load(order::acquire) != 0; });
        }
      } else {
        atomic<fiber>(flag).store(1, order::release);
        if (atomic<fiber>(sleeps).load(order::acquire) != 0) atomic<fiber>(woken).store(1, order::release);
      }
    });
  };
  int found = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    simt::random schedule(seed);
    auto const result = lost(schedule);
    if (!result) {
      ++found;
      EXPECT_THAT(result.what, HasSubstr("deadlock"));
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, 200);
}

TEST(RunDeadlock, ResidentBlocksThatWaitForLaterOnesAreReported) {
  std::uint32_t arrived = 0;
  auto grid_barrier = [&] {
    atomic<fiber>(arrived).fetch_add(1, order::acq_rel);
    wait_for([&] { return atomic<fiber>(arrived).load(order::acquire) == fiber::thread_count(); });
  };
  EXPECT_TRUE(run({.resident_blocks = 4}, round_robin(), {4, 8, 0}, grid_barrier));
  arrived = 0;
  auto const result = run({.resident_blocks = 3}, round_robin(), {4, 8, 0}, grid_barrier);
  EXPECT_THAT(result.what,
              AllOf(HasSubstr("deadlock"), HasSubstr("blocks 3-3 have not started: 3 blocks run at a time")));
}

TEST(RunBlocks, StartWhenOthersEnd) {
  std::uint32_t running = 0, most = 0;
  auto const result = run({.resident_blocks = 2}, simt::random(3), {9, 32, 0}, [&] {
    if (fiber::this_block().thread_rank() == 0)
      atomic<fiber>(most).fetch_max(atomic<fiber>(running).fetch_add(1, order::relaxed) + 1, order::relaxed);
    fiber::this_block().sync();
    if (fiber::this_block().thread_rank() == 0) atomic<fiber>(running).fetch_sub(1, order::relaxed);
    fiber::this_block().sync();
  });
  EXPECT_TRUE(result) << result.what;
  EXPECT_EQ(running, 0u);
  EXPECT_EQ(most, 2u);
}

TEST(RunBlocks, BarriersCountTheLanesThatHaveNotEnded) {
  auto const result = run_in_turn({1, 64, 0}, [] {
    if (fiber::thread_rank() % 2 == 0) return;
    fiber::this_block().sync();
    fiber::this_block().sync();
  });
  EXPECT_TRUE(result) << result.what;
}

TEST(RunBlocks, SharedMemoryStartsUninitialisedAndIsBounded) {
  auto const result = run_in_turn({2, 1, 8}, [] {
    auto& word = fiber::this_block().shared<std::uint64_t>();
    fiber::check(word == 0xcdcdcdcdcdcdcdcd, "a pattern");
    word = 0;
  });
  EXPECT_TRUE(result) << result.what;
  EXPECT_THAT(run_in_turn({1, 1, 4}, [] { fiber::this_block().shared<std::uint64_t>() = 0; }).what,
              HasSubstr("grid::shared_bytes is too small"));
}

TEST(RunWarp, LanesThatWaitForEachOtherInDifferentCollectivesAreAnError) {
  auto const masks = run_in_turn({1, 32, 0}, [] {
    auto const warp = fiber::this_warp();
    fiber::thread_rank() == 0 ? warp.subset(0x3).sync() : warp.sync();
  });
  EXPECT_THAT(masks.what,
              AllOf(HasSubstr("mask 0x00000003"), HasSubstr("mask 0xffffffff"), Not(HasSubstr("deadlock"))));
  auto const kinds = run_in_turn({1, 32, 0}, [] {
    auto const warp = fiber::this_warp();
    fiber::thread_rank() == 9 ? static_cast<void>(warp.any(true)) : static_cast<void>(warp.all(true));
  });
  EXPECT_THAT(kinds.what, AllOf(HasSubstr("any(mask 0xffffffff)"), HasSubstr("all(mask 0xffffffff)")));
}

TEST(RunWarp, AnEndedLaneInAMaskIsAnError) {
  auto const before = run_in_turn({1, 32, 0}, [] {
    if (fiber::thread_rank() == 4) return;
    std::uint32_t word = 0;
    for (int i = 0; i < 3; ++i) fiber::st(&word, 0);
    fiber::this_warp().sync();
  });
  EXPECT_THAT(before.what, AllOf(HasSubstr("names lane 4, which has ended"), HasSubstr("run_test.cpp:")));
  auto const after = run_in_turn({1, 32, 0}, [] {
    std::uint32_t word = 0;
    if (fiber::thread_rank() == 4) {
      for (int i = 0; i < 3; ++i) fiber::st(&word, 0);
      return;
    }
    fiber::this_warp().sync();
  });
  EXPECT_THAT(after.what,
              AllOf(HasSubstr("warp 0 lane 4: the lane ends while lane"), HasSubstr("waits for it in sync")));
}

TEST(RunWarp, MasksMustHoldTheCallerAndOnlyLanesOfTheBlock) {
  EXPECT_THAT(run_in_turn({1, 32, 0}, [] { fiber::warp(2).sync(); }).what, HasSubstr("does not hold the calling lane"));
  EXPECT_THAT(run_in_turn({1, 8, 0}, [] { static_cast<void>(fiber::warp(0x1ff).any(true)); }).what,
              HasSubstr("names lane 8, beyond the block"));
  EXPECT_THAT(
      run_in_turn(
          {1, 32, 0},
          [] {
            static_cast<void>(
                fiber::this_warp().subset(0xf << fiber::thread_rank() / 4 * 4).shfl(1, 31 - fiber::thread_rank()));
          })
          .what,
      HasSubstr("does not hold"));
}

TEST(RunWarp, ConvergedIsAnySetThatHoldsTheCallerAndAllMembersSeeTheSame) {
  bool saw_all = false, saw_one = false, saw_some = false;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<std::uint32_t> masks(32);
    auto const result = run({}, simt::random(seed, seed % 2 == 0 ? 1 : 64), {1, 32, 0}, [&] {
      auto const warp = fiber::converged();
      fiber::check((warp.mask() >> warp.thread_rank() & 1) != 0, "holds the caller");
      fiber::check(warp.ballot(true) == warp.mask(), "is fit for collectives");
      masks[warp.thread_rank()] = warp.mask();
    });
    ASSERT_TRUE(result) << result.what;
    for (auto const mask : masks) {
      (mask == ~0u ? saw_all : (mask & (mask - 1)) == 0 ? saw_one : saw_some) = true;
      for (std::uint32_t i = 0; i < 32; ++i)
        if ((mask >> i & 1) != 0) {
          ASSERT_EQ(masks[i], mask);
        }
    }
  }
  EXPECT_TRUE(saw_one);
  EXPECT_TRUE(saw_some);
  static_cast<void>(saw_all);
}

TEST(RunTime, JumpsToTheNextDeadlineWhenNothingElseCanRun) {
  std::array<std::uint64_t, 3> woke{};
  std::uint32_t never = 0;
  auto const result = run_in_turn({1, 3, 0}, [&] {
    std::uint64_t const due = 1'000'000 * (3 - fiber::thread_rank());
    fiber::check(fiber::clock_ns() == 0, "time stands still while lanes can run");
    fiber::check(!fiber::wait_until([&] { return fiber::ld(&never) != 0; }, due), "times out");
    woke[fiber::thread_rank()] = fiber::clock_ns();
  });
  EXPECT_TRUE(result) << result.what;
  EXPECT_THAT(woke, ::testing::ElementsAre(3'000'000, 2'000'000, 1'000'000));
  EXPECT_EQ(result.time_ns, 3'000'000u);
  EXPECT_EQ(result.timeouts, 3u);
  EXPECT_EQ(result.agent_timeouts, 0u);
}

TEST(RunTime, APredicateThatHoldsAtItsDeadlineIsNoTimeout) {
  auto const result = run_in_turn({1, 1, 0}, [] {
    fiber::check(fiber::wait_until([] { return fiber::clock_ns() >= 500; }, 500), "holds when time has come");
  });
  EXPECT_TRUE(result) << result.what;
  EXPECT_EQ(result.timeouts, 0u);
}

TEST(RunTime, DeadlinesOfAgentsAreCountedApart) {
  auto const result = run_in_turn({1, 1, 0}, [] {}, {{"timer", [] {
                                                        for (int i = 1; i <= 4; ++i)
                                                          static_cast<void>(fiber::wait_until(
                                                              [] { return false; }, 10u * static_cast<unsigned>(i)));
                                                      }}});
  EXPECT_TRUE(result) << result.what;
  EXPECT_EQ(result.timeouts, 0u);
  EXPECT_EQ(result.agent_timeouts, 4u);
}

TEST(RunWait, WakesOnPlainStoresCopiesAndAgents) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "flags that are plain words are races, and ThreadSanitizer says so";
#endif
  std::uint32_t word = 0;
  std::array<std::uint64_t, 8> area{}, source{};
  source.fill(3);
  auto const result = run({}, simt::random(5), {1, 2, 0},
                          [&] {
                            if (fiber::thread_rank() == 0) {
                              wait_for([&] { return fiber::ld(&area[7]) == 3; });
                              fiber::st(&word, 2u);
                            } else {
                              wait_for([&] { return fiber::ld(&word) == 1; });
                              fiber::copy(area.data(), source.data(), sizeof area);
                              wait_for([&] { return fiber::ld(&word) == 2; });
                            }
                          },
                          {{"host", [&] { fiber::st(&word, 1u); }}});
  EXPECT_TRUE(result) << result.what;
}

TEST(RunWait, APredicateThatReadsNothingIsAnError) {
  bool flag = false;
  EXPECT_THAT(run_in_turn({1, 1, 0}, [&] { wait_for([&] { return flag; }); }).what, HasSubstr("reads nothing"));
}

TEST(RunWait, APredicateMustNotWait) {
  EXPECT_THAT(run_in_turn({1, 1, 0}, [] { wait_for([] { return fiber::wait_until([] { return true; }, 0); }); }).what,
              HasSubstr("inside the predicate of another"));
}

TEST(RunLimits, StepLimitNamesTheBusyLane) {
  std::uint32_t word = 0;
  auto const result = run({.max_steps = 1000}, round_robin(), {1, 4, 0}, [&] {
    if (fiber::thread_rank() == 2)
      while (fiber::ld(&word) == 0) {
      }
  });
  EXPECT_THAT(result.what, AllOf(HasSubstr("step limit: 1000 steps"), HasSubstr("of block 0 warp 0 lane 2, last at")));
}

TEST(RunTime, DoesNotPassWhileALaneWorksInTheConditionOfItsWait) {
  for (memory_model const memory : {memory_model::sequential, memory_model::store_buffers, memory_model::stale_reads}) {
    std::uint32_t looks_of_all = 0, flag = 0;
    std::vector<std::uint32_t> data(4096);
    auto const look = [&] { (void)atomic<fiber>(looks_of_all).fetch_add(1, order::relaxed); };  // wakes the others
    auto const result = run({.memory = memory}, round_robin(), {1, 3, 0}, [&] {
      if (fiber::thread_rank() == 0) {
        int looks = 0;
        wait_for([&] {
          look();
          if (++looks < 4) return false;
          for (std::uint32_t& word : data) fiber::st(&word, 1u);
          return true;
        });
        atomic<fiber>(flag).store(1, order::release);
      } else {
        bool const came = fiber::wait_until(
            [&] {
              look();
              return atomic<fiber>(flag).load(order::acquire) != 0;
            },
            1'000'000'000);
        fiber::check(came, "time did not pass");
      }
    });
    EXPECT_TRUE(result) << result.what;
  }
}

TEST(RunLimits, LanesThatOnlyWakeEachOtherAreALivelock) {
  std::uint32_t word = 0;
  auto const result = run_in_turn({1, 2, 0}, [&] {
    wait_for([&] {
      atomic<fiber>(word).fetch_add(1, order::relaxed);
      return false;
    });
  });
  EXPECT_THAT(result.what, HasSubstr("livelock"));
}

/// Counts its destructions.
struct witness {
  int& ended;
  ~witness() { ++ended; }
};

TEST(RunAgents, DaemonsAreUnwoundWhenTheRunEnds) {
  int rude_ended = 0, polite_ended = 0;
  std::uint32_t served = 0;
  auto rude = [&] {
    witness const here{rude_ended};
    std::uint32_t never = 0;
    wait_for([&] { return atomic<fiber>(never).load(order::acquire) != 0; });
  };
  auto polite = [&] {
    witness const here{polite_ended};
    while (!fiber::stopping()) {
      atomic<fiber>(served).fetch_add(1, order::relaxed);
      static_cast<void>(fiber::wait_until([] { return fiber::stopping(); }, no_deadline));
    }
  };
  auto const result = run_in_turn({1, 32, 0}, [] { fiber::this_block().sync(); },
                                  {{.name = "rude", .body = rude, .daemon = true}, {.name = "polite", .body = polite}});
  EXPECT_TRUE(result) << result.what;
  EXPECT_EQ(served, 1u);
  EXPECT_EQ(rude_ended, 1);
  EXPECT_EQ(polite_ended, 1);
}

TEST(RunAgents, AgentsAreUnwoundAfterAFailureToo) {
  int ended = 0;
  auto const result = run({}, simt::random(1), {1, 2, 0},
                          [] {
                            std::uint32_t word = 0;
                            for (int i = 0; i < 100; ++i) fiber::st(&word, 0u);
                            fiber::check(fiber::thread_rank() == 0, "planned");
                          },
                          {{"owner", [&] {
                              witness const here{ended};
                              std::uint32_t never = 0;
                              wait_for([&] { return atomic<fiber>(never).load(order::acquire) != 0; });
                            }}});
  EXPECT_THAT(result.what, HasSubstr("planned"));
  EXPECT_EQ(ended, 1);
}

TEST(RunAgents, TheRunWaitsForAgentsThatAreNoDaemons) {
  std::uint32_t done = 0;
  auto const result =
      run_in_turn({1, 1, 0}, [] {}, {{"late", [&] {
                                        static_cast<void>(fiber::wait_until([] { return false; }, 1'000));
                                        done = 1;
                                      }}});
  EXPECT_TRUE(result) << result.what;
  EXPECT_EQ(done, 1u);
}

TEST(RunAgents, ChoicesComeFromTheScheduler) {
  std::vector<std::uint32_t> first, second;
  auto agents = [](std::vector<std::uint32_t>& out) {
    return std::vector<agent>{{"chooser", [&out] {
                                 for (int i = 0; i < 20; ++i) out.push_back(fiber::choose(100));
                               }}};
  };
  auto const result = run({}, simt::random(9), {1, 1, 0}, [] {}, agents(first));
  run({}, replay(result.trace), {1, 1, 0}, [] {}, agents(second));
  EXPECT_EQ(first, second);
  EXPECT_GT(*std::max_element(first.begin(), first.end()), 50u);
}

TEST(Run, RunsInParallelOnSeveralThreads) {
  auto work = [](std::uint64_t seed, std::string& failure) {
    for (int i = 0; i < 10 && failure.empty(); ++i) {
      std::uint32_t sum = 0;
      auto const result = run({.memory = memory_model::stale_reads}, simt::random(seed), {2, 32, 0}, [&] {
        atomic<fiber>(sum).fetch_add(fiber::this_warp().shfl(fiber::thread_rank(), 1), order::relaxed);
      });
      if (!result) failure = result.what;
      if (sum != 32 * (1 + 33)) failure = "sum " + std::to_string(sum);
    }
  };
  std::string first, second;
  {
    std::jthread const a([&] { work(1, first); });
    std::jthread const b([&] { work(2, second); });
  }
  EXPECT_EQ(first, "");
  EXPECT_EQ(second, "");
}

}  // namespace
}  // namespace forebay::simt
