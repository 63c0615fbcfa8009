// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where lists lie, and the algorithms over them that each machine compiles for itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "apps/graph/list_errors.hpp"
#include "apps/graph_lists/lists.hpp"
#include "forebay/memory.hpp"

namespace forebay::graph {

/// Either in memory or on drives.
struct placed_lists {
  std::vector<std::uint64_t> row_begin;
  entry_kind entry = entry_kind::id;
  int gpu = -1;  ///< negative: the CPU executor
  bool has_values = false;
  bool is_far = false;  ///< in memory that a GPU reaches across its link

  memory::allocation entries_in_memory = {};
  memory::allocation values_in_memory = {};
  std::optional<memory::external_memory_options> external = {};

  storage* drives = nullptr;  ///< null: in memory
  lists_on_drives on_drives = {};
  std::uint32_t cache_page_bytes = 0;  ///< 0: the lists are read past the cache
  std::uint64_t cache_frames = 0;

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
  std::uint64_t entry_count() const { return row_begin.back(); }
};

/// What all drives of a storage have read so far.
struct drive_reads {
  std::uint64_t commands = 0;
  std::uint64_t bytes = 0;
};
/// Missing if a drive does not count.
std::optional<drive_reads> reads_of(storage const& drives);

/// What an algorithm found wrong with the lists, beside its result.
struct run_errors {
  list_errors lists;
  std::uint64_t bad_neighbour = 0;  ///< of a search, an id that names no vertex; 0: all do
  range_latch weights;              ///< of shortest paths
  std::uint64_t descents = 0;       ///< of triangles
};

// Each is compiled for simt::fiber in a .cpp file, and for simt::cuda in a .cu file.
template <class M>
void make_lists_cold(placed_lists const& lists);
template <class M>
run_errors run_bfs_on(placed_lists const& lists, std::uint32_t source, bfs_direction how, level_listener const& tell,
                      found_bfs& found);
template <class M>
run_errors run_plain_bfs_on(placed_lists const& lists, std::uint32_t source, found_bfs& found);
template <class M>
run_errors run_sssp_on(placed_lists const& lists, std::uint32_t source, std::uint32_t delta, found_sssp& found);
template <class M>
run_errors run_pagerank_on(placed_lists const& lists, std::span<std::uint32_t const> outgoing,
                           pagerank_options const& options, found_pagerank& found);
template <class M>
run_errors run_components_on(placed_lists const& lists, found_components& found);
template <class M>
run_errors run_triangles_on(placed_lists const& lists, found_triangles& found);
template <class M>
run_errors run_product_on(placed_lists const& lists, std::span<float const> x, found_product& found);

template <class M>
std::uint64_t wrong_in_bfs_on(placed_lists const& lists, std::uint32_t source, std::span<std::uint32_t const> distances,
                              std::span<std::uint32_t const> predecessors);
template <class M>
std::uint64_t wrong_in_sssp_on(placed_lists const& lists, std::uint32_t source,
                               std::span<std::uint64_t const> distances, std::span<std::uint32_t const> predecessors);
template <class M>
std::uint64_t wrong_in_components_on(placed_lists const& lists, std::span<std::uint32_t const> labels);
template <class M>
double residual_of_pagerank_on(placed_lists const& lists, std::span<std::uint32_t const> outgoing,
                               std::span<float const> scores, pagerank_options const& options);

}  // namespace forebay::graph
