// SPDX-License-Identifier: Apache-2.0
//! \file
//! Teams of one thread, of whole warps and of the rest of a block: each member is compared with a plain loop.
#include "forebay/detail/simt/team.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/run.hpp"

namespace forebay::simt {
namespace {

/// What `lane` passes in `round`: small, huge and wrapping values, and lanes that pass the same.
std::uint64_t value_of(std::uint64_t seed, std::uint32_t round, std::uint32_t lane) {
  random_source source(seed * 1000 + round * 100 + lane);
  std::uint64_t const value = source.next();
  switch (round % 4) {
    case 0:
      return value % 8;
    case 1:
      return value;
    case 2:
      return value % 2 == 0 ? ~std::uint64_t{0} : 0;
    default:
      return lane;
  }
}

/// Compares every member with what a loop over the `lanes` lanes of the calling warp gives.
template <class M>
void compare(std::uint64_t seed, std::uint32_t rank, std::uint32_t lanes) {
  auto const all = team<M>::here();
  M::check(all.rank() == rank, "rank");
  M::check(all.count() == lanes, "count");
  M::check(all.leader() == (rank == 0), "leader");
  for (std::uint32_t round = 0; round < 4; ++round) {
    std::uint64_t const mine = value_of(seed, round, rank);
    std::uint64_t sum = 0, through = 0, least = ~std::uint64_t{0}, most = 0;
    std::uint32_t odd = 0;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      std::uint64_t const value = value_of(seed, round, lane);
      sum += value;
      if (lane <= rank) through += value;
      least = std::min(least, value);
      most = std::max(most, value);
      odd |= static_cast<std::uint32_t>(value & 1) << lane;
    }
    std::uint32_t const everyone = lanes == 32 ? ~0u : (1u << lanes) - 1;
    std::uint32_t const from = static_cast<std::uint32_t>(seed + round) % lanes;
    M::check(all.sum(mine) == sum, "sum");
    M::check(all.min(mine) == least, "min");
    M::check(all.max(mine) == most, "max");
    M::check(all.inclusive_sum(mine) == through, "inclusive_sum");
    M::check(all.ballot((mine & 1) != 0) == odd, "ballot");
    M::check(all.any((mine & 1) != 0) == (odd != 0), "any");
    M::check(all.all((mine & 1) != 0) == (odd == everyone), "all");
    M::check(all.broadcast(mine) == value_of(seed, round, 0), "broadcast of the first");
    M::check(all.broadcast(mine, from) == value_of(seed, round, from), "broadcast of any");
    struct twelve {
      std::uint32_t part[3];
    };
    auto const number = static_cast<std::uint32_t>(mine);
    twelve const got = all.broadcast(twelve{{number, ~number, number + 1}}, from);
    auto const theirs = static_cast<std::uint32_t>(value_of(seed, round, from));
    M::check(got.part[0] == theirs && got.part[1] == ~theirs && got.part[2] == theirs + 1, "broadcast of a struct");
  }
}

TEST(team, of_a_native_thread) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) compare<native>(seed, 0, 1);
}

TEST(team, of_a_thread_outside_a_run) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) compare<fiber>(seed, 0, 1);
}

class team_of_fibers : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(threads, team_of_fibers, ::testing::Values(1u, 5u, 32u, 40u));

TEST_P(team_of_fibers, every_member_agrees_with_a_loop) {
  std::uint32_t const threads = GetParam();
  constexpr memory_model models[] = {memory_model::sequential, memory_model::store_buffers, memory_model::race_detector,
                                     memory_model::stale_reads};
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    random by_chance(seed, 1 + static_cast<std::uint32_t>(seed % 3) * 4);
    pct by_priority(seed, 3, 5000);
    scheduler& schedule = seed % 4 == 3 ? static_cast<scheduler&>(by_priority) : by_chance;
    auto const result =
        run({.memory = models[seed % std::size(models)]}, schedule, {.blocks = 2, .threads_per_block = threads}, [&] {
          std::uint32_t const thread = fiber::this_block().thread_rank();
          compare<fiber>(seed, thread % 32, std::min(32u, threads - thread / 32 * 32));
        });
    ASSERT_TRUE(result) << result.what;
  }
}

TEST_P(team_of_fibers, sync_shows_what_the_lanes_stored) {
  std::uint32_t const threads = GetParam();
  for (memory_model const memory : {memory_model::sequential, memory_model::store_buffers, memory_model::race_detector,
                                    memory_model::stale_reads}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      std::uint32_t words[40] = {};
      random schedule(seed);
      auto const result = run({.memory = memory}, schedule, {.blocks = 1, .threads_per_block = threads}, [&] {
        auto const all = team<fiber>::here();
        std::uint32_t* const mine = words + fiber::thread_rank() / 32 * 32;
        for (std::uint32_t round = 1; round <= 3; ++round) {
          fiber::st(mine + all.rank(), round * 100 + all.rank());
          all.sync();
          std::uint32_t const other = (all.rank() + round) % all.count();
          fiber::check(fiber::ld(mine + other) == round * 100 + other, "what another lane stored");
          all.sync();
        }
      });
      ASSERT_TRUE(result) << result.what;
    }
  }
}

TEST(team, ones_and_lowest) {
  EXPECT_EQ(team<native>::ones(0), 0u);
  EXPECT_EQ(team<native>::ones(0x80010001u), 3u);
  EXPECT_EQ(team<native>::ones(~0u), 32u);
  EXPECT_EQ(team<native>::lowest(1), 0u);
  EXPECT_EQ(team<native>::lowest(0x80000000u), 31u);
  EXPECT_EQ(team<native>::lowest(0x00f0u), 4u);
}

}  // namespace
}  // namespace forebay::simt
