// SPDX-License-Identifier: Apache-2.0
// The applications on a real storage: on the CPU executor, and on the first GPU where there is one.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "apps/block_io/block_io.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/bfs_level.hpp"
#include "forebay/error.hpp"
#include "forebay/memory/resource.hpp"

namespace forebay {
namespace {

class apps_on_storage : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() != "cpu" && memory::device_count() == 0) GTEST_SKIP() << "no GPU here, or CUDA is not built in";
  }
  storage open(std::string const& uri = "emulated:size=8M") const {
    return storage({.drives = {uri}, .device = GetParam()});
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
  EXPECT_EQ(field_of({.block_bytes = 500}), "bs");
  EXPECT_EQ(field_of({.block_bytes = 0}), "bs");
  EXPECT_EQ(field_of({.iodepth = 0}), "iodepth");
  EXPECT_EQ(field_of({.gpu_threads = 0}), "gpu-threads");
  EXPECT_EQ(field_of({.read_percent = 101}), "rwmixread");
  EXPECT_EQ(field_of({.size_bytes = 1000}), "size");
  EXPECT_EQ(field_of({.size_bytes = 16 << 20}), "size");
  EXPECT_EQ(field_of({.runtime_s = -1}), "runtime");
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
    std::vector<std::uint32_t> distances(row_begin.size() - 1, graph::unreached);
    std::deque<std::uint32_t> queue{source};
    distances[source] = 0;
    for (; !queue.empty(); queue.pop_front()) {
      std::uint32_t const v = queue.front();
      for (std::uint64_t e = row_begin[v]; e < row_begin[v + 1]; ++e) {
        if (distances[neighbours[e]] != graph::unreached) continue;
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
    auto const r = graph::run_bfs(drives, edges, g.row_begin, 50,
                                  {.threads = static_cast<std::uint32_t>(1 + seed * 37),
                                   .reads_per_thread = static_cast<std::uint32_t>(seed),
                                   .request_bytes = std::uint64_t{512} << seed % 4});
    ASSERT_EQ(r.distances, g.distances_from(50));
    EXPECT_GE(r.read_bytes, r.useful_bytes);
    EXPECT_EQ(r.reads, r.latency.summary.count);
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
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 0, {.threads = 0}), refused_input);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 0, {.reads_per_thread = 0}), refused_input);
  EXPECT_THROW(graph::run_bfs(drives, edges, g.row_begin, 0, {.request_bytes = 700}), refused_input);
  auto longer = g.row_begin;
  longer.back() += 1'000'000;
  EXPECT_THROW(graph::run_bfs(drives, edges, longer, 0), refused_input);
}

#ifdef FOREBAY_HAS_CUDA
constexpr char device[] = "cuda:0";
#else
constexpr char device[] = "cpu";
#endif
INSTANTIATE_TEST_SUITE_P(this_build, apps_on_storage, ::testing::Values(device), [](auto const&) { return "device"; });

}  // namespace
}  // namespace forebay
