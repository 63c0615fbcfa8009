// SPDX-License-Identifier: Apache-2.0
#include "apps/common/external_view.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <type_traits>
#include <vector>

#include "apps/common/memory_view.hpp"
#include "apps/common/view.hpp"
#include "apps/virtual_time.hpp"
#include "forebay/detail/simt/fiber.hpp"
#include "support/schedules.hpp"

namespace forebay::apps {
namespace {

using forebay::testing::virtual_time;
template <class M>
using memory_of = memory::external_memory_ref<M, true>;
template <class M>
using view_of = external_view<std::uint32_t, memory_of<M>>;
static_assert(std::is_trivially_copyable_v<view_of<virtual_time>>);

struct edge {
  std::uint32_t to;
  std::uint32_t weight;
};
static_assert(view<external_view<std::uint32_t const, memory_of<simt::fiber>>>);
static_assert(view<external_view<edge, memory_of<simt::fiber>>>);
static_assert(view<external_view<edge const, memory::external_memory_ref<virtual_time>>>);

std::vector<std::uint32_t> numbers(std::size_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 1000u);
  return all;
}

/// Requests of up to 128 bytes, 32 numbers, in blocks of 32 bytes, 8 numbers.
memory::external_memory_options options_of(double latency_us = 10) {
  memory::external_memory_options options;
  options.latency_us = latency_us;
  options.outstanding = 0;
  options.request_max_bytes = 128;
  return options;
}

/// Adds up the elements [first, stop) as the programs do; `wrong` counts broken promises of the cursor.
template <class Cursor>
std::uint64_t sum(Cursor& cursor, std::uint64_t first, std::uint64_t stop, std::uint32_t& wrong) {
  std::uint64_t total = 0;
  for (std::uint64_t at = first; at < stop;) {
    if (!cursor.seek(at, stop).ok() || at < cursor.first() || at >= cursor.end()) {
      ++wrong;
      break;
    }
    std::uint64_t const end = cursor.end() < stop ? cursor.end() : stop;
    for (; at < end; ++at) total += cursor[at];
  }
  return total;
}

TEST(external_view, a_cursor_goes_through_ranges_as_that_of_plain_memory_does) {
  auto const data = numbers(1003);
  memory::external_memory memory(options_of(), memory::host());
  memory_view<std::uint32_t> const plain(data.data(), data.size());
  std::mt19937_64 random(3);
  for (std::uint64_t const address : {0u, 4u, 100u, 4096u}) {
    view_of<virtual_time> const external(data.data(), data.size(), memory.ref<virtual_time, true>(), address);
    auto ours = external.thread_page();
    auto theirs = plain.thread_page();
    std::uint32_t wrong = 0;
    for (int round = 0; round < 200; ++round) {
      std::uint64_t const first = random() % data.size();
      std::uint64_t const stop = first + random() % (data.size() - first + 1);
      ASSERT_EQ(sum(ours, first, stop, wrong), sum(theirs, first, stop, wrong));
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_TRUE(ours.seek(data.size() - 1).ok());
    EXPECT_EQ(ours.end(), data.size()) << "the last block goes on";
    EXPECT_EQ(ours.seek(data.size()), status(fault::out_of_range));
    EXPECT_FALSE(ours.prefetch(data.size(), data.size() + 1));
  }
}

TEST(external_view, a_seek_reads_no_block_that_the_caller_does_not_name) {
  auto const data = numbers(1000);
  memory::external_memory memory(options_of(), memory::host());
  view_of<virtual_time> const view(data.data(), data.size(), memory.ref<virtual_time, true>());
  auto cursor = view.thread_page();
  ASSERT_TRUE(cursor.seek(9, 11).ok());
  EXPECT_EQ(cursor.first(), 8u);
  EXPECT_EQ(cursor.end(), 16u);
  EXPECT_EQ(memory.counts().bytes, 32u);
  ASSERT_TRUE(cursor.seek(15, 100).ok());
  EXPECT_EQ(memory.counts().requests, 1u) << "it was within reach";
  ASSERT_TRUE(cursor.seek(16, 100).ok());
  EXPECT_EQ(cursor.first(), 16u);
  EXPECT_EQ(cursor.end(), 48u);
  EXPECT_EQ(memory.counts().bytes, 32u + 128);
  ASSERT_TRUE(cursor.seek(100).ok());
  EXPECT_EQ(cursor.end(), 128u) << "as many as it holds";
  EXPECT_EQ(view[5], data[5]);
  EXPECT_EQ(memory.counts().requests, 4u);
}

TEST(external_view, a_seek_waits_and_one_that_was_prefetched_waits_for_the_rest) {
  auto const data = numbers(1000);
  memory::external_memory memory(options_of(), memory::host());
  view_of<virtual_time> const view(data.data(), data.size(), memory.ref<virtual_time, true>());
  auto cursor = view.thread_page();
  auto const time_of = [&](std::uint64_t i, std::uint64_t stop) {
    std::uint64_t const before_ns = virtual_time::now_ns;
    EXPECT_TRUE(cursor.seek(i, stop).ok());
    return virtual_time::now_ns - before_ns;
  };
  EXPECT_EQ(time_of(0, 8), 10'000u);
  EXPECT_EQ(time_of(7, 8), 0u);
  ASSERT_TRUE(cursor.prefetch(8, 16));
  EXPECT_TRUE(cursor.prefetch(9, 16)) << "it is under way";
  EXPECT_EQ(cursor[3], data[3]) << "what is within reach stays there";
  virtual_time::now_ns += 4000;
  EXPECT_EQ(time_of(8, 16), 6000u);
  EXPECT_EQ(memory.counts().requests, 2u);
  EXPECT_EQ(time_of(0, 8), 10'000u) << "nothing is kept";
  EXPECT_EQ(time_of(8, 16), 10'000u);
  ASSERT_TRUE(cursor.prefetch(16, 24));
  virtual_time::now_ns += 40'000;
  EXPECT_EQ(time_of(20, 24), 0u);
  EXPECT_EQ(memory.counts().late, 0u);
}

TEST(external_view, elements_that_lie_in_two_runs_are_refused) {
  struct triple {
    std::uint32_t part[3];
  };
  std::vector<triple> const data(100);
  memory::external_memory_options options = options_of();
  options.request_max_bytes = 32;
  memory::external_memory memory(options, memory::host());
  external_view<triple, memory_of<virtual_time>> const view(data.data(), data.size(), memory.ref<virtual_time, true>());
  auto cursor = view.thread_page();
  EXPECT_TRUE(cursor.seek(1, 2).ok());
  EXPECT_EQ(cursor.end(), 2u);
  EXPECT_TRUE(cursor.seek(3, 4).ok());
  EXPECT_EQ(cursor.first(), 3u) << "only a part of element 2 was read";
  EXPECT_EQ(cursor.seek(2, 3), status(fault::bad_alignment)) << "bytes 24 to 36";
  EXPECT_FALSE(cursor.prefetch(2, 3));
}

class external_view_of_a_warp : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(lanes, external_view_of_a_warp, ::testing::Values(1u, 5u, 32u));

TEST_P(external_view_of_a_warp, lanes_make_their_requests_together) {
  auto const data = numbers(5000);
  memory_view<std::uint32_t> const plain(data.data(), data.size());
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    memory::external_memory memory(options_of(), memory::host());
    view_of<simt::fiber> const view(data.data(), data.size(), memory.ref<simt::fiber, true>());
    std::uint64_t const lanes = GetParam();
    emulator::testing::on_team(GetParam(), seed, [&] {
      auto cursor = view.warp_pages(32);
      std::uint64_t const before_ns = simt::fiber::clock_ns();
      simt::fiber::check(cursor.seek(3, 5000).ok(), "seek");
      std::uint64_t const took_ns = simt::fiber::clock_ns() - before_ns;
      simt::fiber::check(cursor.first() == 0 && cursor.end() == 32 * lanes, "a request for each lane");
      simt::fiber::check(took_ns >= 10'000, "all lanes wait");
      // They would take ten times as long one after the other, but for one lane or two.
      simt::fiber::check(took_ns < 20'000, "the requests are in flight together");
      simt::fiber::check(cursor.prefetch(cursor.end(), 5000) && cursor.seek(cursor.end(), 5000).ok(), "prefetch");
      simt::fiber::check(cursor.end() == 64 * lanes, "the next run");
      std::uint32_t wrong = 0;
      auto theirs = plain.thread_page();
      for (std::uint64_t first = 1; first < 4000; first += 997) {
        std::uint64_t const stop = first + 1000;
        simt::fiber::check(sum(cursor, first, stop, wrong) == sum(theirs, first, stop, wrong), "the same sum");
      }
      simt::fiber::check(wrong == 0, "a cursor brings what is asked for within reach");
    });
    EXPECT_EQ(memory.counts().late, 0u);
  }
}

TEST(external_view, kernels_wait_in_real_time) {
  auto const data = numbers(4096);
  memory::external_memory_options options = options_of(50);
  options.outstanding = 6;
  options.shards = 4;
  memory::external_memory memory(options, memory::host());
  view_of<simt::fiber> const view(data.data(), data.size(), memory.ref<simt::fiber, true>());
  std::vector<std::uint64_t> sums(4), early(4);
  simt::launch<simt::fiber>({.blocks = 2, .threads_per_block = 64}, [&] {
    std::uint32_t const warp = simt::fiber::thread_rank() / 32;
    auto cursor = view.warp_pages(4);
    std::uint64_t total = 0;
    for (std::uint64_t at = warp * 1024, stop = at + 1024; at < stop; at = cursor.end()) {
      std::uint64_t const before_ns = simt::fiber::clock_ns();
      simt::fiber::check(cursor.seek(at, stop).ok(), "seek");
      if (simt::fiber::this_warp().thread_rank() != 0) continue;
      early[warp] += simt::fiber::clock_ns() - before_ns < 50'000 ? 1 : 0;
      for (std::uint64_t i = at; i < cursor.end(); ++i) total += cursor[i];
    }
    if (simt::fiber::this_warp().thread_rank() == 0) sums[warp] = total;
  });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}),
            std::accumulate(data.begin(), data.end(), std::uint64_t{0}));
  EXPECT_EQ(early, std::vector<std::uint64_t>(4));
  EXPECT_EQ(memory.counts().requests, 4096u / 32);
  EXPECT_EQ(memory.counts().bytes, 4096u * 4);
}

TEST(external_view, one_request_of_a_warp_is_made_once) {
  auto const data = numbers(1000);
  memory::external_memory memory(options_of(), memory::host());
  view_of<simt::fiber> const view(data.data(), data.size(), memory.ref<simt::fiber, true>());
  emulator::testing::on_team(32, 1, [&] {
    auto cursor = view.warp_page();
    std::uint64_t const before_ns = simt::fiber::clock_ns();
    simt::fiber::check(cursor.seek(40, 1000).ok(), "seek");
    simt::fiber::check(simt::fiber::clock_ns() - before_ns >= 10'000, "lanes without a request wait too");
    simt::fiber::check(cursor.first() == 40 && cursor.end() == 72, "one request");
  });
  EXPECT_EQ(memory.counts().requests, 1u);
  EXPECT_EQ(memory.counts().bytes, 128u);
}

TEST(external_view, a_thread_holds_a_page_of_several_requests) {
  auto const data = numbers(5000);
  memory::external_memory_options options = options_of();
  for (std::uint32_t const request : {32u, 96u, 128u, 2048u}) {
    options.request_max_bytes = request;
    for (std::uint64_t const page : {1u, 8u, 64u, 256u}) {  // elements
      SCOPED_TRACE(request);
      SCOPED_TRACE(page);
      memory::external_memory memory(options, memory::host());
      external_view<std::uint32_t const, memory_of<virtual_time>> const view(
          data.data(), data.size(), memory.ref<virtual_time, true>(), 4096, options.requests_of_page(page * 4));
      auto cursor = view.thread_page();
      std::mt19937_64 random(page);
      for (int round = 0; round < 100; ++round) {
        std::uint64_t const first = random() % data.size();
        std::uint64_t const stop = std::min(data.size(), (first / page + 1) * page);
        std::uint64_t const begin = first + random() % (stop - first);
        std::uint64_t const before_ns = virtual_time::now_ns;
        ASSERT_TRUE(cursor.seek(begin, stop).ok());
        ASSERT_LE(virtual_time::now_ns - before_ns, 10'000u) << "the requests are in flight together";
        ASSERT_LE(cursor.first(), begin);
        ASSERT_GE(cursor.end(), stop);
        for (std::uint64_t i = begin; i < stop; ++i) ASSERT_EQ((&cursor[begin])[i - begin], data[i]);
      }
    }
  }
}

TEST(external_view, a_thread_whose_requests_are_too_few_gets_what_they_hold) {
  auto const data = numbers(1000);
  memory::external_memory memory(options_of(), memory::host());
  view_of<virtual_time> const view(data.data(), data.size(), memory.ref<virtual_time, true>(), 0, 3);
  auto cursor = view.thread_page();
  ASSERT_TRUE(cursor.seek(10, 1000).ok());
  EXPECT_EQ(cursor.first(), 8u);
  EXPECT_EQ(cursor.end(), 8u + 96);
  EXPECT_EQ(memory.counts().requests, 3u);
  EXPECT_EQ(memory.counts().bytes, 384u);
  ASSERT_TRUE(cursor.prefetch(200, 210));
  EXPECT_EQ(memory.counts().requests, 4u) << "reads no block that the caller does not name";
  ASSERT_TRUE(cursor.seek(200, 210).ok());
  EXPECT_EQ(memory.counts().requests, 4u);
}

/// Which sectors a program read itself.
template <class Base>
struct watched : Base {
  static inline std::set<std::uintptr_t> sectors;
  static inline std::mutex mutex;  ///< of the sectors; no lane waits while it holds it
  static void forget() {
    std::lock_guard const lock(mutex);
    sectors.clear();
  }
  static std::uint32_t start_load(std::byte const* address) {
    {
      std::lock_guard const lock(mutex);
      sectors.insert(reinterpret_cast<std::uintptr_t>(address) / 32);
    }
    return Base::start_load(address);
  }
};

TEST(external_view, what_is_accounted_is_read) {
  struct alignas(4096) aligned {
    std::uint32_t values[4096];
  };
  auto const data = std::make_unique<aligned>();
  auto const base = reinterpret_cast<std::uintptr_t>(data->values) / 32;
  using by_one = watched<virtual_time>;
  using by_lanes = watched<simt::fiber>;
  memory::external_memory_options options = options_of();
  options.alignment_bytes = 64;
  options.request_max_bytes = 256;
  auto const run = [&](std::uint64_t first, std::uint64_t end) {
    std::set<std::uintptr_t> all;
    for (std::uint64_t i = first; i < end; ++i) all.insert(base + i);
    return all;
  };
  memory::external_memory memory(options, memory::host());
  // From the third number on, as if an array of another kind came before.
  view_of<by_one> const one(data->values + 2, 4000, memory.ref<by_one, true>(), 8, 4);
  auto cursor = one.thread_page();
  by_one::forget();
  ASSERT_TRUE(cursor.seek(100, 300).ok());
  EXPECT_EQ(memory.counts().bytes, 832u);
  EXPECT_EQ(by_one::sectors, run(12, 38));
  by_one::forget();
  ASSERT_TRUE(cursor.seek(0, 1).ok());
  EXPECT_EQ(by_one::sectors, run(0, 2)) << "the block begins before the array";
  by_one::forget();
  EXPECT_EQ(one[3990], data->values[3992]);
  EXPECT_EQ(by_one::sectors, run(498, 500));
  ASSERT_TRUE(cursor.prefetch(2000, 2001));
  by_one::forget();
  ASSERT_TRUE(cursor.seek(2000, 2001).ok());
  EXPECT_TRUE(by_one::sectors.empty()) << "they were read ahead";
  for (std::uint32_t const lanes : {1u, 3u, 32u}) {
    memory::external_memory together(options, memory::host());
    view_of<by_lanes> const warp(data->values, 4096, together.ref<by_lanes, true>());
    emulator::testing::on_team(lanes, 1, [&] {
      by_lanes::forget();
      auto warps = warp.warp_pages(16);
      by_lanes::this_warp().sync();
      by_lanes::check(warps.seek(33, 1000).ok(), "seek");
    });
    std::uint64_t const blocks = together.counts().bytes / 32;
    EXPECT_EQ(by_lanes::sectors, run(4, 4 + blocks)) << lanes;
    EXPECT_EQ(blocks, lanes == 1 ? 8u : lanes == 3 ? 24u : 122u);
  }
}

class external_view_with_a_limit : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(outstanding, external_view_with_a_limit, ::testing::Values(0u, 1u, 3u, 100u));

TEST_P(external_view_with_a_limit, threads_and_warps_read_what_is_there) {
  auto const data = numbers(3000);
  memory::external_memory_options options = options_of(2);
  options.outstanding = GetParam();
  memory_view<std::uint32_t> const plain(data.data(), data.size());
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    memory::external_memory memory(options, memory::host());
    view_of<simt::fiber> const view(data.data(), data.size(), memory.ref<simt::fiber, true>(), 0, 4);
    emulator::testing::on_team(20, seed, [&] {
      std::uint32_t wrong = 0;
      auto theirs = plain.thread_page();
      auto read = [&](auto& cursor, std::uint64_t first) {
        std::uint64_t const stop = first + 300;
        simt::fiber::check(sum(cursor, first, stop, wrong) == sum(theirs, first, stop, wrong), "the same sum");
      };
      {
        auto mine = view.thread_page();
        read(mine, 37 * simt::fiber::thread_rank());
      }
      auto one = view.warp_page();
      read(one, 1111);
      auto many = view.warp_pages(7);
      read(many, 2000);
      simt::fiber::check(many.prefetch(100, 200) && many.seek(150, 200).ok(), "read ahead");
      simt::fiber::check(wrong == 0, "a cursor brings what is asked for within reach");
    });
  }
}

}  // namespace
}  // namespace forebay::apps
