// SPDX-License-Identifier: Apache-2.0
//! \file
//! Asynchronous copies of the CPU executor: the rules that it checks, and the wrong stagers that its schedules find.
#include "forebay/detail/simt/stager.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/error.hpp"
#include "staged_sums.hpp"
#include "support/seed.hpp"

namespace forebay::simt {
namespace {

using testing::staged_sums;
using testing::staged_sums_kernel;
using u32 = std::uint32_t;
using ::testing::HasSubstr;

constexpr memory_model all_models[] = {memory_model::sequential, memory_model::store_buffers,
                                       memory_model::race_detector, memory_model::stale_reads};

alignas(16) u32 source[64];

/// The failure of `kernel` on a block of one lane with 256 bytes of shared memory, in a scheduled run and in real time.
void expect_fails(std::function<void(u32* shared)> const& kernel, std::string const& what) {
  auto const body = [&] { kernel(&fiber::this_block().shared<u32>()); };
  grid const shape{1, 1, 256};
  for (auto const memory : all_models) {
    EXPECT_THAT(run({.memory = memory}, simt::random(1), shape, body).what, HasSubstr(what));
  }
  try {
    launch<fiber>(shape, body);
    ADD_FAILURE() << "no failure: " << what;
  } catch (operation_failed const& failure) {
    EXPECT_THAT(failure.what(), HasSubstr(what));
  }
}

TEST(Copies, MustBeAligned) {
  expect_fails([](u32* shared) { fiber::copy_async<16>(shared + 1, source); },
               "copy_async: the target is not aligned to 16 bytes");
  expect_fails([](u32* shared) { fiber::copy_async<8>(shared, source + 1); },
               "copy_async: the source is not aligned to 8 bytes");
  expect_fails([](u32* shared) { fiber::copy_async<4>(shared, reinterpret_cast<std::byte const*>(source) + 2); },
               "copy_async: the source is not aligned to 4 bytes");
  auto const bulk = [](std::size_t to, std::size_t from, u32 bytes) {
    return [=](u32* shared) {
      auto& barrier = *reinterpret_cast<bulk_barrier<fiber>*>(shared);
      barrier.init(1);
      barrier.copy_bulk(shared + to, source + from, bytes);
    };
  };
  expect_fails(bulk(5, 0, 16), "copy_bulk: the target is not aligned to 16 bytes");
  expect_fails(bulk(4, 2, 16), "copy_bulk: the source is not aligned to 16 bytes");
  expect_fails(bulk(4, 0, 24), "copy_bulk: 24 bytes are no multiple of 16");
  expect_fails(bulk(4, 0, 0), "copy_bulk: 0 bytes are no multiple of 16");
  expect_fails(bulk(60, 0, 32), "copy_bulk: the target is not in the shared memory of the block");
}

TEST(Copies, GoToTheSharedMemoryOfTheBlock) {
  expect_fails([](u32*) { fiber::copy_async<16>(source + 4, source); },
               "copy_async: the target is not in the shared memory of the block");
  expect_fails([](u32* shared) { fiber::copy_async<4>(shared + 64, source); }, "is not in the shared memory");
  expect_fails([](u32* shared) { fiber::copy_async<4>(shared - 1, source); }, "is not in the shared memory");
}

TEST(Copies, AreWaitedForBeforeTheirLaneOrBlockEnds) {
  expect_fails([](u32* shared) { fiber::copy_async<4>(shared, source); },
               "the lane ends before it has waited for 1 of its copies");
  expect_fails(
      [](u32* shared) {
        auto& barrier = *reinterpret_cast<bulk_barrier<fiber>*>(shared);
        barrier.init(1);
        barrier.expect(32);
        barrier.copy_bulk(shared + 4, source, 16);
        // In a scheduled run the first may have arrived by now. This one cannot have.
        barrier.copy_bulk(shared + 8, source, 16);
      },
      "the block ends while ");
}

TEST(Copies, ABarrierKnowsHowManyArrive) {
  expect_fails(
      [](u32* shared) {
        auto& barrier = *reinterpret_cast<bulk_barrier<fiber>*>(shared);
        barrier.init(2);
        barrier.arrive();
        barrier.expect(16);
        barrier.arrive();
        barrier.arrive();
      },
      "a barrier: more lanes arrive than init() said");
  expect_fails([](u32* shared) { reinterpret_cast<bulk_barrier<fiber>*>(shared)->init(0); },
               "a barrier: 1 to 1024 arrivals");
}

TEST(Copies, APhaseWaitsForBytesAndLanes) {
  // A phase whose bytes never come is a deadlock, which names the place of the wait.
  auto const body = [] {
    auto& barrier = fiber::this_block().shared<bulk_barrier<fiber>>();
    barrier.init(1);
    barrier.expect(16);
    barrier.arrive();
    barrier.wait(0);
  };
  for (auto const memory : all_models) {
    auto const result = run({.memory = memory}, simt::random(1), {1, 1, 16}, body);
    EXPECT_THAT(result.what, HasSubstr("deadlock")) << static_cast<int>(memory);
    EXPECT_THAT(result.what, HasSubstr("bulk_barrier.hpp"));
  }
}

TEST(Copies, BytesMayArriveBeforeTheyAreExpected) {
  auto const body = [] {
    auto& words = fiber::this_block().shared<u32[16]>();
    auto& barrier = *reinterpret_cast<bulk_barrier<fiber>*>(words);
    barrier.init(1);
    barrier.copy_bulk(words + 4, source, 32);
    for (int i = 0; i < 20; ++i) (void)fiber::ld(source);  // so that the copy may arrive
    barrier.expect(32);
    barrier.arrive();
    barrier.wait(0);
    fiber::check(fiber::ld(words + 11) == 8, "the last word has arrived");
  };
  for (u32 i = 0; i < 64; ++i) source[i] = i + 1;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    auto const result = run({}, simt::random(seed), {1, 1, 64}, body);
    ASSERT_TRUE(result) << result.what;
  }
  launch<fiber>({1, 1, 64}, body);
}

TEST(Copies, TheTargetHoldsAPatternUntilTheyArrive) {
  for (u32 i = 0; i < 64; ++i) source[i] = i + 1;
  u32 early = 0, late = 0, mixed = 0;
  auto const body = [&] {
    auto* const shared = &fiber::this_block().shared<u32>();
    fiber::copy_async<4>(shared, source);
    u32 const seen = fiber::ld(shared);
    fiber::commit_copies();
    fiber::wait_copies<0>();
    fiber::check(fiber::ld(shared) == 1, "a copy has arrived after its wait");
    ++(seen == 1 ? early : seen == 0xabababab ? late : mixed);
  };
  launch<fiber>({1, 1, 16}, body);
  EXPECT_EQ(late, 1u);
  for (auto const memory : all_models) {
    early = late = mixed = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      auto const result = run({.memory = memory}, simt::random(seed), {1, 1, 16}, body);
      ASSERT_TRUE(result) << result.what;
    }
    EXPECT_GT(late, 0u) << static_cast<int>(memory);
    // Where stores are held back, the lane sees its own store of the pattern.
    if (memory != memory_model::store_buffers) {
      EXPECT_GT(early, 0u) << static_cast<int>(memory);
    }
    EXPECT_EQ(mixed, 0u);
  }
}

/// Whether a schedule neither fails nor gives wrong sums.
template <class Policy, class Rules>
bool passes(memory_model memory, std::uint64_t seed, std::string& what) {
  constexpr u32 stages = 2;
  staged_sums const sums{.lanes = 40, .tiles = 5};
  std::vector<u32> words = sums.words();
  simt::random sticky(seed, 4);
  pct priorities(seed, 3, 3000);
  auto const result = run({.memory = memory}, seed % 2 == 0 ? static_cast<scheduler&>(sticky) : priorities,
                          {1, sums.lanes, stager<fiber, Policy, u32>::shared_bytes(staged_sums::tile, stages)},
                          staged_sums_kernel<fiber, Policy, Rules>{sums.tiles, stages, words.data()});
  what = result.what;
  if (!result) return false;
  if (sums.of(words) == sums.expected()) return true;
  what = "wrong sums, memory model " + std::to_string(static_cast<int>(memory)) + ", seed " + std::to_string(seed);
  return false;
}

constexpr std::uint64_t schedules = 6;

/// How many of the schedules find something, over all memory models.
template <class Policy, class Rules>
u32 found(std::string& what) {
  u32 count = 0;
  for (auto const memory : all_models) {
    for (std::uint64_t seed = 0; seed < schedules; ++seed) {
      if (!passes<Policy, Rules>(memory, seed, what)) ++count;
    }
  }
  return count;
}

template <class Policy>
class Stager : public ::testing::Test {};
using policies = ::testing::Types<stage_policy::plain, stage_policy::async4, stage_policy::async16, stage_policy::bulk>;
struct policy_names {
  template <class>
  static std::string GetName(int i) {
    static constexpr char const* names[] = {"plain", "async4", "async16", "bulk"};
    return names[i];
  }
};
TYPED_TEST_SUITE(Stager, policies, policy_names);

struct no_wait : stager_rules {
  static constexpr bool waits = false;
};
struct wrong_phase : stager_rules {
  static constexpr bool parity_changes = false;
};
struct early_release : stager_rules {
  static constexpr bool release_waits = false;
};
struct missing_buffer : stager_rules {
  static constexpr std::uint32_t buffers_missing = 1;
};

TYPED_TEST(Stager, PassesUnderEverySchedule) {
  std::string what;
  EXPECT_EQ((found<TypeParam, stager_rules>(what)), 0u) << what;
}
TYPED_TEST(Stager, WithoutItsWaitIsFound) {
  std::string what;
  EXPECT_GT((found<TypeParam, no_wait>(what)), 0u);
}
TYPED_TEST(Stager, ThatReleasesTooEarlyIsFound) {
  std::string what;
  EXPECT_GT((found<TypeParam, early_release>(what)), 0u);
}
TYPED_TEST(Stager, WithOneStageTooFewIsFound) {
  std::string what;
  EXPECT_GT((found<TypeParam, missing_buffer>(what)), 0u);
}
TYPED_TEST(Stager, CopiesRowsOfAnyShape) {
  std::uint64_t const seed = emulator::testing::test_seed();
  SCOPED_TRACE(emulator::testing::replay(seed));
  std::mt19937_64 random(seed);
  auto const from_to = [&](u32 least, u32 most) { return least + static_cast<u32>(random() % (most - least + 1)); };
  for (int i = 0; i < 200; ++i) {
    // Elements of 4 bytes in whole quads, as copies of 16 bytes need.
    u32 const lanes = from_to(1, 256), rows = from_to(1, 40), columns = 4 * from_to(1, 20);
    u32 const to_pitch = columns + 4 * from_to(0, 3), from_pitch = columns + 4 * from_to(0, 50);
    SCOPED_TRACE(::testing::Message() << lanes << " lanes, " << rows << " rows of " << columns << ", pitches "
                                      << to_pitch << " and " << from_pitch);
    struct alignas(16) quad {
      u32 of[4];
    };
    std::vector<quad> words(std::size_t{rows} * from_pitch / 4);
    u32* const from = words.front().of;
    for (u32 k = 0; k < rows * from_pitch; ++k) from[k] = k;
    u32 const tile = rows * to_pitch;
    std::vector<u32> found(tile);
    launch<fiber>({1, lanes, stager<fiber, TypeParam, u32>::shared_bytes(tile, 1)}, [&] {
      auto const block = fiber::this_block();
      stager<fiber, TypeParam, u32> staged(block, &block.template shared<std::byte>(), tile, 1);
      u32* const to = staged.acquire();
      for (u32 k = block.thread_rank(); k < tile; k += block.size()) to[k] = ~0u;
      block.sync();
      staged.copy_rows(to, to_pitch, from, from_pitch, rows, columns);
      staged.commit();
      u32 const* const arrived = staged.wait();
      for (u32 k = block.thread_rank(); k < tile; k += block.size()) found[k] = arrived[k];
      staged.release();
    });
    for (u32 k = 0; k < tile; ++k) {
      u32 const row = k / to_pitch, column = k % to_pitch;
      ASSERT_EQ(found[k], column < columns ? row * from_pitch + column : ~0u) << row << ", " << column;
    }
  }
}
TEST(BulkStager, ThatWaitsForTheWrongPhaseIsFound) {
  std::string what;
  EXPECT_GT((found<stage_policy::bulk, wrong_phase>(what)), 0u);
}

}  // namespace
}  // namespace forebay::simt
