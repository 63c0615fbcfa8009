// SPDX-License-Identifier: Apache-2.0
//! \file
//! A graph whose columns and values lie on drives, behind a cache, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "library/graph_bench.hpp"

namespace forebay {
struct storage_options;
}

namespace forebay::bench {

/// Bytes of columns and of values, each a whole number of `unit_bytes`.
struct graph_layout {
  std::uint64_t columns_bytes;
  std::uint64_t values_bytes;

  static graph_layout of(std::uint64_t entries, std::uint64_t unit_bytes) {
    std::uint64_t const bytes = (entries * 4 + unit_bytes - 1) / unit_bytes * unit_bytes;
    return {bytes, bytes};
  }
  std::uint64_t size_bytes() const { return columns_bytes + values_bytes; }
};

/// How a product's warps ask for what they need.
struct spmv_on_storage {
  std::uint64_t entries_per_warp = 8192;
  std::uint32_t window = 8;           ///< pages of columns, and of values, at a time
  std::uint64_t prefetch_shares = 0;  ///< how many warps ahead of its own a warp prefetches; 0: it does not
  std::uint32_t row_lanes = 1;        ///< 1, or 4 with 768 threads
  std::uint32_t threads = 768;        ///< that a multiprocessor has registers for: 768 or 1024
};

/// How a search asks for its pages where a level is found from below.
struct bfs_on_storage {
  std::uint32_t share_pages = 8;  ///< consecutive pages of each warp, 1 to 32, asked for together
  std::uint32_t threads = 768;    ///< that a multiprocessor has registers for: 768 or 1024
  bool sweep = false;             ///< whether all pages are brought in from the start, beside the search
};

/// While it lives, the drives' engines run. Throws `refused_input`, `operation_failed`.
class graph_on_storage {
 public:
  /// Opens the drives and writes the graph's columns, then its values. `graph` must outlive it.
  graph_on_storage(graph_on_gpu& graph, storage_options const& options);
  ~graph_on_storage();
  graph_on_storage(graph_on_storage const&) = delete;
  graph_on_storage& operator=(graph_on_storage const&) = delete;

  /// Takes everything out of the cache.
  void make_cold();
  /// One product.
  double spmv_seconds(spmv_on_storage const& how);
  /// One search.
  bfs_timing search(std::uint32_t source, bfs_on_storage const& how);
  std::uint64_t bfs_wrong_vertices() const;

  /// Whether an access failed so far.
  bool failed();
  /// JSON of what its drives did since the last call.
  std::string report();
  /// About how many warps run together.
  std::uint32_t warps() const;
  /// Registers per thread: of a product, and of a search's levels from above and from below.
  std::uint32_t spmv_registers() const;
  std::uint32_t bfs_from_above_registers() const;
  std::uint32_t bfs_from_below_registers() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
