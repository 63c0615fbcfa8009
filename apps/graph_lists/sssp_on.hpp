// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "apps/graph/sssp.hpp"
#include "apps/graph/sssp_check.hpp"
#include "apps/graph_lists/places.hpp"

namespace forebay::graph {

template <class M>
run_errors run_sssp_on(placed_lists const& lists, std::uint32_t source, std::uint32_t delta, found_sssp& found) {
  run_errors errors;
  in_their_place<M>(lists, found.figures, [&](auto const& at) {
    auto const arcs = at.views.template entries<weighted_neighbour>();
    sssp<apps::executor<M>, std::remove_const_t<decltype(arcs)>> search(at.run, at.shape, arcs,
                                                                        at.template page_elements<weighted_neighbour>(),
                                                                        at.paging.at_a_time, at.paging.warps_max);
    sssp_outcome outcome;
    found.figures.seconds = seconds_of([&] { outcome = search(source, delta); });
    found.figures.useful_bytes = outcome.entries * sizeof(weighted_neighbour);
    found.buckets = outcome.buckets;
    found.phases = outcome.phases;
    errors.lists = search.errors();
    errors.weights = search.weights();
    found.distances = search.distances_to_host();
    found.predecessors = search.predecessors_to_host();
  });
  return errors;
}

template <class M>
std::uint64_t wrong_in_sssp_on(placed_lists const& lists, std::uint32_t source,
                               std::span<std::uint64_t const> distances, std::span<std::uint32_t const> predecessors) {
  sssp_wrong wrong;
  in_plain_memory<M>(lists, [&](auto const& at) {
    auto const arcs = at.views.template entries<weighted_neighbour>();
    apps::device_array<std::uint64_t> const there(at.run.memory(), distances);
    apps::device_array<std::uint32_t> const before(at.run.memory(), predecessors);
    wrong = check_sssp(at.run,
                       edge_sweep<std::remove_const_t<decltype(arcs)>>{
                           at.shape, arcs, at.template page_elements<weighted_neighbour>(), {at.paging.share_pages, 1}},
                       source, there.data(), before.data());
  });
  return wrong.arcs + wrong.vertices + wrong.not_of_tree + wrong.errors.vertices.count;
}

}  // namespace forebay::graph
