// SPDX-License-Identifier: Apache-2.0
//! \file
//! The memory of a block that a search has for each warp.
#pragma once

#include <cstdint>

#include "apps/search/product_codes.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {

/// Where the parts of a warp's memory are in that of its block, in bytes.
struct warp_memory_layout {
  std::uint32_t lists_at, results_at, incoming_at, taken_at, query_at, arrived_at, bytes;

  FOREBAY_DEVICE static constexpr warp_memory_layout of(std::uint32_t chunks, std::uint32_t list_size,
                                                        std::uint32_t navigation_size, std::uint32_t k,
                                                        std::uint32_t vector_words) {
    warp_memory_layout layout{};
    layout.lists_at = chunks * product_codes::centroids * 2;
    layout.results_at = layout.lists_at + 2 * (list_size + navigation_size) * 8;
    layout.incoming_at = layout.results_at + 2 * k * 8;
    layout.taken_at = layout.incoming_at + 32 * 8;
    layout.query_at = layout.taken_at + 32 * 8;
    layout.arrived_at = layout.query_at + vector_words * 4;
    layout.bytes = (layout.arrived_at + 4 + 15) / 16 * 16;
    return layout;
  }
};

}  // namespace forebay::search
