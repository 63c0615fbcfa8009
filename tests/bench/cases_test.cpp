// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cases of the benchmark of emulated drives can be measured: there are queues for all clients, and drives for all
//! URIs.
#include "emulator/cases.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "emulator/own_queue_client.hpp"
#include "emulator/raw_client.hpp"
#include "emulator/raw_workload.hpp"
#include "forebay/detail/drive/uri.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::bench {
namespace {

constexpr std::uint32_t h100_sms = 132;

class cases : public testing::TestWithParam<std::string> {};

TEST_P(cases, have_names_of_their_own) {
  std::set<std::string> names;
  for (bench_case const& c : cases_of("", GetParam())) EXPECT_TRUE(names.insert(c.group + ": " + c.name).second);
}

TEST_P(cases, have_queues_for_all_their_threads) {
  for (bench_case const& c : cases_of("", GetParam())) {
    SCOPED_TRACE(c.group + ": " + c.name);
    std::uint32_t const blocks = c.blocks != 0 ? c.blocks : h100_sms - c.sms;
    std::uint64_t const warps = std::uint64_t{blocks} * c.threads_per_block / 32;
    EXPECT_EQ(c.threads_per_block % 32, 0u);
    EXPECT_GE(c.lanes, 1u);
    EXPECT_LE(c.lanes, 32u);
    EXPECT_LE(c.queue_count(), 128 * c.sms);
    if (c.own_queues) {
      EXPECT_LE(warps, c.queue_count());
      EXPECT_LE(c.threads_per_block, own_queue_client<simt::native>::max_threads_per_block);
    } else {
      EXPECT_LE(c.threads_per_block, raw_client<simt::native>::max_threads_per_block);
      EXPECT_LE((warps + c.queue_count() - 1) / c.queue_count() * 32, 0xffffu);
    }
  }
}

TEST_P(cases, name_drives) {
  for (bench_case const& c : cases_of("", GetParam())) {
    SCOPED_TRACE(c.drive_uri(GetParam()));
    drive::uri const uri = drive::uri::parse(c.drive_uri(GetParam()));
    EXPECT_EQ(uri.value("residency"), GetParam());
    EXPECT_EQ(uri.value("sms"), std::to_string(c.sms));
    EXPECT_EQ(uri.value("backing") == "peer:1", GetParam() == "peer");
  }
}

TEST_P(cases, name_the_link_that_is_chosen) {
  bench_case c{.uri = "emulated:size=1G"};
  EXPECT_EQ(drive::uri::parse(c.drive_uri(GetParam())).value("link"), std::nullopt);
  c.link = "gen5x16";
  EXPECT_EQ(drive::uri::parse(c.drive_uri(GetParam())).value("link"), "gen5x16");
}

TEST_P(cases, expect_the_closed_loop) {
  for (bench_case const& c : cases_of("sweep", GetParam())) {
    SCOPED_TRACE(c.name);
    double const threads = c.blocks * (c.threads_per_block / 32.0) * c.lanes;
    // Little's law.
    EXPECT_NEAR(c.expected_iops * c.expected_latency_us / 1e6, threads, threads * 1e-9);
    EXPECT_GE(c.expected_latency_us, 50);
  }
}

TEST_P(cases, are_refused_where_there_are_none) {
  EXPECT_THROW(cases_of("nothing", GetParam()), refused_input);
}

INSTANTIATE_TEST_SUITE_P(residency, cases, testing::Values("in_process", "served", "peer"),
                         [](auto const& of) { return of.param; });

TEST(raw_area, buffers_and_lists_do_not_overlap) {
  for (std::uint32_t const block_bytes : {512u, 4096u, 8192u, 16384u, 131072u, 1u << 20}) {
    raw_area const area{reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40), 0, 5};
    SCOPED_TRACE(block_bytes);
    std::uint64_t const list_bytes = raw_area::listed_pages(block_bytes) * 8;
    auto const at = [](void const* address) { return reinterpret_cast<std::uint64_t>(address); };
    std::uint64_t end = 0;
    for (std::uint32_t i = 0; i < 10; ++i) {
      EXPECT_GE(at(area.buffer(i / 2, i % 2, block_bytes)), end);
      end = at(area.buffer(i / 2, i % 2, block_bytes)) + block_bytes;
    }
    for (std::uint32_t i = 0; i < 10 && list_bytes != 0; ++i) {
      std::uint64_t const list = at(area.list(i / 2, i % 2, block_bytes));
      EXPECT_GE(list, end);
      EXPECT_EQ(list / raw_area::page_bytes, (list + list_bytes - 1) / raw_area::page_bytes);
      end = list + list_bytes;
    }
    EXPECT_LE(end, at(area.start) + raw_area::bytes(5, block_bytes));
  }
}

TEST(raw_result, bins_hold_what_is_shorter_than_their_ends) {
  for (std::uint64_t const ns : {0ull, 31ull, 32ull, 131'071ull, 131'072ull, 132'095ull, 132'096ull, 2'500'000ull}) {
    std::uint32_t const bin = raw_result::bin_of(ns);
    EXPECT_LT(ns, raw_result::end_ns(bin));
    EXPECT_TRUE(bin == 0 || ns >= raw_result::end_ns(bin - 1));
  }
  EXPECT_EQ(raw_result::bin_of(1'000'000'000), raw_result::bins - 1);
}

}  // namespace
}  // namespace forebay::bench
