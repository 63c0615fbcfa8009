// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "apps/common/memory_view.hpp"
#include "apps/graph/components.hpp"
#include "apps/graph/components_check.hpp"
#include "apps/graph_lists.hpp"
#include "apps/paged_view.hpp"
#include "support/schedules.hpp"

namespace forebay::graph {
namespace {

using cpu_executor = testing::small_executor;
using testing::graph_lists;
using testing::paged_view;
using memory_neighbours = apps::memory_view<std::uint32_t>;
using paged_components = components<cpu_executor, paged_view<std::uint32_t>>;

edge_sweep<paged_view<std::uint32_t>> paged(graph_lists& g, sweep_how how = {}) {
  return {g.shape(), paged_view(g.neighbours), g.page_elements(), how};
}
edge_sweep<memory_neighbours> in_memory(graph_lists const& g) {
  return {g.shape(), {g.neighbours.elements.data(), g.neighbours.elements.size()}, 32};
}

std::vector<std::uint32_t> union_find(graph_lists const& g) {
  std::vector<std::uint32_t> parents(g.vertices());
  std::iota(parents.begin(), parents.end(), 0u);
  auto const root = [&](std::uint32_t v) {
    while (parents[v] != v) v = parents[v];
    return v;
  };
  g.each_arc([&](std::uint32_t from, std::uint32_t to, std::uint64_t) {
    std::uint32_t const a = root(from), b = root(to);
    parents[std::max(a, b)] = std::min(a, b);
  });
  for (std::uint32_t v = 0; v < g.vertices(); ++v) parents[v] = root(v);
  return parents;
}

template <class Components>
void expect_components(Components& found, graph_lists const& g) {
  auto const want = union_find(g);
  EXPECT_EQ(found(), std::set(want.begin(), want.end()).size());
  EXPECT_FALSE(found.errors().any());
  ASSERT_EQ(found.labels_to_host(), want);
  EXPECT_FALSE(check_components(cpu_executor(), in_memory(g), found.labels()).any());
}

TEST(graph_components, labels_are_those_of_union_find) {
  cpu_executor const run;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto made = testing::random_case(seed);
    // Few arcs leave many components.
    if (seed % 2 == 0) made.arcs.resize(made.arcs.size() / 4);
    if (seed % 3 == 0) made.arcs = testing::both_ways(made.arcs);
    std::uint64_t const page_elements = std::vector{1, 16, 64}[random() % 3];
    graph_lists g(made.vertices, made.arcs, page_elements);
    sweep_how const how{static_cast<std::uint32_t>(1 + random() % 9), static_cast<std::uint32_t>(1 + random() % 4)};
    paged_components over_pages(run, paged(g, how), static_cast<std::uint32_t>(1 + random() % 6));
    expect_components(over_pages, g);
    components<cpu_executor, memory_neighbours> over_memory(run, in_memory(g));
    expect_components(over_memory, g);
  }
}

TEST(graph_components, graphs_of_every_shape) {
  cpu_executor const run;
  for (auto const& one : testing::plain_cases()) {
    for (std::uint64_t const page_elements : {1, 16}) {
      SCOPED_TRACE(one.name);
      graph_lists g(one.vertices, one.arcs, page_elements);
      paged_components found(run, paged(g));
      expect_components(found, g);
    }
  }
}

TEST(graph_components, long_ways_to_the_root_are_gone) {
  cpu_executor const run;
  for (bool const rises : {false, true}) {
    testing::graph_case path{"path", 3000, {}};
    for (std::uint32_t v = 0; v + 1 < path.vertices; ++v) {
      path.arcs.push_back(rises ? std::pair{v, v + 1} : std::pair{v + 1, v});
    }
    graph_lists g(path.vertices, path.arcs, 64);
    paged_components found(run, paged(g));
    EXPECT_EQ(found(), 1u);
    EXPECT_EQ(found.labels_to_host(), std::vector<std::uint32_t>(path.vertices));
  }
}

TEST(graph_components, trees_are_joined_once_under_every_schedule) {
  for (std::uint64_t seed = 0; seed < 48; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    // Many lanes join the same few trees.
    testing::arc_list arcs;
    for (int i = 0; i < 40; ++i) arcs.emplace_back(random() % 24, random() % 24);
    graph_lists g(24, arcs, 1);
    emulator::testing::with_schedule(seed, [&](simt::memory_model model, simt::scheduler& schedule) {
      testing::scheduled_executor const run(model, schedule);
      edge_sweep<memory_neighbours> sweep = in_memory(g);
      sweep.how.share_pages = 1;
      components<testing::scheduled_executor, memory_neighbours> found(run, sweep);
      auto const want = union_find(g);
      EXPECT_EQ(found(), std::set(want.begin(), want.end()).size());
      EXPECT_EQ(found.labels_to_host(), want);
    });
  }
}

TEST(graph_components, each_page_is_asked_for_once) {
  cpu_executor const run;
  auto const made = testing::random_case(7);
  graph_lists g(made.vertices, made.arcs, 16);
  paged_components found(run, paged(g, {.share_pages = 4, .window = 4}));
  found();
  EXPECT_EQ(g.neighbours.moves, (made.arcs.size() + 15) / 16);
}

TEST(graph_components, a_page_that_cannot_be_had_is_told) {
  cpu_executor const run;
  auto const made = testing::random_case(7);
  graph_lists g(made.vertices, made.arcs, 16);
  g.neighbours.bad_page = 3;
  paged_components found(run, paged(g));
  found();
  EXPECT_EQ(found.errors().failure.status_bits, status::from_nvme(0x281).bits());
  EXPECT_EQ(found.errors().failure.failures, 32u) << "each lane of one warp";
  g.neighbours.bad_page = ~std::uint64_t{0};
  expect_components(found, g);
}

TEST(graph_components, neighbours_that_are_no_vertex_are_told) {
  cpu_executor const run;
  auto const made = testing::random_case(7);
  graph_lists g(made.vertices, made.arcs, 16);
  g.neighbours.elements[20] = ~0u;
  paged_components found(run, paged(g));
  found();
  EXPECT_EQ(found.errors().vertices.first, ~0u);
  EXPECT_EQ(found.errors().vertices.count, 1u);
  g.neighbours.elements[30] = g.neighbours.elements[31] = g.vertices();
  paged_components more(run, paged(g));
  more();
  EXPECT_EQ(more.errors().vertices.count, 3u);
}

TEST(graph_components, the_check_sees_every_kind_of_wrong_label) {
  cpu_executor const run;
  graph_lists g(9, {{1, 2}, {3, 2}, {4, 6}, {6, 7}, {8, 8}}, 4);
  std::vector<std::uint32_t> const right{0, 1, 1, 1, 4, 5, 4, 4, 8};
  auto const check = [&](std::vector<std::uint32_t> const& labels) {
    return check_components(run, in_memory(g), labels.data());
  };
  EXPECT_FALSE(check(right).any());
  for (std::uint32_t v = 0; v < 9; ++v) {
    for (std::uint32_t const label : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, ~0u}) {
      auto labels = right;
      labels[v] = label;
      EXPECT_EQ(check(labels).any(), label != right[v]) << v << " has " << label;
    }
  }
  // A component that has another one's label.
  auto const merged = check({0, 1, 1, 1, 1, 5, 1, 1, 8});
  EXPECT_EQ(merged.arcs + merged.labels, 0u);
  EXPECT_EQ(merged.apart, 3u);
  // A component in two parts.
  EXPECT_EQ(check({0, 1, 1, 3, 4, 5, 4, 4, 8}).arcs, 1u);
  // A label that is not the smallest vertex.
  EXPECT_EQ(check({0, 2, 2, 2, 4, 5, 4, 4, 8}).labels, 1u);
  // Labels that have labels of their own.
  EXPECT_GE(check({0, 1, 1, 1, 3, 5, 3, 3, 8}).labels, 3u);
  EXPECT_EQ(check({0, 1, 1, 1, 4, 5, 4, 4, 8}).any(), false);
  g.neighbours.elements[2] = 9;
  EXPECT_EQ(check(right).errors.vertices.first, 9u);
  g.neighbours.bad_page = 1;
  EXPECT_NE(check_components(run, paged(g), right.data()).errors.failure.failures, 0u);
}

}  // namespace
}  // namespace forebay::graph
