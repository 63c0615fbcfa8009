// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "apps/common/memory_view.hpp"
#include "apps/graph/sssp.hpp"
#include "apps/graph/sssp_check.hpp"
#include "apps/graph_lists.hpp"
#include "apps/paged_view.hpp"
#include "support/schedules.hpp"

namespace forebay::graph {
namespace {

using cpu_executor = testing::small_executor;
using testing::graph_lists;
using testing::paged_array;
using testing::paged_view;
using memory_arcs = apps::memory_view<weighted_neighbour>;
using paged_sssp = sssp<cpu_executor, paged_view<weighted_neighbour>>;

struct weighted {
  graph_lists lists;
  paged_array<weighted_neighbour> arcs;

  weighted(testing::graph_case const& from, std::uint64_t page_elements, std::uint64_t seed, std::uint32_t weight_max)
      : lists(from.vertices, from.arcs, page_elements) {
    std::mt19937_64 random(seed);
    arcs.page_elements = page_elements;
    for (std::uint32_t const to : lists.neighbours.elements) {
      arcs.elements.push_back({to, static_cast<std::uint32_t>(random() % (std::uint64_t{weight_max} + 1))});
    }
  }
  memory_arcs in_memory() const { return {arcs.elements.data(), arcs.elements.size()}; }
  edge_sweep<memory_arcs> sweep() const { return {lists.shape(), in_memory(), 16}; }
};

std::vector<std::uint64_t> dijkstra(weighted const& g, std::uint32_t source) {
  std::vector<std::uint64_t> distances(g.lists.vertices(), sssp_unreached);
  using item = std::pair<std::uint64_t, std::uint32_t>;
  std::priority_queue<item, std::vector<item>, std::greater<>> queue;
  distances[source] = 0;
  queue.emplace(0, source);
  while (!queue.empty()) {
    auto const [distance, v] = queue.top();
    queue.pop();
    if (distance != distances[v]) continue;
    for (std::uint64_t i = g.lists.row_begin[v]; i < g.lists.row_begin[v + 1]; ++i) {
      auto const [to, weight] = g.arcs.elements[i];
      if (distance + weight >= distances[to]) continue;
      distances[to] = distance + weight;
      queue.emplace(distances[to], to);
    }
  }
  return distances;
}

/// Each reached vertex has an arc from its predecessor that is as long as the distances say, and a way to the source.
void expect_a_tree(weighted const& g, std::uint32_t source, std::vector<std::uint64_t> const& distances,
                   std::vector<std::uint32_t> const& predecessors) {
  for (std::uint32_t v = 0; v < g.lists.vertices(); ++v) {
    std::uint32_t at = v;
    for (std::uint32_t steps = 0; distances[v] != sssp_unreached && at != source; ++steps) {
      ASSERT_LT(steps, g.lists.vertices()) << "a cycle at " << v;
      std::uint32_t const before = predecessors[at];
      ASSERT_LT(before, g.lists.vertices());
      bool explained = false;
      for (std::uint64_t i = g.lists.row_begin[before]; i < g.lists.row_begin[before + 1]; ++i) {
        auto const [to, weight] = g.arcs.elements[i];
        explained = explained || (to == at && distances[before] + weight == distances[at]);
      }
      ASSERT_TRUE(explained) << before << " before " << at;
      at = before;
    }
    if (distances[v] == sssp_unreached || v == source) {
      ASSERT_EQ(predecessors[v], no_predecessor);
    }
  }
}

template <class Search>
void expect_shortest(Search& search, weighted const& g, std::uint32_t source, std::uint32_t delta) {
  SCOPED_TRACE(::testing::Message() << "from " << source << ", delta " << delta);
  EXPECT_TRUE(search(source, delta).valid);
  auto const distances = search.distances_to_host();
  ASSERT_EQ(distances, dijkstra(g, source));
  expect_a_tree(g, source, distances, search.predecessors_to_host());
  EXPECT_FALSE(check_sssp(cpu_executor(), g.sweep(), source, search.distances(), search.predecessors()).any());
}

TEST(graph_sssp, distances_are_those_of_dijkstra_and_predecessors_a_tree) {
  cpu_executor const run;
  std::uint32_t const widths[] = {10, 50, 200, 5'000, 1u << 31};
  std::uint32_t const weights[] = {0, 1, 10, 255, weights_end - 1};
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::uint64_t const page_elements = std::vector{1, 16, 64}[random() % 3];
    std::uint32_t const weight_max = weights[random() % 5];
    weighted g(testing::random_case(seed), page_elements, seed, weight_max);
    // Buckets of one weight take very long where weights are large.
    std::uint32_t const delta = weight_max > 255 ? 1u << (28 + random() % 4) : widths[random() % 5];
    auto const source = static_cast<std::uint32_t>(random() % g.lists.vertices());
    auto const at_a_time = static_cast<std::uint32_t>(std::vector{1, 3, 32}[random() % 3]);
    paged_sssp paged(run, g.lists.shape(), paged_view(g.arcs), static_cast<std::uint32_t>(page_elements), at_a_time,
                     static_cast<std::uint32_t>(1 + random() % 8));
    expect_shortest(paged, g, source, delta);
    sssp<cpu_executor, memory_arcs> in_memory(run, g.lists.shape(), g.in_memory(), 64);
    expect_shortest(in_memory, g, g.lists.vertices() / 2, delta);
  }
}

TEST(graph_sssp, graphs_of_every_shape) {
  cpu_executor const run;
  for (auto const& one : testing::plain_cases()) {
    for (std::uint32_t const weight_max : {0u, 20u}) {
      SCOPED_TRACE(one.name);
      weighted g(one, 16, 5, weight_max);
      paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16);
      expect_shortest(search, g, 0, 10);
      expect_shortest(search, g, g.lists.vertices() - 1, 1u << 31);
    }
  }
}

TEST(graph_sssp, distances_beyond_32_bits_are_right) {
  cpu_executor const run;
  testing::graph_case path{"path", 60, {}};
  for (std::uint32_t v = 0; v + 1 < path.vertices; ++v) path.arcs.insert(path.arcs.end(), {{v, v + 1}, {v + 1, v}});
  weighted g(path, 16, 1, 0);
  for (std::size_t i = 0; i < g.arcs.elements.size(); ++i) {
    g.arcs.elements[i].weight = weights_end - 1 - static_cast<std::uint32_t>(i);
  }
  paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16);
  for (std::uint32_t const delta : {1u << 31, 723'456'789u}) expect_shortest(search, g, 0, delta);
  EXPECT_GT(search.distances_to_host()[59], std::uint64_t{1} << 36);
}

TEST(graph_sssp, an_arc_from_a_late_bucket_does_not_reach_back_to_a_settled_vertex) {
  cpu_executor const run;
  // The lower half of what the last vertex offers vertex 1 is less than that of the distance that vertex 1 has.
  testing::graph_case ring{"ring", 5, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 1}}};
  weighted g(ring, 16, 1, 0);
  std::uint32_t const weights[] = {5, weights_end - 1, weights_end - 5, 2, 1};
  for (std::size_t i = 0; i < 5; ++i) g.arcs.elements[i].weight = weights[i];
  paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16);
  for (std::uint32_t const delta : {16u << 20, 1u << 31}) expect_shortest(search, g, 0, delta);
}

TEST(graph_sssp, paths_are_shortest_under_every_schedule) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    testing::graph_case made{"few vertices, many arcs", 8, {}};
    for (int i = 0; i < 48; ++i) made.arcs.emplace_back(random() % 8, random() % 8);
    weighted g(made, 2, seed, seed % 4 == 0 ? 1 : 60);
    emulator::testing::with_schedule(seed, [&](simt::memory_model model, simt::scheduler& schedule) {
      testing::scheduled_executor const run(model, schedule);
      sssp<testing::scheduled_executor, memory_arcs> search(run, g.lists.shape(), g.in_memory(), 2, 8);
      expect_shortest(search, g, 0, 20);
    });
  }
}

TEST(graph_sssp, input_that_cannot_be_is_refused) {
  cpu_executor const run;
  weighted g(testing::random_case(1), 16, 1, 9);
  paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16);
  EXPECT_THROW(search(g.lists.vertices(), 1), refused_input);
  EXPECT_THROW(search(0, 0), refused_input);
  EXPECT_THROW(search(0, weights_end + 1), refused_input);
}

TEST(graph_sssp, each_page_of_a_vertex_is_asked_for_once_in_a_wide_bucket_of_a_tree) {
  cpu_executor const run;
  testing::graph_case tree{"tree", 600, {}};
  for (std::uint32_t v = 1; v < 600; ++v) tree.arcs.emplace_back((v - 1) / 40, v);
  weighted g(tree, 16, 3, 100);
  paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16, 4);
  auto const outcome = search(0, 1u << 31);
  EXPECT_EQ(outcome.entries, 599u);
  EXPECT_EQ(outcome.buckets, 1u);
  std::uint64_t runs = 0;
  for (std::uint32_t v = 0; v < 15; ++v) {
    runs += (g.lists.row_begin[v + 1] - 1) / 16 - g.lists.row_begin[v] / 16 + 1;
  }
  EXPECT_EQ(g.arcs.moves, runs);
}

TEST(graph_sssp, a_page_that_cannot_be_had_is_told) {
  cpu_executor const run;
  weighted g(testing::random_case(4), 16, 4, 50);
  g.arcs.bad_page = g.lists.row_begin[g.lists.vertices() / 2] / 16;
  paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16);
  EXPECT_FALSE(search(g.lists.vertices() / 2, 20).valid);
  EXPECT_GT(search.errors().failure.failures, 0u);
  EXPECT_EQ(search.errors().failure.status_bits, status::from_nvme(0x281).bits());
  g.arcs.bad_page = ~std::uint64_t{0};
  expect_shortest(search, g, g.lists.vertices() / 2, 20);
}

TEST(graph_sssp, neighbours_and_weights_that_cannot_be_are_told) {
  cpu_executor const run;
  weighted g(testing::random_case(4), 16, 4, 50);
  std::uint32_t const source = g.lists.vertices() / 2;
  std::size_t const victim = g.lists.row_begin[source] + 2;
  weighted_neighbour const right = g.arcs.elements[victim];
  for (std::uint32_t const vertex : {g.lists.vertices(), ~0u}) {
    g.arcs.elements[victim] = {vertex, 1};
    paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16);
    EXPECT_FALSE(search(source, 20).valid);
    EXPECT_EQ(search.errors().vertices.count, 1u);
    EXPECT_EQ(search.errors().vertices.first, vertex);
  }
  g.arcs.elements[victim] = {right.vertex, weights_end};
  paged_sssp search(run, g.lists.shape(), paged_view(g.arcs), 16);
  EXPECT_FALSE(search(source, 20).valid);
  EXPECT_EQ(search.weights().count, 1u);
  EXPECT_EQ(search.weights().first, weights_end);
}

TEST(graph_sssp, the_check_sees_every_kind_of_wrong_result) {
  cpu_executor const run;
  // Two vertices that are joined by arcs of no weight, one that is alone, and a diamond.
  testing::graph_case made{"made", 8, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}, {4, 5}, {5, 4}, {7, 0}}};
  weighted g(made, 16, 1, 0);
  std::uint32_t const weights[] = {2, 3, 4, 4, 5, 0, 0, 1};
  for (std::size_t i = 0; i < 8; ++i) g.arcs.elements[i].weight = weights[i];
  std::vector<std::uint64_t> const right{0, 2, 3, 6, 11, 11, sssp_unreached, sssp_unreached};
  std::vector<std::uint32_t> const tree{no_predecessor, 0, 0, 1, 3, 4, no_predecessor, no_predecessor};
  auto const check = [&](std::vector<std::uint64_t> const& d, std::vector<std::uint32_t> const& p) {
    return check_sssp(run, g.sweep(), 0, d.data(), p.data());
  };
  EXPECT_FALSE(check(right, tree).any());
  for (std::uint32_t v = 0; v < 8; ++v) {
    for (std::uint64_t const d : std::vector<std::uint64_t>{0, right[v] - 1, right[v] + 1, 1000, ~1ull, ~0ull}) {
      auto distances = right;
      distances[v] = d;
      EXPECT_EQ(check(distances, tree).any(), d != right[v]) << v << " at " << d;
    }
    for (std::uint32_t p = v % 2; p < 10; p += 2) {
      auto predecessors = tree;
      predecessors[v] = p < 9 ? p : no_predecessor;
      EXPECT_EQ(check(right, predecessors).any(), predecessors[v] != tree[v]) << v << " after " << p;
    }
  }
  // A source that is nowhere near itself, and has no arc that would show it.
  edge_sweep<memory_arcs> const alone{{1, 0, g.lists.row_begin.data() + 8}, g.in_memory(), 16};
  std::uint64_t const not_0 = 5;
  EXPECT_EQ(check_sssp(run, alone, 0, &not_0, tree.data()).vertices, 1u);
  // Vertices that are too near all together, each with an arc that explains it: they do not descend from the source.
  auto distances = right;
  auto predecessors = tree;
  distances[4] = distances[5] = 10;
  predecessors[4] = 5;
  auto const apart = check(distances, predecessors);
  EXPECT_EQ(apart.arcs, 0u);
  EXPECT_EQ(apart.vertices, 0u);
  EXPECT_EQ(apart.not_of_tree, 2u);
  // All beyond a vertex too far away.
  distances = right;
  distances[3] = 7;
  distances[4] = distances[5] = 12;
  auto const far = check(distances, tree);
  EXPECT_EQ(far.arcs, 1u);
  EXPECT_EQ(far.vertices, 1u) << "the arc from its predecessor is too short";
  // Pages and neighbours.
  g.arcs.elements[3].vertex = 8;
  EXPECT_EQ(check(right, tree).errors.vertices.first, 8u);
  g.arcs.page_elements = 4;
  g.arcs.bad_page = 1;
  edge_sweep<paged_view<weighted_neighbour>> const sweep{g.lists.shape(), paged_view(g.arcs), 4};
  EXPECT_NE(check_sssp(run, sweep, 0, right.data(), tree.data()).errors.failure.failures, 0u);
}

}  // namespace
}  // namespace forebay::graph
