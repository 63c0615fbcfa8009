// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the parts of an index lie, and the searches that each machine compiles for itself.
#pragma once

#include <optional>

#include "apps/common/device_array.hpp"
#include "apps/search/block_room.hpp"
#include "apps/search/index.hpp"
#include "apps/search/warp_memory.hpp"
#include "forebay/memory.hpp"

namespace forebay::search {

struct placed_index {
  index_shape shape;
  int gpu;  ///< negative: the CPU executor
  memory::resource& memory;
  apps::device_array<std::uint8_t> codes;
  apps::device_array<float> codebook;
  apps::device_array<std::uint32_t> navigation_slots;
  apps::device_array<std::uint32_t> navigation_neighbours;
  storage* drives = nullptr;  ///< null: the records are in memory
  std::optional<extent> records = {};
  memory::allocation records_in_memory = {};
};

inline warp_memory_layout memory_of_a_query(index_shape const& shape, search_options const& options) {
  return warp_memory_layout::of(shape.chunks, options.list_size, options.navigation_size, options.k,
                                shape.record.vector_words);
}

/// Compiled for simt::fiber in a .cpp file, and for simt::cuda in a .cu file. Takes checked options.
template <class M>
search_found run_pq_on(placed_index const& at, query_set const& queries, search_options const& options);

}  // namespace forebay::search
