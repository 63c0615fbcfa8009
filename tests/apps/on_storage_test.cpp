// SPDX-License-Identifier: Apache-2.0
// The applications on a real storage: on the CPU executor, there with QEMU's drives too, and on the first GPU where
// there is one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "apps/block_io/block_io.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/run_bfs.hpp"
#include "apps/replay/replay.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "support/qemu_scheme.hpp"

namespace forebay {
namespace {

class apps_on_storage : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (on_qemu()) {
#if defined(__SANITIZE_THREAD__)
      GTEST_SKIP() << "ThreadSanitizer does not see what QEMU's controller orders";
#endif
      FOREBAY_NEEDS_QEMU();
      return;
    }
    if (GetParam() != "cpu" && memory::device_count() == 0) GTEST_SKIP() << "no GPU here, or CUDA is not built in";
  }
  /// Sums a counter over all drives of a report.
  static std::uint64_t total_in(std::string const& report, char const* counter) {
    std::uint64_t total = 0;
    auto const document = nlohmann::json::parse(report);
    for (auto const& drive : document["drives"]) {
      total += drive["statistics"][counter].get<std::uint64_t>();
    }
    return total;
  }
  static bool on_qemu() { return GetParam() == "qemu"; }
  static std::string device() { return on_qemu() ? "cpu" : GetParam(); }
  /// The drive that the test runs on in place of an emulated one.
  static std::string drive(std::string const& emulated) {
    return on_qemu() ? test::qemu_instead_of(emulated) : emulated;
  }
  storage open(std::string const& uri = "emulated:size=8M") const {
    return storage({.drives = {drive(uri)}, .device = device()});
  }
};

TEST_P(apps_on_storage, every_mix_verifies) {
  storage drives = open();
  for (std::uint32_t read_percent : {100u, 0u, 60u}) {
    for (bool random : {true, false}) {
      SCOPED_TRACE(std::to_string(read_percent) + (random ? " random" : " sequential"));
      auto const r = block_io::run(drives, {.random = random,
                                            .read_percent = read_percent,
                                            .block_bytes = 2048,
                                            .iodepth = 300,
                                            .gpu_threads = 70,
                                            .size_bytes = 2 << 20,
                                            .seed = read_percent + 1,
                                            .verify = true});
      EXPECT_EQ(r.read.completion.summary.count + r.write.completion.summary.count, 1024u);
      EXPECT_EQ(r.errors, 0u);
      EXPECT_EQ(r.mismatches, 0u);
      EXPECT_EQ(r.threads, 70u);
      EXPECT_GT(r.verified_blocks, 0u);
      EXPECT_GT(r.seconds, 0);
    }
  }
}

TEST_P(apps_on_storage, verify_sees_what_another_writer_changed) {
  storage drives = open();
  block_io::options wanted{.random = false, .block_bytes = 4096, .iodepth = 8, .verify = true};
  ASSERT_EQ(block_io::run(drives, wanted).mismatches, 0u);
  std::uint64_t const other = 0;
  drives.pwrite(&other, sizeof other, 5 * 4096 + 800);
  wanted.lay_down = false;
  auto const r = block_io::run(drives, wanted);
  EXPECT_EQ(r.mismatches, 1u);
  EXPECT_EQ(r.first_mismatch_byte, 5u * 4096);
}

TEST_P(apps_on_storage, a_timed_run_counts_a_whole_interval) {
  storage drives = open("emulated:size=8M,iops=1000,latency_us=1000,channels=1");
  auto const r = block_io::run(drives, {.iodepth = 4, .gpu_threads = 2, .runtime_s = 0.2, .ramp_time_s = 0.05});
  EXPECT_DOUBLE_EQ(r.seconds, 0.2);
  EXPECT_GT(r.read.completion.summary.count, 0u);
  EXPECT_EQ(r.errors, 0u);
}

TEST_P(apps_on_storage, what_cannot_be_is_refused_by_its_name) {
  storage drives = open();
  auto const field_of = [&](block_io::options const& wanted) -> std::string {
    try {
      block_io::run(drives, wanted);
    } catch (refused_input const& refused) {
      return refused.field();
    }
    return "nothing";
  };
  EXPECT_EQ(field_of({.block_bytes = 500}), "--bs");
  EXPECT_EQ(field_of({.block_bytes = 0}), "--bs");
  EXPECT_EQ(field_of({.iodepth = 0}), "--iodepth");
  EXPECT_EQ(field_of({.gpu_threads = 0}), "--gpu-threads");
  EXPECT_EQ(field_of({.read_percent = 101}), "--rwmixread");
  EXPECT_EQ(field_of({.size_bytes = 1000}), "--size");
  EXPECT_EQ(field_of({.size_bytes = 16 << 20}), "--size");
  EXPECT_EQ(field_of({.runtime_s = -1}), "--runtime");
}

using replay::operation;
using replay::operation_kind;

/// Operations of any length on the blocks of the first MiB.
std::vector<operation> random_trace(std::uint64_t seed, std::uint32_t count) {
  std::mt19937_64 random(seed);
  std::vector<operation> trace;
  for (std::uint32_t line = 1; line <= count; ++line) {
    std::uint64_t const blocks = random() % 32 == 0 ? random() % 700 + 1 : random() % 16 + 1;
    auto const kind = static_cast<operation_kind>(random() % 16 == 0 ? 2 : random() % 2);
    trace.push_back({random() % (2049 - blocks) * 512, blocks * 512, std::uint64_t{line} * 1000, kind, line});
  }
  return trace;
}

TEST_P(apps_on_storage, a_replay_does_what_the_trace_says_and_no_more) {
  for (char const* uri : {"emulated:size=8M", "emulated:size=8M,threads=2,queues=2"}) {
    storage drives({.drives = {drive(uri), drive("emulated:size=8M,seed=2")}, .device = device()});
    for (bool open_loop : {false, true}) {
      SCOPED_TRACE(std::string(uri) + (open_loop ? " open" : " closed"));
      auto const trace = random_trace(7, 2000);
      auto const r = replay::run(
          drives, trace, {.trace_name = "t", .open_loop = open_loop, .iodepth = 50, .gpu_threads = 7, .verify = true});
      replay::operation_counts asked;
      for (operation const& op : trace) {
        asked.reads += op.kind == operation_kind::read;
        asked.writes += op.kind == operation_kind::write;
        asked.flushes += op.kind == operation_kind::flush;
        asked.read_bytes += op.kind == operation_kind::read ? op.bytes : 0;
        asked.write_bytes += op.kind == operation_kind::write ? op.bytes : 0;
      }
      EXPECT_EQ(r.asked, asked);
      EXPECT_EQ(r.completed, asked);
      EXPECT_EQ(r.errors, 0u);
      EXPECT_EQ(r.mismatches, 0u);
      EXPECT_GT(r.verified_blocks, 0u);
      EXPECT_EQ(r.threads, 7u);
      EXPECT_EQ(r.lag.summary.count, open_loop ? 2000u : 0u);
      EXPECT_EQ(r.wrapped, 0u);
      std::string const report = drives.report();
      EXPECT_EQ(total_in(report, "read_commands"), r.commands.reads);
      EXPECT_EQ(total_in(report, "write_commands"), r.commands.writes);
      if (!on_qemu()) {  // which does not count them
        EXPECT_EQ(total_in(report, "flush_commands"), r.commands.flushes);
      }
      EXPECT_EQ(total_in(report, "bytes_read"), asked.read_bytes);
      EXPECT_EQ(total_in(report, "bytes_written"), asked.write_bytes);
    }
  }
}

TEST_P(apps_on_storage, a_replay_checks_what_it_reads_of_what_it_wrote) {
  if (on_qemu()) GTEST_SKIP() << "QEMU has no drive that loses writes";
  storage drives = open("emulated:size=8M,data=none");  // every write of it is lost
  std::vector<operation> const trace = {{4096, 1024, 0, operation_kind::write, 1},
                                        {4096, 8192, 0, operation_kind::read, 2}};
  auto const r = replay::run(drives, trace, {.trace_name = "t", .verify = true});
  EXPECT_EQ(r.verified_blocks, 2u);
  EXPECT_EQ(r.mismatches, 2u);
  EXPECT_EQ(r.first_mismatch_byte, 4096u);
  EXPECT_EQ(replay::run(drives, trace, {.trace_name = "t"}).mismatches, 0u);
}

TEST_P(apps_on_storage, a_storage_that_may_not_be_written_fails_the_replay) {
  storage drives({.drives = {drive("emulated:size=8M")}, .device = device(), .read_only = true});
  std::vector<operation> const trace = {{0, 512, 0, operation_kind::read, 3},
                                        {0, 512, 0, operation_kind::write, 4},
                                        {0, 512, 0, operation_kind::read, 5}};
  auto const r = replay::run(drives, trace, {.trace_name = "t"});
  EXPECT_EQ(r.errors, 1u);
  EXPECT_EQ(r.first_error, status(fault::read_only));
  EXPECT_EQ(r.first_error_line, 4u);
  EXPECT_EQ(r.completed.reads, 1u);
}

TEST_P(apps_on_storage, an_error_ends_the_wait_of_other_threads_for_their_time) {
  storage drives({.drives = {drive("emulated:size=8M")}, .device = device(), .read_only = true});
  constexpr std::uint64_t hour_ns = 3'600'000'000'000;
  std::vector<operation> const trace = {{0, 512, 10'000'000, operation_kind::write, 1},
                                        {0, 512, hour_ns, operation_kind::read, 2},
                                        {0, 512, 2 * hour_ns, operation_kind::read, 3}};
  auto const r = replay::run(drives, trace, {.trace_name = "t", .open_loop = true, .iodepth = 2, .gpu_threads = 2});
  EXPECT_EQ(r.errors, 1u);
  EXPECT_EQ(r.lag.summary.count, 1u);
  EXPECT_EQ(r.completed, replay::operation_counts{});
}

TEST_P(apps_on_storage, operations_that_do_not_fit_are_refused_by_their_line_or_wrapped) {
  storage drives = open();
  std::uint64_t const size = drives.size_bytes();
  auto const outcome_of = [&](operation op, bool wrap) -> std::string {
    try {
      op.line = 12;
      auto const r = replay::run(drives, std::vector{op}, {.trace_name = "t", .wrap = wrap});
      return "wrapped " + std::to_string(r.wrapped) + ", read " + std::to_string(r.completed.read_bytes);
    } catch (refused_input const& refused) {
      return refused.field();
    }
  };
  for (auto const& [op, refused, done] : {std::tuple<operation, char const*, char const*>  //
                                          {{512, 512}, "wrapped 0, read 512", "wrapped 0, read 512"},
                                          {{size - 512, 512}, "wrapped 0, read 512", "wrapped 0, read 512"},
                                          {{100, 512}, "t:12: offset", "wrapped 1, read 1024"},
                                          {{512, 500}, "t:12: length", "wrapped 1, read 512"},
                                          {{512, 0}, "t:12: length", "t:12: length"},
                                          {{size, 512}, "t:12: offset", "wrapped 1, read 512"},
                                          {{size - 512, 1024}, "t:12: offset", "wrapped 1, read 1024"},
                                          {{0, size + 512}, "t:12: offset", "t:12: length"},
                                          {{~0ull, 512}, "t:12: offset", "wrapped 1, read 1024"}}) {
    SCOPED_TRACE(std::to_string(op.offset_bytes) + " " + std::to_string(op.bytes));
    EXPECT_EQ(outcome_of(op, false), refused);
    EXPECT_EQ(outcome_of(op, true), done);
  }
}

TEST_P(apps_on_storage, a_replay_that_cannot_be_is_refused_by_its_name) {
  storage drives = open();
  auto const field_of = [&](std::vector<operation> const& trace, replay::options wanted) -> std::string {
    wanted.trace_name = "t";
    try {
      replay::run(drives, trace, wanted);
    } catch (refused_input const& refused) {
      return refused.field();
    }
    return "nothing";
  };
  operation const read{0, 512, 5, operation_kind::read, 1};
  operation const earlier{0, 512, 4, operation_kind::read, 2};
  EXPECT_EQ(field_of({}, {}), "trace");
  EXPECT_EQ(field_of({read}, {.iodepth = 0}), "--iodepth");
  EXPECT_EQ(field_of({read}, {.iodepth = 65537}), "--iodepth");
  EXPECT_EQ(field_of({read}, {.gpu_threads = 0}), "--gpu-threads");
  EXPECT_EQ(field_of({read}, {.timeout_s = 0}), "timeout");
  EXPECT_EQ(field_of({read, earlier}, {}), "nothing");
  EXPECT_EQ(field_of({read, earlier}, {.open_loop = true}), "t:2: time");
  EXPECT_EQ(field_of({{0, 512, 0, static_cast<operation_kind>(3), 9}}, {}), "t:9: kind");
}

struct test_graph {
  std::vector<std::uint64_t> row_begin{0};
  std::vector<std::uint32_t> neighbours;

  explicit test_graph(std::uint64_t seed, std::uint32_t vertices = 3000) {
    std::mt19937_64 random(seed);
    for (std::uint32_t v = 0; v < vertices; ++v) {
      std::uint64_t const degree = v % 50 == 0 ? random() % 2000 : random() % 4;
      for (std::uint64_t i = 0; i < degree; ++i) neighbours.push_back(static_cast<std::uint32_t>(random() % vertices));
      row_begin.push_back(neighbours.size());
    }
  }
  std::vector<std::uint32_t> distances_from(std::uint32_t source) const {
    std::vector<std::uint32_t> distances(row_begin.size() - 1, graph::bfs_unreached);
    std::deque<std::uint32_t> queue{source};
    distances[source] = 0;
    for (; !queue.empty(); queue.pop_front()) {
      std::uint32_t const v = queue.front();
      for (std::uint64_t e = row_begin[v]; e < row_begin[v + 1]; ++e) {
        if (distances[neighbours[e]] != graph::bfs_unreached) continue;
        distances[neighbours[e]] = distances[v] + 1;
        queue.push_back(neighbours[e]);
      }
    }
    return distances;
  }
  extent write_to(storage& drives) const {
    extent const edges = drives.create_extent("edges", neighbours.size() * 4);
    drives.pwrite(neighbours.data(), neighbours.size() * 4, 0, &edges);
    return edges;
  }
};

TEST_P(apps_on_storage, distances_are_those_of_a_queue) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    storage drives = open();
    test_graph const g(seed);
    extent const edges = g.write_to(drives);
    auto const r = graph::run_bfs(
        drives, edges, g.row_begin, 50,
        {.iodepth = static_cast<std::uint32_t>(1 + (seed - 1) * 37), .request_bytes = std::uint64_t{512} << seed % 4});
    ASSERT_EQ(r.distances, g.distances_from(50));
    EXPECT_GE(r.read_bytes, r.useful_bytes);
    EXPECT_EQ(r.reads, r.latency.summary.count);
    for (std::size_t v = 0; v < r.distances.size(); ++v) {
      bool const has_one = r.distances[v] != 0 && r.distances[v] != graph::bfs_unreached;
      ASSERT_EQ(r.predecessors[v] != graph::bfs_unreached, has_one) << v;
      if (!has_one) continue;
      EXPECT_EQ(r.distances[r.predecessors[v]] + 1, r.distances[v]) << v;
    }
  }
}

TEST_P(apps_on_storage, an_id_on_the_drive_that_names_no_vertex_fails_the_search) {
  storage drives = open();
  test_graph g(9);
  g.neighbours[g.row_begin[50]] = 3000;
  extent const edges = g.write_to(drives);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 50), operation_failed);
}

TEST_P(apps_on_storage, a_search_that_cannot_be_is_refused) {
  storage drives = open();
  test_graph const g(9);
  extent const edges = g.write_to(drives);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 3000), refused_input);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 0, {.iodepth = 0}), refused_input);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 0, {.request_bytes = 1536}), refused_input);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 0, {.request_bytes = 256 << 10}), refused_input);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 0, {.request_bytes = 700}), refused_input);
  auto longer = g.row_begin;
  longer.back() += 1'000'000;
  EXPECT_THROW(graph::run_bfs(drives, edges, longer, 0), refused_input);
}

#ifdef FOREBAY_HAS_CUDA
constexpr char this_device[] = "cuda:0";
#else
constexpr char this_device[] = "cpu";
#endif
INSTANTIATE_TEST_SUITE_P(this_build, apps_on_storage, ::testing::Values(this_device, "qemu"),
                         [](auto const& on) { return std::string(on.index == 0 ? "device" : "qemu"); });

}  // namespace
}  // namespace forebay
