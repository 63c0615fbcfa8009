// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <random>
#include <set>
#include <vector>

#include "apps/common/cpu_executor.hpp"
#include "apps/common/memory_view.hpp"
#include "library/bfs.hpp"
#include "library/graph_build.hpp"
#include "library_paged_view.hpp"

namespace forebay::bench {
namespace {

using apps::cpu_executor;
using testing::paged_array;
using testing::paged_view;
using paged_bfs = bfs<cpu_executor, paged_view<std::uint32_t>>;

struct undirected {
  std::vector<std::uint64_t> row_begin{0};
  paged_array<std::uint32_t> neighbours;

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
  bfs_shape shape() const { return {vertices(), neighbours.elements.size(), row_begin.data()}; }
};

/// Several parts, some vertices alone, one with edges to a third of all.
void random_graph(undirected& g, std::uint64_t seed, std::uint32_t vertices) {
  std::mt19937_64 random(seed);
  std::vector<std::set<std::uint32_t>> rows(vertices);
  auto const join = [&](std::uint64_t a, std::uint64_t b) {
    if (a == b) return;
    rows[a].insert(static_cast<std::uint32_t>(b));
    rows[b].insert(static_cast<std::uint32_t>(a));
  };
  for (std::uint32_t i = 0; i < vertices / 3; ++i) join(vertices / 2, random() % vertices);
  for (std::uint32_t i = 0; i < vertices; ++i) join(random() % vertices, random() % (1 + vertices * 3 / 4));
  for (auto const& row : rows) {
    g.neighbours.elements.insert(g.neighbours.elements.end(), row.begin(), row.end());
    g.row_begin.push_back(g.neighbours.elements.size());
  }
}

std::vector<std::uint32_t> reference(undirected const& g, std::uint32_t source) {
  std::vector<std::uint32_t> distances(g.vertices(), bfs_unreached);
  std::deque<std::uint32_t> queue{source};
  distances[source] = 0;
  for (; !queue.empty(); queue.pop_front()) {
    std::uint32_t const v = queue.front();
    for (std::uint64_t i = g.row_begin[v]; i < g.row_begin[v + 1]; ++i) {
      std::uint32_t const n = g.neighbours.elements[i];
      if (distances[n] != bfs_unreached) continue;
      distances[n] = distances[v] + 1;
      queue.push_back(n);
    }
  }
  return distances;
}

TEST(library_bfs, distances_and_levels_are_those_of_a_queue) {
  cpu_executor const run;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    undirected g;
    g.neighbours.page_elements = std::uint64_t{1} << random() % 8;
    random_graph(g, seed, 1 + static_cast<std::uint32_t>(random() % 1000));
    paged_bfs search(run, g.shape(), paged_view(g.neighbours), static_cast<std::uint32_t>(g.neighbours.page_elements),
                     std::vector<std::uint32_t>{1, 3, 32}[random() % 3], static_cast<std::uint32_t>(random() % 2));
    for (bool const ordered : {false, true}) {
      auto const source = static_cast<std::uint32_t>(random() % g.vertices());
      auto const levels = search(source, ordered);
      auto const want = reference(g, source);
      ASSERT_EQ(search.distances_to_host(), want);
      std::vector<std::uint64_t> counts;
      for (std::uint32_t const d : want) {
        if (d == bfs_unreached) continue;
        if (d >= counts.size()) counts.resize(d + 1);
        ++counts[d];
      }
      EXPECT_EQ(levels, counts);
    }
    EXPECT_EQ(g.neighbours.stray_prefetches, 0u);
  }
}

TEST(library_bfs, a_level_can_be_listed_in_the_order_of_vertices) {
  cpu_executor const run;
  undirected g;
  random_graph(g, 6, 700);
  std::vector<std::uint32_t> distances(g.vertices());
  std::vector<bfs_run_of_neighbours> listed(g.vertices() + g.neighbours.elements.size());
  for (std::uint32_t v = 0; v < g.vertices(); ++v) distances[v] = v % 3;
  bfs_level_result result;
  // One warp, so that nobody comes in between.
  run({.blocks = 1, .threads_per_block = 32},
      bfs_list_level<simt::fiber>{{g.row_begin.data(), distances.data(), 16, listed.data(), &result}, g.vertices(), 2});
  EXPECT_EQ(result.vertices, (g.vertices() - 2 + 2) / 3);
  std::uint64_t at = 0, runs = 0;
  for (std::uint32_t v = 2; v < g.vertices(); v += 3) {
    for (at = g.row_begin[v]; at < g.row_begin[v + 1]; at += listed[runs++].count()) {
      ASSERT_LT(runs, result.runs);
      ASSERT_EQ(listed[runs].first(), at);
      ASSERT_NE(listed[runs].count(), 0u);
    }
    ASSERT_EQ(at, g.row_begin[v + 1]);
  }
  EXPECT_EQ(runs, result.runs);
}

TEST(library_bfs, a_page_of_each_vertex_is_asked_for_once) {
  cpu_executor const run;
  undirected g;
  g.neighbours.page_elements = 32;
  random_graph(g, 4, 600);
  paged_bfs search(run, g.shape(), paged_view(g.neighbours), 32, 4);
  search(300, true);
  auto const distances = search.distances_to_host();
  std::uint64_t runs = 0;
  for (std::uint32_t v = 0; v < g.vertices(); ++v) {
    if (distances[v] == bfs_unreached || g.row_begin[v] == g.row_begin[v + 1]) continue;
    runs += (g.row_begin[v + 1] - 1) / 32 - g.row_begin[v] / 32 + 1;
  }
  EXPECT_EQ(g.neighbours.moves, runs);
}

TEST(library_bfs, a_page_that_cannot_be_had_is_told) {
  cpu_executor const run;
  undirected g;
  g.neighbours.page_elements = 16;
  random_graph(g, 4, 600);
  g.neighbours.bad_page = g.row_begin[300] / 16 + 1;
  paged_bfs search(run, g.shape(), paged_view(g.neighbours), 16);
  search(300);
  EXPECT_NE(search.failures().failures, 0u);
  EXPECT_EQ(search.failures().status_bits, status::from_nvme(0x281).bits());
}

TEST(library_bfs, the_check_sees_every_kind_of_wrong_distance) {
  cpu_executor const run;
  csr_graph const graph = build_graph(run, {graph_kind::kronecker, 9, 8, 3});
  bfs_shape const shape{graph.vertices(), graph.entries(), graph.row_begin.data()};
  bfs<cpu_executor, apps::memory_view<std::uint32_t>> search(
      run, shape, apps::memory_view<std::uint32_t>(graph.columns.data(), graph.entries()));
  std::uint32_t const source = graph.columns.to_host(1)[0];
  auto const levels = search(source);
  ASSERT_GE(levels.size(), 3u);
  auto distances = search.distances_to_host();
  auto const wrong = [&] {
    std::uint64_t vertices = 0;
    run({.blocks = 2, .threads_per_block = 64},
        bfs_check<simt::fiber>{shape, graph.columns.data(), source, distances.data(), &vertices});
    return vertices;
  };
  EXPECT_EQ(wrong(), 0u);
  auto const first_of = [&](std::uint32_t d) {
    return static_cast<std::size_t>(std::find(distances.begin(), distances.end(), d) - distances.begin());
  };
  for (std::uint32_t const false_distance : {0u, 1u, 3u, bfs_unreached}) {
    std::size_t const victim = first_of(2);
    distances[victim] = false_distance;
    EXPECT_GT(wrong(), 0u) << false_distance;
    distances[victim] = 2;
  }
  std::size_t const alone = first_of(bfs_unreached);
  ASSERT_LT(alone, distances.size());
  distances[alone] = 5;
  EXPECT_EQ(wrong(), 1u);
}

}  // namespace
}  // namespace forebay::bench
