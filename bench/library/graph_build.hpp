// SPDX-License-Identifier: Apache-2.0
//! \file
//! A graph in CSR form, generated where its kernels run.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "forebay/error.hpp"
#include "graph_kernels.hpp"

namespace forebay::bench {

struct graph_options {
  graph_kind kind = graph_kind::kronecker;
  std::uint32_t scale = 22;        ///< 2^scale vertices; 1 to 30
  std::uint32_t edge_factor = 16;  ///< undirected edges a vertex, before duplicates and loops are dropped
  std::uint64_t seed = 1;
};

/// Undirected: each edge stands in the rows of both its vertices. Rows are sorted, without duplicates and loops. The
/// value of an edge is in [0, 1).
struct csr_graph {
  apps::device_array<std::uint64_t> row_begin;  ///< one more than vertices
  apps::device_array<std::uint32_t> columns;
  apps::device_array<float> values;

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
  std::uint64_t entries() const { return columns.size(); }
};

namespace detail {

/// Turns counts into where each begins; returns their sum.
inline std::uint64_t exclusive_sum(apps::device_array<std::uint64_t>& counts) {
  std::vector<std::uint64_t> host = counts.to_host();
  std::uint64_t sum = 0;
  for (std::uint64_t& n : host) n = std::exchange(sum, sum + n);
  counts.assign(host);
  return sum;
}

}  // namespace detail

/// The same graph for the same options on every machine. Needs 32 bytes of memory for each undirected edge meanwhile.
/// Throws `refused_input`.
template <class Executor>
csr_graph build_graph(Executor const& run, graph_options const& options) {
  using M = typename Executor::machine;
  if (options.scale < 1 || options.scale > 30) {
    throw refused_input("scale", std::to_string(options.scale), "is 1 to 30");
  }
  if (options.edge_factor == 0) throw refused_input("edge_factor", "0", "is at least 1");
  std::uint64_t const vertices = std::uint64_t{1} << options.scale;
  std::uint64_t const edges = vertices * options.edge_factor;
  simt::grid const all{.blocks = (run.warps() + 3) / 4, .threads_per_block = 128};
  edge_source const source{options.kind, options.scale, options.seed};

  apps::device_array<std::uint64_t> keys(run.memory(), 2 * edges), other(run.memory(), 2 * edges);
  run(all, make_keys<M>{source, edges, keys.data()});

  tiling const tiles = tiling::of(2 * edges, run.warps());
  std::uint32_t const warps = tiles.warps();
  simt::grid const sort{.blocks = (warps + sort_warps_per_block - 1) / sort_warps_per_block,
                        .threads_per_block = sort_warps_per_block * 32,
                        .shared_bytes = sizeof(digit_counters)};
  {
    apps::device_array<std::uint64_t> counts(run.memory(), std::size_t{sort_digits} * warps);
    for (std::uint32_t shift = 0; shift < 2 * options.scale; shift += 8) {
      run(sort, count_digits<M>{tiles, warps, shift, keys.data(), counts.data()});
      run.synchronize();
      detail::exclusive_sum(counts);
      run(sort, scatter_keys<M>{tiles, warps, shift, keys.data(), counts.data(), other.data()});
      run.synchronize();
      std::swap(keys, other);
    }
  }

  kept_keys const kept{options.scale, keys.data()};
  apps::device_array<std::uint64_t> firsts(run.memory(), warps);
  simt::grid const pack{.blocks = sort.blocks, .threads_per_block = sort.threads_per_block};
  run(pack, count_kept<M>{tiles, warps, kept, firsts.data()});
  run.synchronize();
  std::uint64_t const entries = detail::exclusive_sum(firsts);
  run(pack, pack_kept<M>{tiles, warps, kept, firsts.data(), other.data()});
  run.synchronize();

  csr_graph graph{apps::device_array<std::uint64_t>(run.memory(), vertices + 1),
                  apps::device_array<std::uint32_t>(run.memory(), entries),
                  apps::device_array<float>(run.memory(), entries)};
  run(all, make_csr<M>{options.scale, options.seed, entries, other.data(), graph.row_begin.data(), graph.columns.data(),
                       graph.values.data()});
  run.synchronize();
  return graph;
}

}  // namespace forebay::bench
