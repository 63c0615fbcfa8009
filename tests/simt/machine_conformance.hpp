// SPDX-License-Identifier: Apache-2.0
//! \file
//! What every machine of the dialect does, instantiated for each by a runner:
//!   - `machine`: the machine type,
//!   - `static char const* unavailable()`: why it cannot run here, or null,
//!   - `static void run(grid, kernel, std::vector<T>& in_out)`: runs `kernel.with(T* data)` with the data where lanes
//!   reach it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "forebay/detail/simt/arithmetic.hpp"
#include "forebay/detail/simt/stager.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "staged_sums.hpp"

namespace forebay::simt::testing {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// What one lane saw of its warp.
struct warp_report {
  u32 rank, mask, odd_ballot, any_in_lower_half, all_in_lower_half, from_lane_5, match, subset_ballot, converged_has_me;
  u64 from_lane_3;
};

template <class M>
struct warp_kernel {
  warp_report* out;
  warp_kernel with(warp_report* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    u32 const rank = warp.thread_rank();
    warp_report r{};
    r.rank = rank;
    r.mask = warp.mask();
    r.odd_ballot = warp.ballot(rank % 2 == 1);
    auto const half = warp.subset(rank < 16 ? 0x0000ffffu : 0xffff0000u);
    r.any_in_lower_half = half.any(rank == 3);
    r.all_in_lower_half = half.all(rank < 16);
    r.from_lane_5 = warp.shfl(rank * 10, 5u);
    r.from_lane_3 = warp.shfl((u64{rank} << 40) + 1, 3u);
    r.match = warp.match_any(rank % 4);
    // Lanes of one warp in different collectives at the same time.
    r.subset_ballot = rank < 16 ? half.ballot(true) : half.ballot(rank == 20);
    r.converged_has_me = M::converged().mask() >> rank & 1;
    warp.sync();
    out[M::thread_rank()] = r;
  }
};

/// Two numbers, and what a lane says their quotient is.
struct quotient {
  float a, b, quick;
};

template <class M>
struct quotient_kernel {
  quotient* data;
  quotient_kernel with(quotient* where) const { return {where}; }
  FOREBAY_DEVICE void operator()() const {
    quotient& one = data[M::thread_rank()];
    one.quick = quick_quotient(one.a, one.b);
  }
};

template <class M>
struct block_kernel {
  u32* out;  // a sum a block
  block_kernel with(u32* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    struct scratch {
      u32 value[256];
    };
    auto& shared = block.template shared<scratch>();
    M::st(&shared.value[block.thread_rank()], M::thread_rank());
    block.sync();
    for (u32 stride = block.size() / 2; stride > 0; stride /= 2) {
      if (block.thread_rank() < stride)
        M::st(&shared.value[block.thread_rank()],
              M::ld(&shared.value[block.thread_rank()]) + M::ld(&shared.value[block.thread_rank() + stride]));
      block.sync();
    }
    if (block.thread_rank() == 0) M::st(&out[block.rank], M::ld(&shared.value[0]));
  }
};

/// Words of the atomics test.
enum : u32 { added, subtracted, ored, anded, raised, exchanged, winner, winners, atomic_words };

template <class M>
struct atomic_kernel {
  u64* words;
  atomic_kernel with(u64* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    u64 const me = M::thread_rank();
    atomic<M>(words[added]).fetch_add(me + 1, order::relaxed);
    atomic<M>(words[subtracted]).fetch_sub(1, order::relaxed);
    atomic<M>(words[ored]).fetch_or(u64{1} << (me % 64), order::relaxed);
    atomic<M>(words[anded]).fetch_and(~(u64{1} << (me % 64)), order::relaxed);
    atomic<M>(words[raised]).fetch_max(me, order::relaxed);
    atomic<M>(words[exchanged]).exchange(7, order::acq_rel);
    u64 expected = 0;
    if (atomic<M>(words[winner]).compare_exchange(expected, me + 1, order::acq_rel))
      atomic<M>(words[winners]).fetch_add(1, order::relaxed);
    else
      M::check(expected != 0, "a failed compare_exchange tells what it found");
  }
};

enum : u32 { counted, highest, handed, seen_early, global_words };

/// Words of global memory, and loads that begin before they are needed.
template <class M>
struct global_kernel {
  u64* words;
  global_kernel with(u64* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    u64 const me = M::thread_rank();
    u64 const before = global_atomic<M>(words[counted]).fetch_add(2, order::relaxed);
    M::check(before % 2 == 0 && before < 2 * u64{M::thread_count()}, "fetch_add returns what was there");
    global_atomic<M>(words[highest]).raise(me, order::relaxed);
    auto const* const bytes = reinterpret_cast<std::byte const*>(words + global_words);
    u32 loads = 0;
    for (u32 i = 0; i < 8; ++i) loads += M::start_load(bytes + 8 * i);
    M::finish_loads(loads);
    M::check(loads == 36, "the bytes that lie there");
    if (me == 0) {
      M::st(words + handed, u64{17});
      // Pairs with the acquire below.
      global_atomic<M>(words[seen_early]).store(1, order::release);
    } else {
      // Pairs with the release above.
      bool const came = global_atomic<M>(words[seen_early]).load(order::acquire) != 0;
      M::check(!came || M::ld(words + handed) == 17, "what came before the release is there after the acquire");
    }
  }
};

/// Lane i waits for lane i + 1 of the grid, which may be of another block; the last lane starts the chain.
template <class M>
struct chain_kernel {
  u32* flags;
  chain_kernel with(u32* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    u32 const me = M::thread_rank();
    bool const seen = me + 1 == M::thread_count() || M::wait_until(
                                                         [&] {
                                                           // Pairs with the release below.
                                                           return atomic<M>(flags[me + 1]).load(order::acquire) != 0;
                                                         },
                                                         no_deadline);
    M::check(seen, "a wait without a deadline ends by its predicate");
    // Pairs with the acquire above.
    atomic<M>(flags[me]).store(1, order::release);
  }
};

template <class M>
struct deadline_kernel {
  u64* waited;  // by each lane, ns
  deadline_kernel with(u64* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    u64 const start = M::clock_ns();
    u32 never = 0;
    bool const held = M::wait_until([&] { return atomic<M>(never).load(order::relaxed) != 0; }, start + 20'000);
    M::check(!held, "a false predicate does not hold");
    M::check(M::wait_until([] { return true; }, 0), "a true predicate holds though its deadline has passed");
    waited[M::thread_rank()] = M::clock_ns() - start;
  }
};

/// What each lane waits for it brings about itself by helping, except for every third lane.
template <class M>
struct together_kernel {
  u64* waited;  // by each lane, ns; 0: something was wrong
  together_kernel with(u64* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    u64 const start = M::clock_ns();
    u32 helped = 0;
    bool const can_end = M::thread_rank() % 3 != 0;
    bool const held = M::wait_together(
        M::this_warp(), [&] { return can_end && helped != 0; }, [&] { return helped++ == 0; }, start + 20'000);
    M::check(held == can_end, "a wait together tells each lane of its own end");
    M::check(helped != 0, "who waits helps");
    waited[M::thread_rank()] = M::clock_ns() - start;
  }
};

/// Waits whose deadline has passed before they begin: the lanes still do what they can bring about themselves, though
/// it takes several steps.
template <class M>
struct late_kernel {
  u64* helps;  // of each lane
  late_kernel with(u64* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    u64 helped = 0;
    u64 const wanted = 1 + M::thread_rank() % 40;
    bool const held =
        M::wait_together(M::this_warp(), [&] { return helped >= wanted; }, [&] { return ++helped <= wanted; }, 0);
    M::check(held, "a wait that is late looks at what its help has brought about");
    bool const never = M::wait_together(M::this_warp(), [] { return false; }, [] { return true; }, 0);
    M::check(!never, "a wait that is late ends, however much there is to help with");
    helps[M::thread_rank()] = helped;
  }
};

/// Lanes that were at one place together part after it, each for a time of its own, and then tell each other that they
/// are there. They do so again and again, while other lanes of the warp, which came there from elsewhere, do the same.
template <class M>
struct groups_kernel {
  u32* missing;  // for each lane: how often one that had been there with it was not told of
  groups_kernel with(u32* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    u32 const rank = M::this_warp().thread_rank();
    // Two calls, so that lanes which part here do not meet before both have returned.
    u32 const count =
        rank % 4 == 0 ? out_of_line(&rounds)(M::thread_rank(), 1) : out_of_line(&rounds)(M::thread_rank(), 2);
    missing[M::thread_rank()] = count;
  }

 private:
  FOREBAY_COLD static u32 rounds(u32 lane, u32 seed) {
    u32 count = 0;
    for (u32 round = 0; round < 500; ++round) {
      auto const here = M::converged();
      // Knuth's multiplicative hash, so that lanes take turns in being late.
      u64 const until_ns = M::clock_ns() + (((round * 977 + lane) * seed * 0x9e3779b1u) >> 30) * 500;
      u32 never = 0;
      (void)M::wait_until([&] { return atomic<M>(never).load(order::relaxed) != 0; }, until_ns);
      if (here.ballot(true) != here.mask()) ++count;
    }
    return count;
  }
};

/// Lane i copies `i` bytes from a source of its own at an alignment of its own.
template <class M>
struct copy_kernel {
  static constexpr u32 area = 1024;
  unsigned char* data;  // for each lane a source area, then a target area
  copy_kernel with(unsigned char* to) const { return {to}; }
  FOREBAY_DEVICE void operator()() const {
    u32 const me = M::thread_rank();
    unsigned char* source = data + std::size_t{me} * 2 * area;
    M::copy(source + area + me % 5 * 4, source + me % 3 * 4, me * 7);
  }
};

template <class M>
struct wide_kernel {
  vec16* data;  // two each lane: one to turn round, one for a doorbell
  wide_kernel with(vec16* to) const { return {to}; }
  FOREBAY_DEVICE void operator()() const {
    u32 const me = 2 * M::thread_rank();
    vec16 const value = M::ld(&data[me]);
    M::st(&data[me], vec16{value.high, value.low + 1});
    M::fence(scope::system, order::release);
    M::st_mmio(reinterpret_cast<u32*>(&data[me + 1]), me);
  }
};

template <class M>
struct grid_kernel {
  u32* ids;  // of its grid, by each lane
  grid_kernel with(u32* to) const { return {to}; }
  FOREBAY_DEVICE void operator()() const { M::st(&ids[M::thread_rank()], M::grid_id()); }
};

/// Each lane copies a quad of words in each of two groups, in pieces of `Bytes` bytes, and hands what it got to its
/// neighbour.
template <class M, u32 Bytes>
struct small_copies_kernel {
  static constexpr u32 quad = 4;
  u32* words;  // in: two quads for each lane of the block; out: likewise, from the neighbour
  small_copies_kernel with(u32* data) const { return {data}; }
  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    u32 const me = block.thread_rank(), lanes = block.size();
    u32* const shared = &block.template shared<u32>();
    for (u32 group = 0; group < 2; ++group) {
      for (u32 k = 0; k < quad; k += Bytes / 4) {
        u32 const at = (group * lanes + me) * quad + k;
        M::template copy_async<Bytes>(shared + at, words + at);
      }
      M::commit_copies();
    }
    M::template wait_copies<1>();
    u32 first = 0;
    for (u32 k = 0; k < quad; ++k) first += M::ld(shared + me * quad + k);
    u32 expected = 0;
    for (u32 k = 0; k < quad; ++k) expected += M::ld(words + me * quad + k);
    M::check(first == expected, "a lane sees its older group after it waited for all but the newest");
    M::template wait_copies<0>();
    block.sync();
    u32* const out = words + 2 * lanes * quad;
    u32 const other = (me + 1) % lanes;
    for (u32 group = 0; group < 2; ++group) {
      for (u32 k = 0; k < quad; ++k) {
        M::st(out + (group * lanes + me) * quad + k, M::ld(shared + (group * lanes + other) * quad + k));
      }
    }
  }
};

template <class Runner>
class MachineConformance : public ::testing::Test {
 protected:
  void SetUp() override {
    if (char const* const reason = Runner::unavailable()) GTEST_SKIP() << reason;
  }
};
TYPED_TEST_SUITE_P(MachineConformance);

TYPED_TEST_P(MachineConformance, WarpCollectivesGiveWhatTheirMembersPassed) {
  using M = typename TypeParam::machine;
  std::vector<warp_report> out(128);
  TypeParam::run(grid{2, 64, 0}, warp_kernel<M>{}, out);
  for (u32 i = 0; i < out.size(); ++i) {
    SCOPED_TRACE(i);
    u32 const rank = i % 32;
    auto const& r = out[i];
    EXPECT_EQ(r.rank, rank);
    EXPECT_EQ(r.mask, ~0u);
    EXPECT_EQ(r.odd_ballot, 0xaaaaaaaau);
    EXPECT_EQ(r.any_in_lower_half, rank < 16 ? 1u : 0u);
    EXPECT_EQ(r.all_in_lower_half, rank < 16 ? 1u : 0u);
    EXPECT_EQ(r.from_lane_5, 50u);
    EXPECT_EQ(r.from_lane_3, (u64{3} << 40) + 1);
    EXPECT_EQ(r.match, 0x11111111u << rank % 4);
    EXPECT_EQ(r.subset_ballot, rank < 16 ? 0x0000ffffu : 1u << 20);
    EXPECT_EQ(r.converged_has_me, 1u);
  }
}

TYPED_TEST_P(MachineConformance, ThisWarpHoldsTheLanesThatTheBlockHas) {
  using M = typename TypeParam::machine;
  std::vector<warp_report> out(48);
  TypeParam::run(grid{1, 48, 0}, warp_kernel<M>{}, out);
  EXPECT_EQ(out[0].mask, ~0u);
  EXPECT_EQ(out[40].mask, 0x0000ffffu);
  EXPECT_EQ(out[40].odd_ballot, 0x0000aaaau);
}

TYPED_TEST_P(MachineConformance, BlocksShareMemoryAcrossBarriers) {
  using M = typename TypeParam::machine;
  std::vector<u32> out(5);
  TypeParam::run(grid{5, 256, 1024}, block_kernel<M>{}, out);
  for (u32 b = 0; b < out.size(); ++b) EXPECT_EQ(out[b], 256 * 256 * b + 255 * 128) << b;
}

TYPED_TEST_P(MachineConformance, AtomicsLoseNothing) {
  using M = typename TypeParam::machine;
  std::vector<u64> words(atomic_words);
  words[subtracted] = 512;
  words[anded] = ~u64{0};
  TypeParam::run(grid{4, 128, 0}, atomic_kernel<M>{}, words);
  EXPECT_EQ(words[added], 512u * 513 / 2);
  EXPECT_EQ(words[subtracted], 0u);
  EXPECT_EQ(words[ored], ~u64{0});
  EXPECT_EQ(words[anded], 0u);
  EXPECT_EQ(words[raised], 511u);
  EXPECT_EQ(words[exchanged], 7u);
  EXPECT_EQ(words[winners], 1u);
  EXPECT_TRUE(words[winner] >= 1 && words[winner] <= 512) << words[winner];
}

TYPED_TEST_P(MachineConformance, WordsOfGlobalMemoryAreAtomicAndLoadsBeginEarly) {
  using M = typename TypeParam::machine;
  std::vector<u64> words(global_words + 8);
  for (u64 i = 0; i < 8; ++i) words[global_words + i] = i + 1;
  TypeParam::run(grid{4, 64, 0}, global_kernel<M>{}, words);
  EXPECT_EQ(words[counted], 2u * 256);
  EXPECT_EQ(words[highest], 255u);
}

TYPED_TEST_P(MachineConformance, EveryLaneOfResidentBlocksMakesProgress) {
  using M = typename TypeParam::machine;
  std::vector<u32> flags(256);
  TypeParam::run(grid{4, 64, 0}, chain_kernel<M>{}, flags);
  EXPECT_EQ(flags, std::vector<u32>(256, 1));
}

TYPED_TEST_P(MachineConformance, AWaitGivesUpAtItsDeadlineAndNotBefore) {
  using M = typename TypeParam::machine;
  std::vector<u64> waited(64);
  TypeParam::run(grid{1, 64, 0}, deadline_kernel<M>{}, waited);
  for (u64 const ns : waited) EXPECT_GE(ns, 20'000u);
}

TYPED_TEST_P(MachineConformance, LanesThatWaitTogetherGoOnTogether) {
  using M = typename TypeParam::machine;
  std::vector<u64> waited(64);
  TypeParam::run(grid{1, 64, 0}, together_kernel<M>{}, waited);
  // Lanes whose wait could end stay for those whose wait ends by the deadline.
  for (u64 const ns : waited) EXPECT_GE(ns, 20'000u);
}

TYPED_TEST_P(MachineConformance, AWaitThatIsLateTakesWhatHasCome) {
  using M = typename TypeParam::machine;
  std::vector<u64> helps(64);
  TypeParam::run(grid{1, 64, 0}, late_kernel<M>{}, helps);
  for (std::size_t i = 0; i < helps.size(); ++i) EXPECT_GE(helps[i], 1 + i % 40) << "lane " << i;
}

TYPED_TEST_P(MachineConformance, LanesThatWereTogetherFindEachOtherBesideOthers) {
  using M = typename TypeParam::machine;
  std::vector<u32> missing(256, ~0u);
  TypeParam::run(grid{4, 64, 0}, groups_kernel<M>{}, missing);
  EXPECT_EQ(missing, std::vector<u32>(256, 0));
}

TYPED_TEST_P(MachineConformance, CopyMovesExactlyItsBytesAtAnyAlignment) {
  using M = typename TypeParam::machine;
  u32 constexpr lanes = 96, area = copy_kernel<M>::area;
  std::vector<unsigned char> data(std::size_t{lanes} * 2 * area, 0xee);
  for (u32 i = 0; i < lanes; ++i)
    for (u32 k = 0; k < area; ++k) data[std::size_t{i} * 2 * area + k] = static_cast<unsigned char>(i * 31 + k);
  auto expected = data;
  for (u32 i = 0; i < lanes; ++i)
    for (u32 k = 0; k < i * 7; ++k)
      expected[std::size_t{i} * 2 * area + area + i % 5 * 4 + k] = data[std::size_t{i} * 2 * area + i % 3 * 4 + k];
  TypeParam::run(grid{3, 32, 0}, copy_kernel<M>{}, data);
  EXPECT_TRUE(data == expected);
}

TYPED_TEST_P(MachineConformance, SixteenBytesAndDoorbellsAreStored) {
  using M = typename TypeParam::machine;
  std::vector<vec16> data(128);
  for (u64 i = 0; i < 64; ++i) data[2 * i] = {i, i << 32};
  TypeParam::run(grid{2, 32, 0}, wide_kernel<M>{}, data);
  for (u64 i = 0; i < 64; ++i) {
    EXPECT_EQ(data[2 * i].low, i << 32);
    EXPECT_EQ(data[2 * i].high, i + 1);
    EXPECT_EQ(data[2 * i + 1].low, 2 * i);
  }
}

TYPED_TEST_P(MachineConformance, LanesOfAGridKnowItByOneNumber) {
  using M = typename TypeParam::machine;
  std::vector<u32> ids(128, ~0u);
  TypeParam::run(grid{4, 32, 0}, grid_kernel<M>{}, ids);
  EXPECT_LT(ids[0], host_grids);
  EXPECT_EQ(ids, std::vector<u32>(128, ids[0]));
}

template <class Runner, u32 Bytes>
void expect_small_copies_arrive() {
  using kernel = small_copies_kernel<typename Runner::machine, Bytes>;
  u32 constexpr lanes = 48, count = 2 * lanes * kernel::quad;
  std::vector<u32> words(2 * count);
  for (u32 i = 0; i < count; ++i) words[i] = i * 2654435761u;
  auto const given = words;
  Runner::run(grid{1, lanes, count * 4}, kernel{}, words);
  for (u32 i = 0; i < count; ++i) {
    u32 const lane = i / kernel::quad % lanes, group = i / kernel::quad / lanes;
    ASSERT_EQ(words[i], given[i]);
    ASSERT_EQ(words[count + i], given[(group * lanes + (lane + 1) % lanes) * kernel::quad + i % kernel::quad]);
  }
}

TYPED_TEST_P(MachineConformance, SmallCopiesArriveInGroups) {
  expect_small_copies_arrive<TypeParam, 4>();
  expect_small_copies_arrive<TypeParam, 8>();
  expect_small_copies_arrive<TypeParam, 16>();
}

TYPED_TEST_P(MachineConformance, QuickQuotientsAreOffByTwoUnitsInTheLastPlaceAtMost) {
  using M = typename TypeParam::machine;
  std::mt19937 chance(1);
  auto const number = [&](int exponent) {
    double const mantissa = std::uniform_real_distribution(1.0, 2.0)(chance);
    return static_cast<float>(std::ldexp(chance() % 2 == 0 ? mantissa : -mantissa, exponent));
  };
  std::vector<quotient> found;
  // All that `quick_quotient` divides by; quotients that have an exponent of their own.
  for (int divisor = -126; divisor < 126; ++divisor) {
    for (int exponent = std::max(-125, divisor - 124); exponent < std::min(126, divisor + 124); exponent += 31) {
      found.push_back({number(exponent), number(divisor), 0});
    }
  }
  found.push_back({1, 0x1p-126F, 0});
  found.push_back({0x1p120F, 0x1p126F, 0});
  found.push_back({0, 3, 7});
  TypeParam::run(grid{static_cast<u32>(found.size()), 1, 0}, quotient_kernel<M>{nullptr}, found);
  for (quotient const& one : found) {
    double const exact = double{one.a} / double{one.b};
    double const unit = exact == 0 ? 0 : std::ldexp(1, std::ilogb(exact) - 23);
    EXPECT_LE(std::abs(one.quick - exact), 2 * unit) << one.a << " / " << one.b << " is not " << one.quick;
  }
}

template <class Runner, class Policy>
void expect_tiles_are_staged() {
  using M = typename Runner::machine;
  struct shape {
    u32 lanes, tiles, stages;
  };
  for (auto const& [lanes, tiles, stages] :
       {shape{64, 5, 3}, shape{40, 4, 1}, shape{8, 7, 2}, shape{32, 7, 5}, shape{32, 1, 2}, shape{1, 3, 2}}) {
    SCOPED_TRACE(::testing::Message() << lanes << " lanes, " << tiles << " tiles, " << stages << " stages");
    staged_sums const sums{lanes, tiles};
    std::vector<u32> words = sums.words();
    u32 const shared_bytes = stager<M, Policy, u32>::shared_bytes(staged_sums::tile, stages);
    Runner::run(grid{1, lanes, shared_bytes}, staged_sums_kernel<M, Policy>{tiles, stages}, words);
    if (words[tiles * staged_sums::tile] == staged_sums::not_here) {
      GTEST_SKIP() << "the code is for a GPU without bulk copies";
    }
    ASSERT_EQ(sums.of(words), sums.expected());
  }
}

TYPED_TEST_P(MachineConformance, TilesAreStagedByOrdinaryLoads) {
  expect_tiles_are_staged<TypeParam, stage_policy::plain>();
}
TYPED_TEST_P(MachineConformance, TilesAreStagedByCopiesOf4Bytes) {
  expect_tiles_are_staged<TypeParam, stage_policy::async4>();
}
TYPED_TEST_P(MachineConformance, TilesAreStagedByCopiesOf16Bytes) {
  expect_tiles_are_staged<TypeParam, stage_policy::async16>();
}
TYPED_TEST_P(MachineConformance, TilesAreStagedByBulkCopies) {
  expect_tiles_are_staged<TypeParam, stage_policy::bulk>();
}

REGISTER_TYPED_TEST_SUITE_P(MachineConformance, WarpCollectivesGiveWhatTheirMembersPassed,
                            ThisWarpHoldsTheLanesThatTheBlockHas, BlocksShareMemoryAcrossBarriers, AtomicsLoseNothing,
                            WordsOfGlobalMemoryAreAtomicAndLoadsBeginEarly, EveryLaneOfResidentBlocksMakesProgress,
                            AWaitGivesUpAtItsDeadlineAndNotBefore, LanesThatWaitTogetherGoOnTogether,
                            AWaitThatIsLateTakesWhatHasCome, LanesThatWereTogetherFindEachOtherBesideOthers,
                            CopyMovesExactlyItsBytesAtAnyAlignment, SixteenBytesAndDoorbellsAreStored,
                            LanesOfAGridKnowItByOneNumber, SmallCopiesArriveInGroups, TilesAreStagedByOrdinaryLoads,
                            TilesAreStagedByCopiesOf4Bytes, TilesAreStagedByCopiesOf16Bytes, TilesAreStagedByBulkCopies,
                            QuickQuotientsAreOffByTwoUnitsInTheLastPlaceAtMost);

}  // namespace forebay::simt::testing
