// SPDX-License-Identifier: Apache-2.0
//! \file
//! A graph over a sample of an index, in the device's memory, that leads a search to its first records.
#pragma once

#include <cstdint>

#include "apps/search/product_codes.hpp"
#include "apps/search/sorted_keys.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {

/// Vertices of the graph have numbers of their own, in a random order.
struct navigation_graph {
  std::uint32_t const* slots = nullptr;       ///< of each vertex
  std::uint32_t const* neighbours = nullptr;  ///< `degree` for each vertex; `none` where there are fewer
  std::uint32_t vertices = 0;                 ///< at least 1
  std::uint32_t degree = 0;

  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// Searches the graph from its first vertices, by the codes, with `list`. Then `list` has the slots of the best ones,
  /// none of them expanded. A collective of a full warp.
  template <class M>
  FOREBAY_DEVICE void search(typename M::warp const& warp, distance_table<M> const& distances, sorted_keys<M>& list,
                             key* taken) const {
    std::uint32_t const lane = warp.thread_rank();
    auto const key_of = [&](std::uint32_t vertex) {
      return vertex < vertices ? make_key(distances.distance(slots[vertex]), vertex) : no_key;
    };
    list.clear(warp);
    list.merge(warp, key_of(lane));
    while (list.take(warp, 1, taken) != 0) {
      std::uint32_t const* const from = neighbours + std::uint64_t{slot_of(taken[0])} * degree;
      for (std::uint32_t first = 0; first < degree; first += 32) {
        list.merge(warp, key_of(first + lane < degree ? from[first + lane] : none));
      }
    }
    list.rename(warp, [&](key k) { return make_key(distance_of(k), slots[slot_of(k)]); });
  }
};

}  // namespace forebay::search
