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
  std::uint64_t bytes() const { return columns_bytes + values_bytes; }
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
  /// One product. `prefetch_ahead`: entries, 0: none.
  double spmv_seconds(std::uint64_t entries_per_warp, std::uint64_t prefetch_ahead);
  /// One search. `prefetch_ahead`: 1, or 0: none.
  bfs_timing search(std::uint32_t source, std::uint32_t prefetch_ahead);
  std::uint64_t bfs_wrong_vertices() const;

  /// Whether an access failed so far.
  bool failed() const;
  /// What its drives did since they were last asked, JSON.
  std::string report();
  /// Registers a thread of the two kernels.
  int spmv_registers() const;
  int bfs_registers() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
