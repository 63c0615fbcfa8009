// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/graph/build.hpp"

namespace forebay::graph {
namespace {

struct host_csr {
  std::vector<std::uint64_t> row_begin;
  std::vector<std::uint32_t> columns;
  std::vector<float> values;
};

host_csr to_host(csr_graph const& graph) {
  return {graph.row_begin.to_host(), graph.columns.to_host(), graph.values.to_host()};
}

/// GAP's edges and weights by the numbers of the standard library, one after the other.
std::vector<drawn_edge> gap_reference(graph_options const& options) {
  constexpr std::uint64_t block = 1 << 18, largest = 0xffffffff;
  constexpr std::uint64_t a = 57 * largest / 100, b = 19 * largest / 100;
  std::uint64_t const edges = (std::uint64_t{1} << options.scale) * options.edge_factor;
  vertex_names const names{options.scale, gap_seed};
  std::vector<drawn_edge> list;
  list.reserve(edges);
  while (list.size() < edges) {
    auto const seed = static_cast<std::uint32_t>(gap_seed + list.size() / block);
    std::mt19937 draw(seed), weight(seed);
    for (std::uint64_t i = 0; i < block && list.size() < edges; ++i) {
      drawn_edge edge{};
      if (options.kind == graph_kind::gap_uniform) {
        edge.source = draw() % (1u << options.scale);
        edge.target = draw() % (1u << options.scale);
      } else {
        for (std::uint32_t level = 0; level < options.scale; ++level) {
          std::uint64_t const point = draw();
          edge.source *= 2;
          edge.target *= 2;
          if (point < a + b) {
            if (point > a) ++edge.target;
          } else {
            ++edge.source;
            if (point > a + b + b) ++edge.target;
          }
        }
        edge.source = names(edge.source);
        edge.target = names(edge.target);
      }
      std::uint64_t number = weight();
      while (number == largest) number = weight();
      edge.weight = static_cast<std::uint32_t>(number % 255 + 1);
      list.push_back(edge);
    }
  }
  return list;
}

std::vector<drawn_edge> edges_of(graph_options const& options) {
  if (is_gap(options.kind)) return gap_reference(options);
  edge_source const source{options.kind, options.scale, options.seed};
  std::uint64_t const vertices = std::uint64_t{1} << options.scale;
  std::vector<drawn_edge> list(vertices * options.edge_factor);
  for (std::uint64_t i = 0; i < list.size(); ++i) {
    std::uint64_t const edge = source.edge(i);
    list[i] = {edge >> options.scale, edge & (vertices - 1), source.weight(i)};
  }
  return list;
}

/// The neighbours of each vertex, with the smallest weight of an edge to each: what the definition of an edge list
/// says, without any of the kernels.
std::vector<std::map<std::uint32_t, std::uint32_t>> rows_of(graph_options const& options) {
  std::vector<std::map<std::uint32_t, std::uint32_t>> rows(std::size_t{1} << options.scale);
  for (drawn_edge const& edge : edges_of(options)) {
    if (edge.source == edge.target) continue;
    for (auto const& [from, to] : {std::pair(edge.source, edge.target), std::pair(edge.target, edge.source)}) {
      auto const [at, made] = rows[from].emplace(static_cast<std::uint32_t>(to), edge.weight);
      if (!made) at->second = std::min(at->second, edge.weight);
    }
  }
  return rows;
}

host_csr reference(graph_options const& options) {
  auto const rows = rows_of(options);
  host_csr csr{{0}, {}, {}};
  for (std::uint64_t v = 0; v < rows.size(); ++v) {
    for (auto const& [to, weight] : rows[v]) {
      csr.columns.push_back(to);
      csr.values.push_back(edge_value(options.seed, v, to));
    }
    csr.row_begin.push_back(csr.columns.size());
  }
  return csr;
}

/// An executor with another number of warps.
struct of_warps : apps::executor<simt::fiber> {
  std::uint32_t count;

  explicit of_warps(std::uint32_t n) : count(n) {}
  std::uint32_t warps() const { return count; }
};

/// All that a build makes, with how many pieces it came in.
template <class Entry>
struct collected {
  std::vector<std::uint64_t> row_begin;
  std::vector<Entry> entries;
  std::size_t pieces = 0;
};

template <class Entry>
collected<Entry> collect(graph_options const& options, std::uint32_t warps = 8) {
  collected<Entry> got;
  bool ended = false;
  got.row_begin = build_rows<Entry>(of_warps(warps), options, [&](edge_list_piece<Entry> const& piece) {
                    EXPECT_FALSE(ended);
                    EXPECT_EQ(piece.first, got.entries.size());
                    got.entries.insert(got.entries.end(), piece.entries, piece.entries + piece.count);
                    ++got.pieces;
                    ended = piece.last;
                  }).to_host();
  EXPECT_TRUE(ended);
  return got;
}

std::string name_of(graph_kind kind) {
  switch (kind) {
    case graph_kind::kronecker:
      return "kronecker";
    case graph_kind::uniform:
      return "uniform";
    case graph_kind::gap_kronecker:
      return "gap_kronecker";
    default:
      return "gap_uniform";
  }
}

class graph_build : public testing::TestWithParam<graph_options> {};

TEST_P(graph_build, is_that_of_its_edge_list) {
  host_csr const got = to_host(build_graph(apps::executor<simt::fiber>(), GetParam()));
  host_csr const want = reference(GetParam());
  EXPECT_EQ(got.row_begin, want.row_begin);
  EXPECT_EQ(got.columns, want.columns);
  EXPECT_EQ(got.values, want.values);
}

TEST_P(graph_build, is_symmetric_in_edges_and_values) {
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
    sizes, graph_build,
    testing::Values(graph_options{graph_kind::kronecker, 1, 1, 1}, graph_options{graph_kind::kronecker, 5, 2, 2},
                    graph_options{graph_kind::kronecker, 9, 16, 3}, graph_options{graph_kind::uniform, 3, 1, 4},
                    graph_options{graph_kind::uniform, 9, 16, 5}, graph_options{graph_kind::uniform, 10, 3, 6},
                    // An edge of the first takes one number; those of the second lie in two batches of numbers.
                    graph_options{graph_kind::gap_kronecker, 1, 700}, graph_options{graph_kind::gap_kronecker, 11, 4},
                    graph_options{graph_kind::gap_uniform, 1, 1}, graph_options{graph_kind::gap_uniform, 9, 16}),
    [](testing::TestParamInfo<graph_options> const& graph) {
      return name_of(graph.param.kind) + "_of_scale_" + std::to_string(graph.param.scale);
    });

void expect_lists_of(graph_options const& options) {
  auto const got = collect<weighted_neighbour>(options);
  std::vector<weighted_neighbour> want;
  std::vector<std::uint64_t> begins{0};
  for (auto const& row : rows_of(options)) {
    for (auto const& [to, weight] : row) want.push_back({to, weight});
    begins.push_back(want.size());
  }
  EXPECT_EQ(got.row_begin, begins);
  EXPECT_TRUE(got.entries == want);
}

TEST_P(graph_build, has_the_smallest_weight_of_each_edge) {
  expect_lists_of(GetParam());
}

// More than 2^18 edges.
TEST(graph_build_gap, has_random_numbers_of_its_own_for_each_block_of_edges) {
  expect_lists_of({graph_kind::gap_uniform, 8, 1025});
}

/// A number that depends on every number of a list and on its place.
template <class List>
std::uint64_t checksum(List const& list) {
  std::uint64_t sum = 0, place = 0;
  for (auto const n : list) sum += ++place * static_cast<std::uint64_t>(n);
  return sum;
}

// tests/python/test_generate.py has the same numbers: the package generates the same graphs.
TEST(graph_build_checksums, are_those_of_the_python_package) {
  for (auto const& [kind, vertices, weights] : {std::tuple(graph_kind::kronecker, 41252543562ull, 8579938648ull),
                                                std::tuple(graph_kind::uniform, 72591983930ull, 16876113523ull),
                                                std::tuple(graph_kind::gap_uniform, 73280235438ull, 16751322291ull)}) {
    auto const lists = collect<weighted_neighbour>({kind, 10, 8, 5});
    std::vector<std::uint32_t> ids, each;
    for (weighted_neighbour const& entry : lists.entries) {
      ids.push_back(entry.vertex);
      each.push_back(entry.weight);
    }
    EXPECT_EQ(checksum(lists.row_begin) + checksum(ids), vertices) << name_of(kind);
    EXPECT_EQ(checksum(each), weights) << name_of(kind);
  }
}

TEST(graph_build_ranges, give_the_same_graph_for_every_number_of_them_and_of_warps) {
  for (graph_kind const kind : {graph_kind::kronecker, graph_kind::gap_uniform}) {
    graph_options options{kind, 6, 16, 3};
    auto const want = collect<weighted_neighbour>(options);
    EXPECT_EQ(want.pieces, 1u);
    std::set<std::size_t> pieces{1};
    // Of the graph's 2048 arcs. A bucket of vertices is one vertex here, and one of the Kronecker graph has 300.
    for (auto const& [arcs, warps] : {std::pair(2047u, 3u), std::pair(1000u, 8u), std::pair(350u, 1u)}) {
      options.memory_max_bytes = arcs * detail::key_bytes;
      auto const got = collect<weighted_neighbour>(options, warps);
      EXPECT_EQ(got.row_begin, want.row_begin);
      EXPECT_TRUE(got.entries == want.entries);
      pieces.insert(got.pieces);
    }
    // Loops are no arcs, so the first of the bounds may be enough for one range.
    EXPECT_GE(pieces.size(), 3u);
    EXPECT_GE(*pieces.rbegin(), 6u);
  }
}

TEST(graph_build_ranges, stay_within_their_bound) {
  std::vector<std::uint64_t> const arcs{3, 0, 4, 1, 7, 7, 0};
  auto const parts = detail::ranges_of(arcs, 8, 1 << 20, 7 * detail::key_bytes + 15);
  std::vector<std::uint64_t> firsts, counts;
  for (auto const& part : parts) {
    firsts.push_back(part.first);
    counts.push_back(part.arcs);
  }
  EXPECT_EQ(firsts, (std::vector<std::uint64_t>{0, 24, 32, 40}));
  EXPECT_EQ(counts, (std::vector<std::uint64_t>{7, 1, 7, 7}));
  // Keys of vertices that are few enough for their bits.
  EXPECT_EQ(detail::ranges_of(arcs, 8, 16, 1 << 20).size(), 4u);
  try {
    detail::ranges_of(arcs, 8, 16, 7 * detail::key_bytes - 1);
    FAIL() << "a range of 7 arcs does not fit";
  } catch (refused_input const& refused) {
    EXPECT_NE(std::string(refused.what()).find("memory_max_bytes: '111': is at least 112"), std::string::npos)
        << refused.what();
  }
}

TEST(graph_build_ranges, are_collected_with_ids_of_either_size_and_with_values) {
  graph_options options{graph_kind::kronecker, 8, 8, 5};
  host_csr const want = to_host(build_graph(apps::executor<simt::fiber>(), options));
  options.memory_max_bytes = 2000 * detail::key_bytes;
  auto const got = build_graph<std::uint64_t>(apps::executor<simt::fiber>(), options);
  EXPECT_EQ(got.row_begin.to_host(), want.row_begin);
  std::vector<std::uint64_t> const columns = got.columns.to_host();
  EXPECT_TRUE(std::equal(columns.begin(), columns.end(), want.columns.begin(), want.columns.end()));
  EXPECT_EQ(got.values.to_host(), want.values);
  EXPECT_EQ(got.entries(), want.columns.size());
}

TEST(graph_build_ranges, of_vertices_without_a_neighbour_are_empty) {
  // The one edge of this graph is a loop, or leads from one vertex to the other.
  std::set<std::size_t> sizes;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    graph_options const options{graph_kind::uniform, 1, 1, seed, 2 * detail::key_bytes};
    auto const got = collect<std::uint32_t>(options);
    EXPECT_EQ(got.row_begin.back(), got.entries.size());
    sizes.insert(got.entries.size());
  }
  EXPECT_EQ(sizes, (std::set<std::size_t>{0, 2}));
}

TEST(graph_build_keys, hold_the_vertices_of_the_largest_graph) {
  key_format const format{30, 8, (std::uint64_t{1} << 30) - (1 << 26), 1 << 26};
  std::uint64_t const last = (std::uint64_t{1} << 30) - 1;
  std::uint64_t const key = format.key(last, last - 1, 255);
  EXPECT_EQ(format.bits(), 64u);
  EXPECT_TRUE(format.has(last));
  EXPECT_FALSE(format.has(format.first - 1));
  EXPECT_EQ(format.first + format.row(key), last);
  EXPECT_EQ(format.target(key), last - 1);
  EXPECT_EQ(format.weight(key), 255u);
  // Tiles of more than 2^32 keys.
  tiling const tiles = tiling::of(std::uint64_t{1} << 40, 8);
  EXPECT_EQ(tiles.begin(7), std::uint64_t{7} << 37);
  EXPECT_EQ(tiles.end(7), std::uint64_t{1} << 40);
}

TEST(graph_build_edges, names_of_vertices_are_a_permutation) {
  for (std::uint32_t scale = 1; scale <= 13; ++scale) {
    edge_source const source{graph_kind::kronecker, scale, 7 * scale};
    std::vector<bool> seen(std::size_t{1} << scale);
    for (std::uint64_t v = 0; v < seen.size(); ++v) seen[source.permute(v)] = true;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << "scale " << scale;
  }
}

TEST(graph_build_edges, kronecker_bits_have_the_shares_of_gap) {
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

TEST(graph_build_edges, another_seed_is_another_graph) {
  auto const one = to_host(build_graph(apps::executor<simt::fiber>(), {graph_kind::kronecker, 6, 4, 1}));
  auto const two = to_host(build_graph(apps::executor<simt::fiber>(), {graph_kind::kronecker, 6, 4, 2}));
  EXPECT_NE(one.columns, two.columns);
}

TEST(graph_build_edges, weights_are_1_to_255_and_as_likely) {
  std::uint64_t of[256] = {};
  edge_source const source{graph_kind::uniform, 4, 9};
  for (std::uint64_t i = 0; i < 255 * 256; ++i) ++of[source.weight(i)];
  EXPECT_EQ(of[0], 0u);
  // Each is there 256 times on average; 100 is more than six standard deviations.
  for (int w = 1; w < 256; ++w) EXPECT_NEAR(static_cast<double>(of[w]), 256, 100) << w;
}

TEST(graph_build_edges, a_scale_without_keys_is_refused) {
  EXPECT_THROW(build_graph(apps::executor<simt::fiber>(), {graph_kind::uniform, 31, 1, 1}), refused_input);
  EXPECT_THROW(build_graph(apps::executor<simt::fiber>(), {graph_kind::uniform, 0, 1, 1}), refused_input);
  EXPECT_THROW(build_graph(apps::executor<simt::fiber>(), {graph_kind::uniform, 4, 0, 1}), refused_input);
  EXPECT_THROW(build_graph(apps::executor<simt::fiber>(), {graph_kind::uniform, 4, (1 << 20) + 1, 1}), refused_input);
}

}  // namespace
}  // namespace forebay::graph
