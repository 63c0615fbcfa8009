// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/bfs_check.hpp"
#include "apps/graph/build.hpp"
#include "apps/paged_view.hpp"

namespace forebay::graph {
namespace {

using cpu_executor = apps::executor<simt::fiber>;
using testing::paged_array;
using testing::paged_view;
using paged_bfs = bfs<cpu_executor, paged_view<std::uint32_t>, 0, true>;
using memory_bfs = bfs<cpu_executor, apps::memory_view<std::uint32_t>>;

struct undirected {
  std::vector<std::uint64_t> row_begin{0};
  paged_array<std::uint32_t> neighbours;

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
  graph_shape shape() const { return {vertices(), neighbours.elements.size(), row_begin.data()}; }
  bool has_arc(std::uint32_t from, std::uint32_t to) const {
    auto const* const all = neighbours.elements.data();
    return std::find(all + row_begin[from], all + row_begin[from + 1], to) != all + row_begin[from + 1];
  }

  void join(std::uint32_t vertices, std::vector<std::pair<std::uint32_t, std::uint32_t>> const& edges) {
    std::vector<std::set<std::uint32_t>> rows(vertices);
    for (auto const& [a, b] : edges) {
      if (a == b) continue;
      rows[a].insert(b);
      rows[b].insert(a);
    }
    for (auto const& row : rows) {
      neighbours.elements.insert(neighbours.elements.end(), row.begin(), row.end());
      row_begin.push_back(neighbours.elements.size());
    }
  }
};

/// Several parts, some vertices alone, one with edges to a third of all.
void random_graph(undirected& g, std::uint64_t seed, std::uint32_t vertices) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  auto const below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (std::uint32_t i = 0; i < vertices / 3; ++i) edges.emplace_back(vertices / 2, below(vertices));
  for (std::uint32_t i = 0; i < vertices; ++i) edges.emplace_back(below(vertices), below(1 + vertices * 3 / 4));
  g.join(vertices, edges);
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

std::vector<std::uint64_t> levels_of(std::vector<std::uint32_t> const& distances) {
  std::vector<std::uint64_t> counts;
  for (std::uint32_t const d : distances) {
    if (d == bfs_unreached) continue;
    if (d >= counts.size()) counts.resize(d + 1);
    ++counts[d];
  }
  return counts;
}

constexpr bfs_direction directions[] = {bfs_direction::whichever_is_less, bfs_direction::from_above,
                                        bfs_direction::from_below};

/// A predecessor is one step nearer to the source, which has none.
void expect_tree(undirected const& g, std::vector<std::uint32_t> const& distances,
                 std::vector<std::uint32_t> const& predecessors) {
  ASSERT_EQ(predecessors.size(), g.vertices());
  for (std::uint32_t v = 0; v < g.vertices(); ++v) {
    if (distances[v] == 0 || distances[v] == bfs_unreached) {
      EXPECT_EQ(predecessors[v], bfs_unreached) << v;
      continue;
    }
    ASSERT_LT(predecessors[v], g.vertices()) << v;
    EXPECT_EQ(distances[predecessors[v]] + 1, distances[v]) << v;
    EXPECT_TRUE(g.has_arc(predecessors[v], v)) << v;
  }
}

/// Searches from each source in every direction, over memory too.
void compare(undirected& g, std::vector<std::uint32_t> const& sources, std::uint32_t at_a_time,
             std::uint32_t share_pages, std::uint32_t window, std::uint32_t warps_max = ~0u) {
  cpu_executor const run;
  auto const page_elements = static_cast<std::uint32_t>(g.neighbours.page_elements);
  paged_bfs search(run, g.shape(), paged_view(g.neighbours),
                   {.page_elements = page_elements, .at_a_time = at_a_time, .warps_max = warps_max});
  memory_bfs in_memory(run, g.shape(), {g.neighbours.elements.data(), g.neighbours.elements.size()},
                       {.page_elements = page_elements});
  for (std::uint32_t const source : sources) {
    auto const want = reference(g, source);
    for (bfs_direction const direction : directions) {
      SCOPED_TRACE(::testing::Message() << "from " << source << ", direction " << static_cast<int>(direction));
      EXPECT_EQ(search(source, {direction, share_pages, window}), levels_of(want));
      ASSERT_EQ(search.distances_to_host(), want);
      expect_tree(g, want, search.predecessors_to_host());
      EXPECT_FALSE(search.failed());
      EXPECT_EQ(in_memory(source, {direction, share_pages, 1}), levels_of(want));
      ASSERT_EQ(in_memory.distances_to_host(), want);
    }
  }
}

TEST(graph_bfs, distances_and_levels_are_those_of_a_queue) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    undirected g;
    g.neighbours.page_elements = std::uint64_t{1} << random() % 8;
    random_graph(g, seed, 1 + static_cast<std::uint32_t>(random() % 1000));
    auto const one_of = [&](std::vector<std::uint32_t> const& some) { return some[random() % some.size()]; };
    compare(g, {static_cast<std::uint32_t>(random() % g.vertices())}, one_of({1, 3, 32}),
            g.neighbours.page_elements < 16 ? one_of({16, 32}) : one_of({1, 3, 8}), one_of({1, 2, 32}),
            one_of({1, 2, 5, ~0u}));
  }
}

TEST(graph_bfs, graphs_of_every_shape) {
  using edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  struct shape {
    char const* name;
    std::uint32_t vertices;
    edges joined;
    std::vector<std::uint32_t> sources;
  };
  edges path, star, two_stars, complete;
  for (std::uint32_t v = 0; v + 1 < 20; ++v) path.emplace_back(v, v + 1);
  for (std::uint32_t v = 0; v < 700; ++v) star.emplace_back(400, v);
  for (std::uint32_t v = 0; v < 150; ++v) two_stars.insert(two_stars.end(), {{v, 150}, {v + 151, 301}});
  for (std::uint32_t v = 0; v < 60; ++v) {
    for (std::uint32_t w = 0; w < v; ++w) complete.emplace_back(v, w);
  }
  for (shape const& one :
       {shape{"a vertex", 1, {}, {0}}, shape{"vertices alone", 70, {{3, 65}}, {0, 3, 69}},
        shape{"path", 20, path, {0, 7}}, shape{"star", 700, star, {400, 0, 699}},
        shape{"two stars", 310, two_stars, {0, 150, 301, 309}}, shape{"complete", 60, complete, {0, 59}}}) {
    for (std::uint64_t const page_elements : {1, 16}) {
      SCOPED_TRACE(::testing::Message() << one.name << ", pages of " << page_elements);
      undirected g;
      g.neighbours.page_elements = page_elements;
      g.join(one.vertices, one.joined);
      compare(g, one.sources, 32, page_elements == 1 ? 32 : 4, 32);
    }
  }
}

TEST(graph_bfs, graphs_of_the_benchmark) {
  for (graph_kind const kind : {graph_kind::kronecker, graph_kind::uniform}) {
    csr_graph const built = build_graph(cpu_executor(), {kind, 9, 16, 3});
    undirected g;
    g.row_begin = built.row_begin.to_host();
    g.neighbours.elements = built.columns.to_host();
    g.neighbours.page_elements = 128;
    compare(g, {g.neighbours.elements[0], 77}, 4, 8, 8);
  }
}

/// Remembers which kernels it ran, a letter each.
struct recording_executor : cpu_executor {
  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    using view = apps::memory_view<std::uint32_t>;
    ran += std::is_same_v<Kernel, bfs_visit<machine, view>>         ? "v"
           : std::is_same_v<Kernel, bfs_look_up<machine, view>>     ? "u"
           : std::is_same_v<Kernel, bfs_list_level<machine, false>> ? "l"
                                                                    : "b";
    cpu_executor::operator()(shape, kernel);
  }
  mutable std::string ran;
};

TEST(graph_bfs, levels_are_found_in_the_direction_that_is_less) {
  // A path, a complete graph, another path.
  undirected g;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  for (std::uint32_t v = 0; v < 20; ++v) edges.insert(edges.end(), {{v, v + 1}, {v + 79, v + 80}});
  for (std::uint32_t v = 20; v < 80; ++v) {
    for (std::uint32_t w = 20; w < v; ++w) edges.emplace_back(v, w);
  }
  g.join(100, edges);
  recording_executor const run;
  bfs<recording_executor, apps::memory_view<std::uint32_t>> search(
      run, g.shape(), {g.neighbours.elements.data(), g.neighbours.elements.size()}, {.page_elements = 64});
  auto const ran = [&](std::uint32_t source, bfs_direction direction) {
    run.ran.clear();
    search(source, {direction});
    EXPECT_EQ(search.distances_to_host(), reference(g, source));
    return run.ran;
  };
  using enum bfs_direction;
  // From below where the frontier has become most of the graph, and back where it is one vertex.
  EXPECT_EQ(ran(0, whichever_is_less), "b" + std::string(21, 'v') + "ul" + std::string(19, 'v'));
  // Of a directed graph, the last vertices have to be looked at.
  EXPECT_EQ(ran(0, from_above), "b" + std::string(42, 'v'));
  EXPECT_EQ(ran(0, from_below), "b" + std::string(41, 'u'));
}

TEST(graph_bfs, a_frontier_of_many_vertices_is_listed_in_their_order) {
  // Two levels of few vertices, and one of many.
  undirected g;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges{{0, 1}};
  for (std::uint32_t v = 0; v < 200; ++v) edges.insert(edges.end(), {{1, v + 2}, {v + 2, v + 202}});
  g.join(402, edges);
  recording_executor const run;
  bfs<recording_executor, apps::memory_view<std::uint32_t>> search(
      run, g.shape(), {g.neighbours.elements.data(), g.neighbours.elements.size()},
      {.page_elements = 64, .ordered_min = 100});
  search(0, {bfs_direction::from_above});
  EXPECT_EQ(search.distances_to_host(), reference(g, 0));
  EXPECT_EQ(run.ran, "bvvlvlv");
}

TEST(graph_bfs, from_below_only_pages_are_asked_for_that_are_needed) {
  // Vertex 0 is joined to all others but one; that one's neighbour is among them.
  undirected g;
  g.neighbours.page_elements = 8;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges{{200, 400}};
  for (std::uint32_t v = 1; v < 500; ++v) {
    if (v != 400) edges.emplace_back(0, v);
    if (v < 399) edges.emplace_back(v, v + 1);
  }
  g.join(600, edges);
  cpu_executor const run;
  paged_bfs search(run, g.shape(), paged_view(g.neighbours), {.page_elements = 8});
  search(0, {bfs_direction::from_below, 8, 8});
  // All pages but those of vertex 0 alone, and then that of vertex 400.
  std::uint64_t const pages = (g.neighbours.elements.size() + 7) / 8;
  EXPECT_EQ(g.neighbours.taken, pages - g.row_begin[1] / 8 + 1);
  EXPECT_LE(g.neighbours.moves, g.neighbours.taken);
  EXPECT_EQ(search.distances_to_host(), reference(g, 0));
}

TEST(graph_bfs, a_level_can_be_listed_in_the_order_of_vertices) {
  cpu_executor const run;
  undirected g;
  random_graph(g, 6, 700);
  std::vector<std::uint32_t> distances(g.vertices());
  std::vector<bfs_run_of_neighbours> listed(g.vertices() + g.neighbours.elements.size());
  for (std::uint32_t v = 0; v < g.vertices(); ++v) distances[v] = v % 3;
  bfs_level_result result, after;
  after.runs = 9;
  // One warp, so that no other warp comes in between.
  run({.blocks = 1, .threads_per_block = 32}, bfs_list_level<simt::fiber, false>{{.row_begin = g.row_begin.data(),
                                                                                  .distances = distances.data(),
                                                                                  .predecessors = nullptr,
                                                                                  .vertices = g.vertices(),
                                                                                  .page_elements = 16,
                                                                                  .next = listed.data(),
                                                                                  .next_owners = nullptr,
                                                                                  .result = &result,
                                                                                  .result_after = &after},
                                                                                 2});
  EXPECT_EQ(after.runs, 0u);
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

TEST(graph_bfs, from_above_a_page_of_each_vertex_is_asked_for_once) {
  cpu_executor const run;
  undirected g;
  g.neighbours.page_elements = 32;
  random_graph(g, 4, 600);
  paged_bfs search(run, g.shape(), paged_view(g.neighbours), {.page_elements = 32, .at_a_time = 4});
  search(300, {bfs_direction::from_above});
  auto const distances = search.distances_to_host();
  std::uint64_t runs = 0;
  for (std::uint32_t v = 0; v < g.vertices(); ++v) {
    if (distances[v] == bfs_unreached || g.row_begin[v] == g.row_begin[v + 1]) continue;
    runs += (g.row_begin[v + 1] - 1) / 32 - g.row_begin[v] / 32 + 1;
  }
  EXPECT_EQ(g.neighbours.moves, runs);
}

TEST(graph_bfs, a_page_that_cannot_be_had_is_told) {
  cpu_executor const run;
  undirected g;
  g.neighbours.page_elements = 16;
  random_graph(g, 4, 600);
  // The page with a neighbour's list: from below, no vertex looks into the list of the source.
  g.neighbours.bad_page = g.row_begin[g.neighbours.elements[g.row_begin[300]]] / 16;
  paged_bfs search(run, g.shape(), paged_view(g.neighbours), {.page_elements = 16});
  for (bfs_direction const direction : directions) {
    search(300, {direction, 4, 4});
    EXPECT_TRUE(search.failed());
    EXPECT_EQ(search.failures().status_bits, status::from_nvme(0x281).bits());
  }
  g.neighbours.bad_page = ~std::uint64_t{0};
  search(300);
  EXPECT_FALSE(search.failed()) << "a later search begins anew";
}

TEST(graph_bfs, ids_that_name_no_vertex_are_told_and_not_followed) {
  cpu_executor const run;
  undirected g;
  g.neighbours.page_elements = 16;
  random_graph(g, 4, 600);
  // In the list of a neighbour of the source, which is looked into in every direction.
  std::uint32_t const nearest = g.neighbours.elements[g.row_begin[300]];
  for (std::uint32_t const bad : {600u, ~0u}) {
    auto broken = g.neighbours.elements;
    for (std::uint64_t i = g.row_begin[nearest]; i < g.row_begin[nearest + 1]; ++i) broken[i] = bad;
    memory_bfs search(run, g.shape(), {broken.data(), broken.size()}, {.page_elements = 16});
    for (bfs_direction const direction : directions) {
      search(300, {direction, 4, 4});
      EXPECT_TRUE(search.failed());
      EXPECT_EQ(search.bad_neighbour(), bad);
      EXPECT_EQ(search.failures().failures, 0u);
    }
  }
}

TEST(graph_bfs, arcs_of_a_directed_graph_lead_one_way) {
  cpu_executor const run;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    undirected g;
    g.neighbours.page_elements = 8;
    std::mt19937_64 random(seed);
    std::uint32_t const vertices = 300;
    for (std::uint32_t v = 0; v < vertices; ++v) {
      // Loops and duplicates too.
      for (std::uint64_t n = random() % 4; n != 0; --n) {
        g.neighbours.elements.push_back(static_cast<std::uint32_t>(random() % vertices));
      }
      g.row_begin.push_back(g.neighbours.elements.size());
    }
    paged_bfs search(run, g.shape(), paged_view(g.neighbours), {.page_elements = 8});
    auto const source = static_cast<std::uint32_t>(random() % vertices);
    auto const want = reference(g, source);
    EXPECT_EQ(search(source, {bfs_direction::from_above}), levels_of(want));
    ASSERT_EQ(search.distances_to_host(), want);
    expect_tree(g, want, search.predecessors_to_host());
  }
}

TEST(graph_bfs, arcs_may_lead_to_vertices_without_arcs_when_all_lists_have_been_listed) {
  cpu_executor const run;
  undirected g;
  g.row_begin = {0, 2, 3, 4, 5, 5, 5};
  g.neighbours.elements = {1, 2, 3, 3, 4};
  memory_bfs search(run, g.shape(), {g.neighbours.elements.data(), g.neighbours.elements.size()});
  EXPECT_EQ(search(0, {bfs_direction::from_above}), (std::vector<std::uint64_t>{1, 2, 1, 1}));
  EXPECT_EQ(search.distances_to_host(), reference(g, 0));
}

TEST(graph_bfs, ids_may_have_eight_bytes) {
  cpu_executor const run;
  undirected g;
  random_graph(g, 9, 500);
  std::vector<std::uint64_t> wide(g.neighbours.elements.begin(), g.neighbours.elements.end());
  bfs<cpu_executor, apps::memory_view<std::uint64_t>> search(run, g.shape(), {wide.data(), wide.size()});
  for (bfs_direction const direction : directions) {
    EXPECT_EQ(search(7, {direction}), levels_of(reference(g, 7)));
    EXPECT_EQ(search.distances_to_host(), reference(g, 7));
  }
  wide[g.row_begin[7]] = std::uint64_t{1} << 32;  // the lower half names vertex 0
  search(7, {bfs_direction::from_above});
  EXPECT_EQ(search.bad_neighbour(), std::uint64_t{1} << 32);
}

TEST(graph_bfs, lists_may_lie_beyond_2_to_the_32_entries) {
  // Vertex 1, to which nothing leads, has so many neighbours that nobody writes or reads them.
  constexpr std::uint64_t many = std::uint64_t{1} << 32;
  std::vector<std::uint64_t> const row_begin{0, 1, many + 1, many + 2, many + 3};
  std::size_t const bytes = row_begin.back() * sizeof(std::uint32_t);
  void* const sparse = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (sparse == MAP_FAILED) GTEST_SKIP() << "this machine gives no 16 GiB of addresses";
  auto* const ids = static_cast<std::uint32_t*>(sparse);
  ids[0] = 2;
  ids[many + 1] = 3;
  ids[many + 2] = 0;
  cpu_executor const run;
  bfs_paging paging;
  paging.page_elements = 32768;  // a search has room for a run for each page
  bfs<cpu_executor, apps::memory_view<std::uint32_t>, 0, true> search(run, {4, row_begin.back(), row_begin.data()},
                                                                      {ids, row_begin.back()}, paging);
  EXPECT_EQ(search(0, {bfs_direction::from_above}), (std::vector<std::uint64_t>{1, 1, 1}));
  EXPECT_EQ(search.distances_to_host(), (std::vector<std::uint32_t>{0, bfs_unreached, 1, 2}));
  EXPECT_EQ(search.predecessors_to_host(), (std::vector<std::uint32_t>{bfs_unreached, bfs_unreached, 0, 2}));
  munmap(sparse, bytes);
}

TEST(graph_bfs, each_level_is_told) {
  cpu_executor const run;
  undirected g;
  random_graph(g, 5, 400);
  memory_bfs search(run, g.shape(), {g.neighbours.elements.data(), g.neighbours.elements.size()});
  std::vector<std::uint64_t> told;
  std::uint64_t entries = 0;
  auto const levels = search(200, {}, [&](bfs_level const& level) {
    told.push_back(level.vertices);
    entries += level.entries;
  });
  EXPECT_EQ(told, levels);
  std::uint64_t want = 0;
  auto const distances = search.distances_to_host();
  for (std::uint32_t v = 0; v < g.vertices(); ++v) {
    if (distances[v] != bfs_unreached) want += g.row_begin[v + 1] - g.row_begin[v];
  }
  EXPECT_EQ(entries, want);
}

TEST(graph_bfs, the_check_sees_every_kind_of_wrong_distance_and_predecessor) {
  using neighbours_view = apps::memory_view<std::uint32_t>;
  cpu_executor const run;
  csr_graph const graph = build_graph(run, {graph_kind::kronecker, 9, 8, 3});
  graph_shape const shape{graph.vertices(), graph.entries(), graph.row_begin.data()};
  neighbours_view const neighbours(graph.columns.data(), graph.entries());
  bfs<cpu_executor, neighbours_view, 0, true> search(run, shape, neighbours);
  std::uint32_t const source = graph.columns.to_host(1)[0];
  auto const levels = search(source);
  ASSERT_GE(levels.size(), 3u);
  auto distances = search.distances_to_host();
  auto predecessors = search.predecessors_to_host();
  edge_sweep<neighbours_view> const sweep{shape, neighbours, 64};
  auto const is_wrong = [&] {
    bool const without = check_bfs(run, sweep, source, distances.data(), nullptr).any();
    bool const with = check_bfs(run, sweep, source, distances.data(), predecessors.data()).any();
    EXPECT_TRUE(with || !without);
    return std::pair(without, with);
  };
  EXPECT_EQ(is_wrong(), std::pair(false, false));
  auto const first_of = [&](std::uint32_t d) {
    return static_cast<std::size_t>(std::find(distances.begin(), distances.end(), d) - distances.begin());
  };
  for (std::uint32_t const false_distance : {0u, 1u, 3u, bfs_unreached}) {
    std::size_t const victim = first_of(2);
    distances[victim] = false_distance;
    EXPECT_EQ(is_wrong(), std::pair(true, true)) << false_distance;
    distances[victim] = 2;
  }
  std::size_t const alone = first_of(bfs_unreached);
  ASSERT_LT(alone, distances.size());
  distances[alone] = 5;
  EXPECT_EQ(is_wrong(), std::pair(true, true));
  distances[alone] = bfs_unreached;
  auto const of_level_2 = static_cast<std::uint32_t>(first_of(2));
  for (std::size_t const victim : {first_of(1), first_of(2), alone, std::size_t{source}}) {
    // A vertex of the same level, none at all, and one that does not exist.
    for (std::uint32_t const false_predecessor : {of_level_2, bfs_unreached, shape.vertices}) {
      std::uint32_t const right = predecessors[victim];
      if (right == false_predecessor) continue;
      predecessors[victim] = false_predecessor;
      EXPECT_EQ(is_wrong(), std::pair(false, true)) << victim << " after " << false_predecessor;
      predecessors[victim] = right;
    }
  }
}

TEST(graph_bfs, the_check_knows_directed_graphs_and_ids_that_name_no_vertex) {
  using neighbours_view = apps::memory_view<std::uint64_t>;
  cpu_executor const run;
  std::vector<std::uint64_t> const row_begin{0, 2, 3, 3, 4};  // 0 to 1 and 2, 1 to 2, 3 to 0
  std::vector<std::uint64_t> ids{1, 2, 2, 0};
  graph_shape const shape{4, 4, row_begin.data()};
  std::vector<std::uint32_t> const distances{0, 1, 1, bfs_unreached};
  std::vector<std::uint32_t> const predecessors{bfs_unreached, 0, 0, bfs_unreached};
  auto const check = [&] {
    edge_sweep<neighbours_view> const sweep{shape, {ids.data(), ids.size()}, 16};
    return check_bfs(run, sweep, 0, distances.data(), predecessors.data());
  };
  EXPECT_FALSE(check().any());
  ids[3] = std::uint64_t{1} << 32;  // which is 0 in 32 bits
  EXPECT_EQ(check().errors.vertices.count, 1u);
}

}  // namespace
}  // namespace forebay::graph
