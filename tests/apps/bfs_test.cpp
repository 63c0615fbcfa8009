// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "apps/graph/bfs_level.hpp"
#include "forebay/detail/simt/native.hpp"
#include "support/memory_storage.hpp"

namespace forebay::graph {
namespace {

using M = simt::native;
using testing::memory_buffer;
using testing::memory_drive;
using testing::memory_storage_ref;
using testing::memory_token;
using test_level = bfs_level<M, memory_storage_ref, memory_buffer>;

struct csr {
  std::vector<std::uint64_t> row_begin{0};
  std::vector<std::uint32_t> neighbours;
  std::uint32_t vertices() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
};

csr random_graph(std::uint64_t seed, std::uint32_t vertices, std::uint32_t most_neighbours) {
  std::mt19937_64 random(seed);
  csr g;
  for (std::uint32_t v = 0; v < vertices; ++v) {
    std::uint64_t const degree = random() % 4 == 0 ? random() % (most_neighbours + 1) : random() % 3;
    for (std::uint64_t i = 0; i < degree; ++i) g.neighbours.push_back(static_cast<std::uint32_t>(random() % vertices));
    g.row_begin.push_back(g.neighbours.size());
  }
  return g;
}

std::uint32_t vertex_of_highest_degree(csr const& g) {
  std::uint32_t best = 0;
  for (std::uint32_t v = 1; v < g.vertices(); ++v) {
    if (g.row_begin[v + 1] - g.row_begin[v] > g.row_begin[best + 1] - g.row_begin[best]) best = v;
  }
  return best;
}

std::vector<std::uint32_t> reference_distances(csr const& g, std::uint32_t source) {
  std::vector<std::uint32_t> distances(g.vertices(), unreached);
  std::deque<std::uint32_t> queue{source};
  distances[source] = 0;
  while (!queue.empty()) {
    std::uint32_t const v = queue.front();
    queue.pop_front();
    for (std::uint64_t e = g.row_begin[v]; e < g.row_begin[v + 1]; ++e) {
      if (distances[g.neighbours[e]] != unreached) continue;
      distances[g.neighbours[e]] = distances[v] + 1;
      queue.push_back(g.neighbours[e]);
    }
  }
  return distances;
}

struct outcome {
  std::vector<std::uint32_t> distances;
  std::vector<std::uint32_t> frontiers;
  thread_result counts;
};

outcome search(csr const& g, memory_drive& drive, std::uint32_t source, std::uint64_t alignment, std::uint64_t request,
               std::uint32_t depth) {
  std::uint64_t const bytes = (g.neighbours.size() * 4 + alignment - 1) / alignment * alignment;
  drive.contents.assign(bytes, std::byte{0xff});
  std::memcpy(drive.contents.data(), g.neighbours.data(), g.neighbours.size() * 4);

  outcome out;
  out.distances.assign(g.vertices(), unreached);
  out.distances[source] = 0;
  std::vector<std::uint32_t> frontier{source}, next(g.vertices());
  frontier.resize(g.vertices());
  std::vector<std::byte> memory(depth * request);
  std::vector<test_level::read_type> reads(depth);
  apps::latency_distribution latency;
  level_control control;
  std::uint32_t size = 1;
  for (std::uint32_t level = 0; size != 0 && out.counts.errors == 0 && out.counts.bad_neighbours == 0; ++level) {
    out.frontiers.push_back(size);
    control = {};
    test_level{.storage = memory_storage_ref(drive),
               .buffer = {memory.data(), memory.size()},
               .alignment_bytes = alignment,
               .request_bytes = request,
               .timeout_ns = 1'000'000,
               .threads = 1,
               .reads_per_thread = depth,
               .vertices = g.vertices(),
               .level = level,
               .frontier_size = size,
               .row_begin = g.row_begin.data(),
               .distances = out.distances.data(),
               .frontier = frontier.data(),
               .next_frontier = next.data(),
               .control = &control,
               .reads = reads.data(),
               .results = &out.counts,
               .latency_bins = latency.bins.data()}();
    size = control.next_size;
    frontier.swap(next);
  }
  return out;
}

TEST(bfs, distances_are_those_of_a_queue_for_any_graph_and_request_size) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    csr const g = random_graph(seed, 1 + static_cast<std::uint32_t>(random() % 400), 600);
    auto const source = static_cast<std::uint32_t>(random() % g.vertices());
    std::uint64_t const alignment = 512u << random() % 4;
    memory_drive drive;
    drive.looks = [&](std::size_t) { return static_cast<std::uint32_t>(random() % 4); };
    auto const got =
        search(g, drive, source, alignment, alignment << random() % 3, 1 + static_cast<std::uint32_t>(random() % 9));
    ASSERT_EQ(got.distances, reference_distances(g, source));
    EXPECT_EQ(drive.in_flight, 0u);

    std::uint64_t useful = 0, blocks = 0, reached = 0;
    for (std::uint32_t v = 0; v < g.vertices(); ++v) {
      if (got.distances[v] == unreached) continue;
      ++reached;
      std::uint64_t const begin = g.row_begin[v] * 4, end = g.row_begin[v + 1] * 4;
      useful += end - begin;
      if (begin != end) blocks += (end + alignment - 1) / alignment - begin / alignment;
    }
    EXPECT_EQ(got.counts.useful_bytes, useful);
    EXPECT_EQ(got.counts.read_bytes, blocks * alignment) << "each block of a list is read exactly once";
    EXPECT_EQ(got.counts.latency.count, drive.requests.size());
    std::uint64_t in_frontiers = 0;
    for (auto f : got.frontiers) in_frontiers += f;
    EXPECT_EQ(in_frontiers, reached);
  }
}

TEST(bfs, keeps_as_many_reads_in_flight_as_it_may) {
  memory_drive drive;
  drive.looks = [](std::size_t) { return 3u; };
  csr const g = random_graph(5, 300, 50);
  search(g, drive, vertex_of_highest_degree(g), 512, 512, 16);
  EXPECT_EQ(drive.most_in_flight, 16u);
}

TEST(bfs, a_failed_read_is_an_error_not_a_wrong_distance) {
  memory_drive drive;
  drive.outcome = [](std::size_t n) { return n == 7 ? status::from_nvme(0x281) : status(); };
  csr const g = random_graph(5, 300, 50);
  auto const got = search(g, drive, vertex_of_highest_degree(g), 512, 512, 4);
  EXPECT_EQ(got.counts.errors, 1u);
  EXPECT_EQ(got.counts.first_error, status::from_nvme(0x281));
  EXPECT_EQ(drive.in_flight, 0u);
}

TEST(bfs, a_read_that_never_returns_times_out) {
  memory_drive drive;
  drive.looks = [](std::size_t n) { return n == 7 ? memory_token::never : 0u; };
  csr const g = random_graph(5, 300, 50);
  auto const got = search(g, drive, vertex_of_highest_degree(g), 512, 512, 4);
  EXPECT_EQ(got.counts.first_error, status(fault::timed_out));
}

TEST(bfs, an_id_that_names_no_vertex_is_reported) {
  csr g = random_graph(5, 300, 50);
  std::uint32_t const source = vertex_of_highest_degree(g);
  g.neighbours[g.row_begin[source]] = 300;
  memory_drive drive;
  auto const got = search(g, drive, source, 512, 512, 4);
  EXPECT_EQ(got.counts.bad_neighbours, 1u);
  EXPECT_EQ(got.counts.first_bad_neighbour, 300u);
}

TEST(bfs, what_was_not_started_is_tried_again) {
  memory_drive drive;
  drive.outcome = [](std::size_t n) { return n % 3 == 0 ? status(fault::busy) : status(); };
  csr const g = random_graph(9, 200, 80);
  EXPECT_EQ(search(g, drive, 3, 512, 1024, 4).distances, reference_distances(g, 3));
}

}  // namespace
}  // namespace forebay::graph
