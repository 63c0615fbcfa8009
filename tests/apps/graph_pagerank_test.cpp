// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "apps/common/constant_view.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/common/view.hpp"
#include "apps/graph/bounded_vertices.hpp"
#include "apps/graph/pagerank.hpp"
#include "apps/graph_lists.hpp"
#include "apps/paged_view.hpp"

namespace forebay::graph {
namespace {

using cpu_executor = testing::small_executor;
using testing::graph_lists;
using testing::paged_view;
using memory_neighbours = apps::memory_view<std::uint32_t>;
using paged_pagerank = pagerank<cpu_executor, paged_view<std::uint32_t>>;
static_assert(apps::view<apps::constant_view<float>>);
static_assert(apps::view<bounded_vertices<simt::fiber, memory_neighbours>>);

/// A directed graph by its incoming lists.
struct incoming {
  graph_lists lists;
  std::vector<std::uint32_t> outgoing;

  incoming(testing::graph_case const& from, std::uint64_t page_elements)
      : lists(from.vertices, turned(from.arcs), page_elements), outgoing(from.vertices) {
    for (auto const& arc : from.arcs) ++outgoing[arc.first];
  }
  static testing::arc_list turned(testing::arc_list arcs) {
    for (auto& [from, to] : arcs) std::swap(from, to);
    return arcs;
  }
  memory_neighbours in_memory() const { return {lists.neighbours.elements.data(), lists.neighbours.elements.size()}; }
};

struct reference {
  std::vector<double> scores;
  std::uint32_t iterations = 0;
  double change = 0;
};

reference power_iteration(incoming const& g, pagerank_options const& options) {
  std::uint32_t const n = g.lists.vertices();
  auto const damping = static_cast<double>(options.damping);
  reference r{std::vector<double>(n, 1.0 / n)};
  while (r.iterations < options.iterations_max) {
    double dangling = 0;
    for (std::uint32_t v = 0; v < n; ++v) dangling += g.outgoing[v] == 0 ? r.scores[v] : 0;
    if (options.dangling == pagerank_dangling::lost) dangling = 0;
    std::vector<double> next(n, (1 - damping + damping * dangling) / n);
    g.lists.each_arc([&](std::uint32_t to, std::uint32_t from, std::uint64_t) {
      next[to] += damping * r.scores[from] / g.outgoing[from];
    });
    r.change = 0;
    for (std::uint32_t v = 0; v < n; ++v) r.change += std::abs(next[v] - r.scores[v]);
    r.scores = next;
    ++r.iterations;
    if (r.change < options.tolerance) break;
  }
  return r;
}

template <class Rank>
void expect_scores(Rank& rank, incoming const& g, pagerank_options const& options = {}) {
  auto const want = power_iteration(g, options);
  auto const got = rank(options);
  EXPECT_TRUE(got.valid);
  EXPECT_FALSE(rank.errors().any());
  EXPECT_EQ(got.iterations, want.iterations);
  EXPECT_NEAR(got.change, want.change, 1e-6);
  auto const scores = rank.scores_to_host();
  ASSERT_EQ(scores.size(), want.scores.size());
  for (std::size_t v = 0; v < scores.size(); ++v) {
    ASSERT_NEAR(static_cast<double>(scores[v]), want.scores[v], 1e-5 * want.scores[v]) << v;
  }
  auto const residual =
      check_pagerank(cpu_executor(), g.lists.shape(), g.in_memory(), g.outgoing.data(), rank.scores(), options);
  EXPECT_FALSE(residual.errors.any());
  EXPECT_LE(residual.sum, 0.86 * want.change + 1e-6);
}

TEST(graph_pagerank, scores_are_those_of_power_iteration) {
  cpu_executor const run;
  for (std::uint64_t seed = 1; seed <= 9; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::uint64_t const page_elements = std::vector{1, 16, 64}[random() % 3];
    incoming g(testing::random_case(seed), page_elements);
    pagerank_options options;
    if (seed % 3 == 0) options = {.damping = 0.5f, .tolerance = 1e-5, .iterations_max = 30};
    if (seed % 2 == 0) options.dangling = pagerank_dangling::shared;
    paged_pagerank paged(run, g.lists.shape(), paged_view(g.lists.neighbours), g.outgoing.data(), 512 << random() % 3);
    expect_scores(paged, g, options);
    pagerank<cpu_executor, memory_neighbours> in_memory(run, g.lists.shape(), g.in_memory(), g.outgoing.data());
    expect_scores(in_memory, g, options);
  }
}

TEST(graph_pagerank, graphs_of_every_shape) {
  cpu_executor const run;
  for (auto const& one : testing::plain_cases()) {
    SCOPED_TRACE(one.name);
    incoming g(one, 16);
    paged_pagerank rank(run, g.lists.shape(), paged_view(g.lists.neighbours), g.outgoing.data());
    expect_scores(rank, g);
  }
}

TEST(graph_pagerank, an_undirected_graph_needs_no_other_degrees) {
  cpu_executor const run;
  auto made = testing::random_case(5);
  made.arcs = testing::both_ways(made.arcs);
  incoming g(made, 16);
  paged_pagerank rank(run, g.lists.shape(), paged_view(g.lists.neighbours));
  expect_scores(rank, g);
}

TEST(graph_pagerank, of_more_vertices_than_one_sum_has_and_the_same_for_any_number_of_warps) {
  struct one_warp : cpu_executor {
    static std::uint32_t warps() { return 1; }
  };
  testing::graph_case ring{"ring", 2 * pagerank_tile + 77, {}};
  for (std::uint32_t v = 0; v < ring.vertices; ++v) {
    ring.arcs.insert(ring.arcs.end(), {{v, (v * 7 + 1) % ring.vertices}, {v, v / 3}});
  }
  incoming g(ring, 64);
  pagerank_options const options{.iterations_max = 4};
  cpu_executor const many;
  one_warp const one;
  pagerank<cpu_executor, memory_neighbours> by_many(many, g.lists.shape(), g.in_memory(), g.outgoing.data());
  pagerank<one_warp, memory_neighbours> by_one(one, g.lists.shape(), g.in_memory(), g.outgoing.data());
  expect_scores(by_many, g, options);
  EXPECT_EQ(by_many(options).change, by_one(options).change);
  EXPECT_EQ(by_many.scores_to_host(), by_one.scores_to_host());
}

TEST(graph_pagerank, a_page_that_cannot_be_had_is_told) {
  cpu_executor const run;
  incoming g(testing::random_case(6), 16);
  paged_pagerank rank(run, g.lists.shape(), paged_view(g.lists.neighbours), g.outgoing.data());
  for (int i = 0; i < 2; ++i) {
    g.lists.neighbours.bad_page = 2;
    EXPECT_FALSE(rank().valid);
    EXPECT_EQ(rank.errors().failure.failures, 32u) << "each lane of one warp";
    EXPECT_EQ(rank.errors().failure.status_bits, status::from_nvme(0x281).bits());
    auto const residual =
        check_pagerank(run, g.lists.shape(), paged_view(g.lists.neighbours), g.outgoing.data(), rank.scores());
    EXPECT_GE(residual.errors.failure.failures, 32u);
    g.lists.neighbours.bad_page = ~std::uint64_t{0};
    expect_scores(rank, g);
  }
}

TEST(graph_pagerank, neighbours_that_are_no_vertex_are_told) {
  cpu_executor const run;
  incoming g(testing::random_case(6), 16);
  g.lists.neighbours.elements[5] = ~0u;
  g.lists.neighbours.elements[50] = ~0u;
  paged_pagerank rank(run, g.lists.shape(), paged_view(g.lists.neighbours), g.outgoing.data());
  EXPECT_FALSE(rank().valid);
  EXPECT_EQ(rank.errors().vertices.count, 2u);
  EXPECT_EQ(rank.errors().vertices.first, ~0u);
  auto const residual = check_pagerank(run, g.lists.shape(), g.in_memory(), g.outgoing.data(), rank.scores());
  EXPECT_EQ(residual.errors.vertices.count, 2u);
}

TEST(graph_pagerank, the_check_sees_every_kind_of_wrong_score) {
  cpu_executor const run;
  for (pagerank_dangling const dangling : {pagerank_dangling::lost, pagerank_dangling::shared}) {
    incoming g(testing::random_case(9), 16);
    pagerank_options const options{.tolerance = 1e-6, .iterations_max = 100, .dangling = dangling};
    paged_pagerank rank(run, g.lists.shape(), paged_view(g.lists.neighbours), g.outgoing.data());
    ASSERT_TRUE(rank(options).valid);
    auto const right = rank.scores_to_host();
    auto const residual = [&](std::vector<float> const& scores) {
      return check_pagerank(run, g.lists.shape(), g.in_memory(), g.outgoing.data(), scores.data(), options).sum;
    };
    EXPECT_LT(residual(right), 1e-6);
    for (std::size_t v = 0; v < right.size(); v += 90) {
      for (float const wrong : {0.0f, 0.9f * right[v], 2 * right[v]}) {
        auto scores = right;
        scores[v] = wrong;
        EXPECT_GT(residual(scores), 0.03 * static_cast<double>(right[v])) << v << " has " << wrong;
      }
      auto scores = right;
      scores[v] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(residual(scores)));
    }
    // Scores of another definition.
    auto others = options;
    others.damping = 0.8f;
    others.tolerance = 1e-4;
    rank(others);
    EXPECT_GT(residual(rank.scores_to_host()), 1e-3);
    others = options;
    others.dangling = dangling == pagerank_dangling::lost ? pagerank_dangling::shared : pagerank_dangling::lost;
    rank(others);
    EXPECT_GT(residual(rank.scores_to_host()), 1e-3);
  }
}

}  // namespace
}  // namespace forebay::graph
