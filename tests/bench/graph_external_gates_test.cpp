// SPDX-License-Identifier: Apache-2.0
//! \file
//! The rows of the benchmark of external memory: their arithmetic, and that they read what they say, on the CPU
//! executor.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <set>
#include <vector>

#include "apps/common/executor.hpp"
#include "forebay/detail/simt/fiber.hpp"
#include "graph/external_gates.hpp"

namespace forebay::bench {
namespace {

using cpu_executor = apps::executor<simt::fiber>;
using runner = gate_runner<cpu_executor>;

constexpr std::uint64_t region_bytes = 1 << 16;

std::vector<std::uint32_t> words() {
  std::vector<std::uint32_t> all(region_bytes / 4);
  cpu_executor const run;
  run({.blocks = 2, .threads_per_block = 64}, gate_fill<simt::fiber>{all.data(), all.size()});
  return all;
}

gate_run measure(gate_row const& row, std::vector<std::uint32_t> const& device,
                 std::vector<std::uint32_t> const& pinned) {
  cpu_executor const run;
  runner const rows(run, device.data(), pinned.data());
  return rows.run(
      row, 7, [](auto const&, gate_reader) { return simt::grid{.blocks = 2, .threads_per_block = 64}; },
      [](auto const& launch) {
        auto const begin = std::chrono::steady_clock::now();
        launch();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      });
}

gate_row small_row(gate_kind kind) {
  gate_row row;
  row.kind = kind;
  row.region_bytes = region_bytes;
  row.run_ns = 2'000'000;
  row.options.latency_us = 20;
  row.options.alignment_bytes = 16;
  row.options.request_max_bytes = 2048;
  row.options.outstanding = 40;
  return row;
}

TEST(external_gates, all_nodes_form_one_ring_whatever_the_size) {
  for (std::uint32_t nodes = 1; nodes <= 1 << 16; nodes *= 2) {
    std::uint32_t node = 0, steps = 0;
    do {
      node = gate_next(node) & (nodes - 1);
      ++steps;
    } while (node != 0 && steps <= nodes);
    EXPECT_EQ(steps, nodes);
  }
}

TEST(external_gates, rows_read_what_lies_there) {
  auto const right = words();
  auto const seen_with = [&](gate_row const& row, std::vector<std::uint32_t> const& other) {
    return row.data_pinned ? measure(row, other, right) : measure(row, right, other);
  };
  std::vector<gate_row> rows{small_row(gate_kind::plain_chase), small_row(gate_kind::plain_reads),
                             small_row(gate_kind::chase)};
  for (std::uint32_t const bytes : {16u, 32u, 128u, 2048u}) {
    for (gate_reader const reader : {gate_reader::thread, gate_reader::warp}) {
      rows.push_back(small_row(gate_kind::reads));
      rows.back().bytes = bytes;
      rows.back().reader = reader;
    }
  }
  for (gate_row row : rows) {
    for (bool const pinned : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(row.kind) << ' ' << row.bytes << ' ' << pinned);
      row.data_pinned = pinned;
      row.options.mode = pinned ? memory::external_mode::pinned : memory::external_mode::device;
      // The data that it has no business with are wrong.
      gate_run const seen = seen_with(row, std::vector<std::uint32_t>(region_bytes / 4));
      EXPECT_EQ(seen.wrong, 0u);
      EXPECT_GT(seen.reads, 0u);
      EXPECT_GT(seen.seconds, 0);
      if (row.chases()) {
        EXPECT_EQ(seen.reads, row.hops());
      }
    }
  }
}

TEST(external_gates, rows_notice_a_wrong_word) {
  auto wrong = words();
  // The chase comes to the first nodes of the ring only.
  for (std::uint32_t& word : wrong) word ^= 1;
  for (gate_kind const kind : {gate_kind::plain_chase, gate_kind::plain_reads, gate_kind::chase, gate_kind::reads}) {
    EXPECT_GT(measure(small_row(kind), wrong, wrong).wrong, 0u) << static_cast<int>(kind);
  }
}

TEST(external_gates, what_is_expected_is_equation_2) {
  gate_row row = small_row(gate_kind::reads);
  row.options = {};
  row.options.alignment_bytes = 16;
  row.options.outstanding = 768;
  row.options.latency_us = 16;
  row.options.link_bytes_per_second = 24e9;
  row.bytes = 128;
  EXPECT_DOUBLE_EQ(row.expected(), 48e6);
  row.bytes = 512;
  EXPECT_DOUBLE_EQ(row.expected(), 24e9 / 512);
  row.options.iops = 1e6;
  row.options.devices = 16;
  EXPECT_DOUBLE_EQ(row.expected(), 16e6);
  row.kind = gate_kind::chase;
  EXPECT_DOUBLE_EQ(row.expected(), 16'000);
  row.kind = gate_kind::plain_chase;
  EXPECT_EQ(row.expected(), 0);
}

TEST(external_gates, a_row_is_its_median_and_misses_by_its_tolerance) {
  gate_row row = small_row(gate_kind::reads);
  row.options.outstanding = 20;  // 1 M/s
  std::vector<gate_run> const runs{{1, 990'000, 0, 0, 1}, {1, 1'060'000, 0, 0, 1}, {1, 1'040'000, 0, 10'000, 1}};
  auto const result = describe(row, runs);
  EXPECT_DOUBLE_EQ(result["measured"].get<double>(), 1'040'000);
  EXPECT_DOUBLE_EQ(result["ratio"].get<double>(), 1.04);
  EXPECT_NEAR(result["late_share"].get<double>(), 0.0096, 1e-4);
  EXPECT_EQ(result["runs"].size(), 3u);
  EXPECT_TRUE(result["within"].get<bool>());
  EXPECT_TRUE(result["verified"].get<bool>());
  EXPECT_FALSE(describe(row, {{1, 940'000, 0, 0, 1}})["within"].get<bool>());
  EXPECT_FALSE(describe(row, {{1, 1'060'000, 0, 0, 1}})["within"].get<bool>());
  EXPECT_FALSE(describe(row, {{1, 1'000'000, 0, 10'000, 1}})["within"].get<bool>()) << "too many are late";
  EXPECT_FALSE(describe(row, {{1, 1'000'000, 1, 0, 1}})["verified"].get<bool>());
  EXPECT_FALSE(describe(row, {{}})["verified"].get<bool>()) << "nothing was read";
  row.kind = gate_kind::chase;
  EXPECT_DOUBLE_EQ(describe(row, {{0.1, 5000, 0, 0, 1}})["ratio"].get<double>(), 1.0);
}

TEST(external_gates, rows_are_compared) {
  gate_row chase = small_row(gate_kind::plain_chase);
  gate_row reads = small_row(gate_kind::plain_reads);
  gate_row device = small_row(gate_kind::reads);
  device.group = "modes";
  gate_row pinned = device;
  pinned.options.mode = memory::external_mode::pinned;
  pinned.data_pinned = true;
  nlohmann::json rows{describe(chase, {{1, 1'000'000, 0, 0, 0}}), describe(reads, {{1, 100'000'000, 0, 0, 0}}),
                      describe(device, {{1, 2'000'000, 0, 0, 1}}), describe(pinned, {{1, 1'900'000, 0, 0, 1}})};
  compare(rows);
  EXPECT_DOUBLE_EQ(rows[1]["outstanding"].get<double>(), 100);
  EXPECT_DOUBLE_EQ(rows[3]["of_device"].get<double>(), 0.95);
  EXPECT_NE(line_of(rows[3]).find("0.950 of device"), std::string::npos);
}

TEST(external_gates, the_list_is_short_enough_and_its_rows_can_be_made) {
  for (bool const quick : {false, true}) {
    gate_choice choice;
    choice.quick = quick;
    auto const rows = gate_rows(choice);
    std::uint64_t ns = 0;
    std::set<std::string> names;
    for (gate_row const& row : rows) {
      EXPECT_NO_THROW(row.options.validate()) << row.name;
      EXPECT_TRUE(names.insert(row.group + row.name).second) << row.name;
      ns += 3 * row.run_ns;
    }
    EXPECT_LT(ns, 60'000'000'000u);
    EXPECT_GT(rows.size(), 30u);
    choice.only = "modes";
    for (gate_row const& row : gate_rows(choice)) EXPECT_EQ(row.group, "modes");
  }
}

}  // namespace
}  // namespace forebay::bench
