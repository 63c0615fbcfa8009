// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the parts of an `exact_index` lie, and the searches that each machine compiles for itself.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/common/device_array.hpp"
#include "apps/search/block_room.hpp"
#include "apps/search/exact_index.hpp"
#include "apps/search/exact_search.hpp"
#include "forebay/memory.hpp"

namespace forebay::search {

struct placed_exact_index {
  exact_shape shape;
  int gpu;  ///< negative: the CPU executor
  memory::resource& memory;
  apps::device_array<std::uint32_t> entry_slots;
  apps::device_array<std::uint32_t> entry_checksums;
  storage* drives = nullptr;  ///< null: lists and vectors are in memory
  std::optional<extent> lists = {};
  std::optional<extent> vectors = {};
  memory::allocation lists_in_memory = {};
  memory::allocation vectors_in_memory = {};
};

/// How many vectors a query may read at a time.
inline std::uint32_t exact_requests(exact_shape const& shape, exact_options const& options) {
  return (options.width * shape.layout.degree_max + 31) / 32 * 32;
}
inline exact_memory_layout memory_of_an_exact_query(exact_shape const& shape, exact_options const& options) {
  return exact_memory_layout::of(options.list_size, options.k, exact_requests(shape, options),
                                 shape.layout.vector_words);
}

/// Compiled for simt::fiber in a .cpp file, and for simt::cuda in a .cu file. Takes checked options.
template <class M>
search_found run_exact_on(placed_exact_index const& at, query_set const& queries, exact_options const& options);

}  // namespace forebay::search
