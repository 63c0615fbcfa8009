// SPDX-License-Identifier: Apache-2.0
//! \file
//! SpMV and BFS on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/graph/build_kernels.hpp"

namespace forebay::graph {
struct graph_options;
}

namespace forebay::bench {

struct graph_parts;

/// How a product is divided among warps.
struct spmv_division {
  std::uint32_t tile;       ///< 256, 512 or 1024
  std::uint32_t row_lanes;  ///< 1, 4 or 8
  std::uint64_t entries_per_warp;
};

struct bfs_timing {
  double seconds;
  std::vector<std::uint64_t> levels;  ///< vertices of each
  std::uint64_t entries;              ///< neighbours of those that were reached
};

/// A graph in the memory of GPU 0, and what is done with it. Throws `operation_failed`.
class graph_on_gpu {
 public:
  explicit graph_on_gpu(graph::graph_options const& options);
  ~graph_on_gpu();
  graph_on_gpu(graph_on_gpu const&) = delete;
  graph_on_gpu& operator=(graph_on_gpu const&) = delete;

  double seconds_to_build() const;
  std::uint32_t vertices() const;
  std::uint64_t entries() const;
  std::uint64_t degree_max() const;
  std::uint64_t vertices_alone() const;
  /// The `n`-th of a seeded list of vertices with neighbours.
  std::uint32_t source(std::uint32_t n) const;

  /// One product, from an array of zeros.
  double spmv_seconds(spmv_division const& how);
  /// `algorithm` 1 or 2.
  double cusparse_seconds(int algorithm);
  /// Of the last product.
  std::uint64_t spmv_wrong_rows();

  /// One search, the host's looks between levels included. `share_pages`: consecutive pages of each warp where a level
  /// is found from below.
  bfs_timing search(std::uint32_t source, std::uint32_t share_pages);
  /// Of the last search.
  std::uint64_t bfs_wrong_vertices();

  /// For others that work on the same graph (graph_parts.hpp).
  graph_parts parts() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
