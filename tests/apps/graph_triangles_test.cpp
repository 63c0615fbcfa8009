// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "apps/common/memory_view.hpp"
#include "apps/graph/triangles.hpp"
#include "apps/graph_lists.hpp"
#include "apps/paged_view.hpp"

namespace forebay::graph {
namespace {

using cpu_executor = testing::small_executor;
using testing::graph_lists;
using testing::paged_view;
using memory_neighbours = apps::memory_view<std::uint32_t>;
/// A tile and a piece so small that lists have several.
using small_triangles = triangles<cpu_executor, paged_view<std::uint32_t>, 8, 4>;
using paged_triangles = triangles<cpu_executor, paged_view<std::uint32_t>, 128, 32>;

std::uint64_t intersect(graph_lists const& g) {
  std::vector<std::set<std::uint32_t>> greater(g.vertices());
  g.each_arc([&](std::uint32_t from, std::uint32_t to, std::uint64_t) {
    if (from < to) greater[from].insert(to);
  });
  std::uint64_t count = 0;
  for (auto const& list : greater) {
    for (std::uint32_t const v : list) {
      count += static_cast<std::uint64_t>(
          std::count_if(greater[v].begin(), greater[v].end(), [&](std::uint32_t w) { return list.contains(w); }));
    }
  }
  return count;
}

template <class Triangles>
void expect_count(Triangles& count, std::uint64_t want) {
  EXPECT_EQ(count(), want);
  EXPECT_FALSE(count.errors().any());
  EXPECT_EQ(count.descents(), 0u);
}

TEST(graph_triangles, the_count_is_that_of_set_intersection) {
  cpu_executor const run;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    auto made = testing::random_case(seed);
    made.vertices = made.vertices / 4 + 2;
    made.arcs.resize(made.arcs.size() / 2);
    for (auto& [from, to] : made.arcs) from /= 4, to /= 4;
    auto arcs = testing::both_ways(made.arcs);
    bool const one_way = seed % 4 == 0;
    if (one_way) std::erase_if(arcs, [](auto const& arc) { return arc.first > arc.second; });
    std::uint64_t const page_elements = std::vector{1, 16, 64}[random() % 3];
    graph_lists g(made.vertices, arcs, page_elements);
    std::uint64_t const want = intersect(g);
    auto const at_a_time = static_cast<std::uint32_t>(std::vector{1, 3, 32}[random() % 3]);
    auto const warps = static_cast<std::uint32_t>(1 + random() % 6);
    small_triangles small(run, g.shape(), paged_view(g.neighbours), g.page_elements(), at_a_time, warps);
    expect_count(small, want);
    paged_triangles paged(run, g.shape(), paged_view(g.neighbours), g.page_elements(), at_a_time, warps);
    expect_count(paged, want);
    triangles<cpu_executor, memory_neighbours> in_memory(
        run, g.shape(), {g.neighbours.elements.data(), g.neighbours.elements.size()}, 32);
    expect_count(in_memory, want);
  }
}

TEST(graph_triangles, graphs_of_every_shape) {
  cpu_executor const run;
  for (auto const& one : testing::plain_cases()) {
    for (std::uint64_t const page_elements : {1, 16}) {
      SCOPED_TRACE(one.name);
      graph_lists g(one.vertices, testing::both_ways(one.arcs), page_elements);
      paged_triangles count(run, g.shape(), paged_view(g.neighbours), g.page_elements());
      expect_count(count, intersect(g));
    }
  }
}

TEST(graph_triangles, of_a_complete_graph_with_loops_and_every_arc_three_times) {
  cpu_executor const run;
  testing::arc_list arcs;
  for (std::uint32_t v = 0; v < 24; ++v) {
    for (std::uint32_t w = 0; w < 24; ++w) arcs.insert(arcs.end(), 3, {v, w});
  }
  graph_lists g(24, arcs, 16);
  small_triangles count(run, g.shape(), paged_view(g.neighbours), 16, 8);
  expect_count(count, 24 * 23 * 22 / 6);
}

TEST(graph_triangles, lists_longer_than_the_tile_of_a_program) {
  cpu_executor const run;
  testing::arc_list arcs;
  for (std::uint32_t v = 1; v < 3000; ++v) arcs.insert(arcs.end(), {{0, v}, {1, v}, {v, v + 1}});
  graph_lists g(3001, arcs, 64);
  triangles<cpu_executor, paged_view<std::uint32_t>> count(run, g.shape(), paged_view(g.neighbours), 64);
  expect_count(count, intersect(g));
}

TEST(graph_triangles, pages_that_hold_only_smaller_neighbours_are_left_out) {
  cpu_executor const run;
  // Vertex 900 has neighbours in 60 pages, of which only the last has greater ones.
  testing::arc_list arcs{{0, 900}, {0, 901}, {900, 901}};
  for (std::uint32_t v = 1; v < 900; ++v) arcs.emplace_back(900, v);
  graph_lists g(902, arcs, 16);
  small_triangles count(run, g.shape(), paged_view(g.neighbours), 16);
  expect_count(count, 1);
  // Each piece of four is copied once, with the entry before it and the tile after it: fewer than four pages. A search
  // among 57 pages looks at six.
  EXPECT_LT(g.neighbours.moves, (arcs.size() / 4 + 1) * 4 + 8);
}

TEST(graph_triangles, a_page_that_cannot_be_had_is_told) {
  cpu_executor const run;
  auto const made = testing::random_case(7);
  graph_lists g(made.vertices, testing::both_ways(made.arcs), 16);
  std::uint64_t const pages = (g.neighbours.elements.size() + 15) / 16;
  for (std::uint64_t const bad_page : {std::uint64_t{0}, pages / 2, pages - 1}) {
    g.neighbours.bad_page = bad_page;
    paged_triangles count(run, g.shape(), paged_view(g.neighbours), 16);
    count();
    EXPECT_GT(count.errors().failure.failures, 0u);
    EXPECT_EQ(count.errors().failure.status_bits, status::from_nvme(0x281).bits());
  }
}

TEST(graph_triangles, neighbours_that_are_no_vertex_are_told) {
  cpu_executor const run;
  auto const made = testing::random_case(7);
  graph_lists g(made.vertices, testing::both_ways(made.arcs), 16);
  std::uint32_t victim = g.vertices() / 2;
  g.neighbours.elements[g.row_begin[victim + 1] - 1] = ~0u;
  paged_triangles one(run, g.shape(), paged_view(g.neighbours), 16);
  one();
  EXPECT_EQ(one.errors().vertices.count, 1u);
  EXPECT_EQ(one.errors().vertices.first, ~0u);
  EXPECT_EQ(one.descents(), 0u);
  std::fill(g.neighbours.elements.begin(), g.neighbours.elements.end(), g.vertices());
  paged_triangles all(run, g.shape(), paged_view(g.neighbours), 16);
  all();
  EXPECT_EQ(all.errors().vertices.count, g.neighbours.elements.size());
}

TEST(graph_triangles, lists_that_are_not_sorted_are_told) {
  cpu_executor const run;
  testing::arc_list arcs;
  for (std::uint32_t v = 1; v < 50; ++v) arcs.emplace_back(0, v);
  graph_lists g(51, arcs, 16);
  // At an edge of a page and of a piece, and elsewhere.
  for (std::size_t const at : {16u, 21u}) {
    std::swap(g.neighbours.elements[at - 1], g.neighbours.elements[at]);
    small_triangles count(run, g.shape(), paged_view(g.neighbours), 16);
    count();
    EXPECT_EQ(count.descents(), 1u);
    std::swap(g.neighbours.elements[at - 1], g.neighbours.elements[at]);
  }
}

}  // namespace
}  // namespace forebay::graph
