// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "apps/graph/triangles.hpp"
#include "apps/graph_lists/places.hpp"

namespace forebay::graph {

template <class M>
run_errors run_triangles_on(placed_lists const& lists, found_triangles& found) {
  run_errors errors;
  in_their_place<M>(lists, found.figures, [&](auto const& at) {
    auto const neighbours = at.views.template entries<std::uint32_t>();
    triangles<apps::executor<M>, std::remove_const_t<decltype(neighbours)>> count(
        at.run, at.shape, neighbours, at.template page_elements<std::uint32_t>(), at.paging.at_a_time,
        at.paging.warps_max);
    found.figures.seconds = seconds_of([&] { found.triangles = count(); });
    found.figures.useful_bytes = lists.entry_count() * sizeof(std::uint32_t);
    errors.lists = count.errors();
    errors.descents = count.descents();
  });
  return errors;
}

}  // namespace forebay::graph
