// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/launch.hpp"

#include <gmock/gmock.h>

#include <stdexcept>
#include <thread>

#include "forebay/error.hpp"

namespace forebay::simt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Kernel>
std::string failure_of(grid const& shape, Kernel const& kernel) {
  try {
    launch<fiber>(shape, kernel, {.os_threads = 2});
  } catch (operation_failed const& e) {
    return e.what();
  }
  return "no failure";
}

// ThreadSanitizer has room for 8128 fibers.
#if defined(__SANITIZE_THREAD__)
constexpr std::uint32_t many_blocks = 24;
#else
constexpr std::uint32_t many_blocks = 64;
#endif

TEST(Launch, SixteenThousandLanesAreUnderWayAtOnce) {
  std::uint32_t arrived = 0;
  std::uint64_t sum = 0;
  launch<fiber>({many_blocks, 256, 0}, [&] {
    atomic<fiber>(arrived).fetch_add(1, order::acq_rel);
    // Pairs with the release of the increments: a barrier over the whole grid.
    bool const all = fiber::wait_until(
        [&] { return atomic<fiber>(arrived).load(order::acquire) == fiber::thread_count(); }, no_deadline);
    fiber::check(all, "all arrived");
    atomic<fiber>(sum).fetch_add(fiber::thread_rank(), order::relaxed);
  });
  std::uint64_t const lanes = many_blocks * 256;
  EXPECT_EQ(arrived, lanes);
  EXPECT_EQ(sum, lanes * (lanes - 1) / 2);
}

TEST(Launch, GridsAndHostThreadsHaveNumbersOfTheirOwn) {
  std::uint32_t outer = 0, inner = 0, host = 0;
  launch<fiber>({1, 1, 0}, [&] {
    outer = fiber::grid_id();
    std::thread([&] {
      host = fiber::grid_id();
      launch<fiber>({1, 1, 0}, [&] { inner = fiber::grid_id(); });
    }).join();
  });
  EXPECT_NE(outer, inner);
  EXPECT_GE(host, host_grids);
  EXPECT_NE(host, fiber::grid_id());
}

TEST(Launch, LargerGridsRunABlockAfterTheOther) {
  std::uint64_t lanes = 0;
  launch<fiber>({500, 32, 64},
                [&] {
                  fiber::this_block().shared<std::array<std::uint16_t, 32>>()[fiber::this_block().thread_rank()] = 1;
                  fiber::this_block().sync();
                  std::uint32_t ones = 0;
                  for (auto const one : fiber::this_block().shared<std::array<std::uint16_t, 32>>()) ones += one;
                  if (fiber::this_block().thread_rank() == 0) atomic<fiber>(lanes).fetch_add(ones, order::relaxed);
                },
                {.os_threads = 2, .resident_lanes = 128});
  EXPECT_EQ(lanes, 16'000u);
}

TEST(Launch, WorksTogetherWithOtherThreads) {
  std::uint32_t request = 0, answer = 0;
  std::jthread const server([&] {
    for (std::uint32_t i = 1; i <= 200; ++i) {
      // Pairs with the release of the request, and of the answer.
      if (!native::wait_until([&] { return atomic<native, scope::system>(request).load(order::acquire) == i; },
                              native::clock_ns() + 60'000'000'000))
        return;
      atomic<native, scope::system>(answer).store(i, order::release);
    }
  });
  launch<fiber>({2, 32, 0}, [&] {
    for (std::uint32_t i = 1; i <= 200; ++i) {
      if (fiber::thread_rank() == 0) atomic<fiber, scope::system>(request).store(i, order::release);
      bool const answered =
          fiber::wait_until([&] { return atomic<fiber, scope::system>(answer).load(order::acquire) >= i; },
                            fiber::clock_ns() + 60'000'000'000);
      fiber::check(answered, "answered");
    }
  });
  EXPECT_EQ(answer, 200u);
}

TEST(Launch, LetsLanesMeetWhereThatIsAsked) {
  for (bool const meet : {false, true}) {
    std::vector<std::uint32_t> together(3 * 40);
    launch<fiber>({3, 40, 0}, [&] { together[fiber::thread_rank()] = fiber::converged().mask(); },
                  {.os_threads = 2, .lanes_meet = meet});
    for (std::uint32_t lane = 0; lane < together.size(); ++lane) {
      std::uint32_t const in_warp = lane % 40 % 32;
      std::uint32_t const all = lane % 40 < 32 ? ~0u : 0xffu;
      EXPECT_EQ(together[lane], meet ? all : 1u << in_warp) << lane;
    }
  }
}

template <int>
std::uint32_t lanes_here() {
  return fiber::converged().mask();
}

TEST(Launch, LanesInTwoInstantiationsOfATemplateDoNotMeet) {
  std::vector<std::uint32_t> together(8);
  launch<fiber>({1, 8, 0},
                [&] {
                  std::uint32_t const me = fiber::thread_rank();
                  together[me] = me % 2 == 0 ? lanes_here<0>() : lanes_here<1>();
                },
                {.lanes_meet = true});
  for (std::uint32_t lane = 0; lane < together.size(); ++lane) {
    EXPECT_EQ(together[lane], lane % 2 == 0 ? 0x55u : 0xaau) << lane;
  }
}

TEST(Launch, LanesThatMetAreInTheMiddleOfNothingElse) {
  // One lane waits for what another does after they met; blocks end and begin meanwhile.
  std::vector<std::uint32_t> sum(200);
  launch<fiber>({200, 8, 0},
                [&] {
                  auto& mine = sum[fiber::this_block().rank];
                  for (std::uint32_t round = 0; round < 20; ++round) {
                    auto const here = fiber::converged();
                    fiber::check(here.any(true), "all of them answer");
                    atomic<fiber>(mine).fetch_add(1, order::relaxed);
                    if (fiber::this_block().thread_rank() == 0) {
                      (void)fiber::wait_until(
                          [&] { return atomic<fiber>(mine).load(order::relaxed) >= 8 * (round + 1); }, no_deadline);
                    }
                  }
                },
                {.os_threads = 2, .resident_lanes = 64, .lanes_meet = true});
  for (std::uint32_t const count : sum) EXPECT_EQ(count, 160u);
}

TEST(LaunchFailure, NamesTheLane) {
  EXPECT_THAT(
      failure_of({3, 64, 0}, [] { fiber::check(fiber::thread_rank() != 64 + 35, "not the hundredth"); }),
      AllOf(HasSubstr("block 1 warp 1 lane 3: check failed: not the hundredth"), HasSubstr("launch_test.cpp:")));
  EXPECT_THAT(failure_of({3, 64, 0},
                         [] {
                           if (fiber::thread_rank() == 5) throw std::runtime_error("out of luck");
                         }),
              HasSubstr("block 0 warp 0 lane 5: exception: out of luck"));
}

TEST(LaunchFailure, StopsLanesThatWaitForEver) {
  std::uint32_t never = 0;
  EXPECT_THAT(failure_of({4, 32, 0},
                         [&] {
                           fiber::check(fiber::this_block().rank != 3, "block 3");
                           static_cast<void>(fiber::wait_until([&] { return fiber::ld(&never) != 0; }, no_deadline));
                         }),
              HasSubstr("check failed: block 3"));
}

TEST(LaunchFailure, CollectiveDeadlocksAreReported) {
  for (int i = 0; i < 20; ++i)
    EXPECT_THAT(
        failure_of({3, 64, 0},
                   [] { fiber::thread_rank() == 100 ? fiber::this_warp().sync() : fiber::this_block().sync(); }),
        AllOf(HasSubstr("deadlock"), HasSubstr("block 1 warp 1 lane 4 waits in sync(mask 0xffffffff)"),
              HasSubstr("block 1 warp 0 lanes 0-31 waits in block sync")));
}

TEST(Launch, RefusesShapesThatItCannotRun) {
  EXPECT_THROW(launch<fiber>({0, 32, 0}, [] {}), refused_input);
  EXPECT_THROW(launch<fiber>({1, 2048, 0}, [] {}), refused_input);
  EXPECT_THROW(launch<fiber>({1, 32, 0}, [] {}, {.stack_bytes = 100}), refused_input);
}

}  // namespace
}  // namespace forebay::simt
