// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "apps/common/executor.hpp"
#include "library/graph_build.hpp"

namespace forebay::bench {
namespace {

struct host_csr {
  std::vector<std::uint64_t> row_begin;
  std::vector<std::uint32_t> columns;
  std::vector<float> values;
};

host_csr to_host(csr_graph const& graph) {
  return {graph.row_begin.to_host(), graph.columns.to_host(), graph.values.to_host()};
}

/// Builds what the definition of an edge list says, without any of the kernels.
host_csr reference(graph_options const& options) {
  edge_source const source{options.kind, options.scale, options.seed};
  std::uint64_t const vertices = std::uint64_t{1} << options.scale;
  std::vector<std::set<std::uint32_t>> rows(vertices);
  for (std::uint64_t i = 0; i < vertices * options.edge_factor; ++i) {
    std::uint64_t const edge = source.edge(i);
    auto const from = static_cast<std::uint32_t>(edge >> options.scale);
    auto const to = static_cast<std::uint32_t>(edge & (vertices - 1));
    if (from == to) continue;
    rows[from].insert(to);
    rows[to].insert(from);
  }
  host_csr csr{{0}, {}, {}};
  for (std::uint64_t v = 0; v < vertices; ++v) {
    for (std::uint32_t const to : rows[v]) {
      csr.columns.push_back(to);
      csr.values.push_back(edge_value(options.seed, v, to));
    }
    csr.row_begin.push_back(csr.columns.size());
  }
  return csr;
}

class library_graph : public testing::TestWithParam<graph_options> {};

TEST_P(library_graph, is_that_of_its_edge_list) {
  host_csr const got = to_host(build_graph(apps::executor<simt::fiber>(), GetParam()));
  host_csr const want = reference(GetParam());
  EXPECT_EQ(got.row_begin, want.row_begin);
  EXPECT_EQ(got.columns, want.columns);
  EXPECT_EQ(got.values, want.values);
}

TEST_P(library_graph, is_symmetric_in_edges_and_values) {
  host_csr const g = to_host(build_graph(apps::executor<simt::fiber>(), GetParam()));
  for (std::uint32_t v = 0; v + 1 < g.row_begin.size(); ++v) {
    for (std::uint64_t e = g.row_begin[v]; e < g.row_begin[v + 1]; ++e) {
      auto const row = g.columns.begin() + static_cast<std::ptrdiff_t>(g.row_begin[g.columns[e]]);
      auto const row_end = g.columns.begin() + static_cast<std::ptrdiff_t>(g.row_begin[g.columns[e] + 1]);
      auto const back = std::lower_bound(row, row_end, v);
      ASSERT_TRUE(back != row_end && *back == v);
      ASSERT_EQ(g.values[e], g.values[static_cast<std::size_t>(back - g.columns.begin())]);
    }
  }
}

// Named here: GoogleTest would name them by the bytes of the options, some of which are padding.
INSTANTIATE_TEST_SUITE_P(
    sizes, library_graph,
    testing::Values(graph_options{graph_kind::kronecker, 1, 1, 1}, graph_options{graph_kind::kronecker, 5, 2, 2},
                    graph_options{graph_kind::kronecker, 9, 16, 3}, graph_options{graph_kind::uniform, 3, 1, 4},
                    graph_options{graph_kind::uniform, 9, 16, 5}, graph_options{graph_kind::uniform, 10, 3, 6}),
    [](testing::TestParamInfo<graph_options> const& graph) {
      return std::string(graph.param.kind == graph_kind::kronecker ? "kronecker" : "uniform") + "_of_scale_" +
             std::to_string(graph.param.scale);
    });

TEST(library_graph_edges, names_of_vertices_are_a_permutation) {
  for (std::uint32_t scale = 1; scale <= 13; ++scale) {
    edge_source const source{graph_kind::kronecker, scale, 7 * scale};
    std::vector<bool> seen(std::size_t{1} << scale);
    for (std::uint64_t v = 0; v < seen.size(); ++v) seen[source.permute(v)] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << "scale " << scale;
  }
}

TEST(library_graph_edges, kronecker_bits_have_the_shares_of_gap) {
  // The permutation hides the bits, so the test looks at edges of scale 1: each takes one draw, and `zero` undoes the
  // permutation.
  std::uint64_t of[4] = {};
  constexpr std::uint64_t draws = 1 << 16;
  edge_source const source{graph_kind::kronecker, 1, 11};
  std::uint64_t const zero = source.permute(0);
  for (std::uint64_t i = 0; i < draws; ++i) {
    std::uint64_t const edge = source.edge(i);
    ++of[((edge >> 1) ^ zero) * 2 + ((edge & 1) ^ zero)];
  }
  double const shares[4] = {0.57, 0.19, 0.19, 0.05};
  for (int i = 0; i < 4; ++i) {
    // Six standard deviations of a binomial distribution.
    EXPECT_NEAR(static_cast<double>(of[i]) / draws, shares[i], 6 * 0.5 / 256) << i;
  }
}

TEST(library_graph_edges, another_seed_is_another_graph) {
  auto const one = to_host(build_graph(apps::executor<simt::fiber>(), {graph_kind::kronecker, 6, 4, 1}));
  auto const two = to_host(build_graph(apps::executor<simt::fiber>(), {graph_kind::kronecker, 6, 4, 2}));
  EXPECT_NE(one.columns, two.columns);
}

TEST(library_graph_edges, a_scale_without_keys_is_refused) {
  EXPECT_THROW(build_graph(apps::executor<simt::fiber>(), {graph_kind::uniform, 31, 1, 1}), refused_input);
  EXPECT_THROW(build_graph(apps::executor<simt::fiber>(), {graph_kind::uniform, 0, 1, 1}), refused_input);
  EXPECT_THROW(build_graph(apps::executor<simt::fiber>(), {graph_kind::uniform, 4, 0, 1}), refused_input);
}

}  // namespace
}  // namespace forebay::bench
