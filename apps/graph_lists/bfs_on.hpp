// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "apps/graph/bfs.hpp"
#include "apps/graph/bfs_check.hpp"
#include "apps/graph/plain_bfs.hpp"
#include "apps/graph_lists/places.hpp"

namespace forebay::graph {

template <class Id, class M, class Views>
run_errors search_with(placed_run<M, Views> const& at, std::uint32_t source, bfs_direction how,
                       level_listener const& tell, found_bfs& found) {
  auto const neighbours = at.views.template entries<Id>();
  bfs<apps::executor<M>, std::remove_const_t<decltype(neighbours)>, 0, true> search(
      at.run, at.shape, neighbours,
      {.page_elements = at.template page_elements<Id>(),
       .at_a_time = at.paging.at_a_time,
       .warps_max = at.paging.warps_max,
       .ordered_min = at.paging.is_far ? 4096u : ~0u});
  auto begin = std::chrono::steady_clock::now();
  found.figures.seconds = seconds_of([&] {
    search(source, {how, at.paging.share_pages, at.paging.window}, [&](bfs_level const& level) {
      auto const now = std::chrono::steady_clock::now();
      found.levels.push_back({level.vertices, level.entries, level.from_below,
                              std::chrono::duration<double>(now - std::exchange(begin, now)).count()});
      found.figures.useful_bytes += level.entries * sizeof(Id);
      if (tell) tell(static_cast<std::uint32_t>(found.levels.size() - 1), level.vertices);
    });
  });
  found.distances = search.distances_to_host();
  found.predecessors = search.predecessors_to_host();
  run_errors errors;
  errors.lists.failure = search.failures();
  errors.bad_neighbour = search.bad_neighbour();
  return errors;
}

template <class M>
run_errors run_bfs_on(placed_lists const& lists, std::uint32_t source, bfs_direction how, level_listener const& tell,
                      found_bfs& found) {
  run_errors errors;
  in_their_place<M>(lists, found.figures, [&]<class Views>(placed_run<M, Views> const& at) {
    if (lists.entry == entry_kind::wide_id) {
      // Lists on drives have ids of 4 bytes.
      if constexpr (std::is_same_v<Views, memory_place_views<M>> || std::is_same_v<Views, external_place_views<M>>) {
        errors = search_with<std::uint64_t>(at, source, how, tell, found);
      }
    } else {
      errors = search_with<std::uint32_t>(at, source, how, tell, found);
    }
  });
  return errors;
}

/// The time to set all vertices back does not count.
template <class M>
run_errors run_plain_bfs_on(placed_lists const& lists, std::uint32_t source, found_bfs& found) {
  run_errors errors;
  in_their_place<M>(lists, found.figures, [&]<class Views>(placed_run<M, Views> const& at) {
    // Past the cache there is no `[]`.
    if constexpr (!std::is_same_v<Views, direct_place_views<M>>) {
      auto const neighbours = at.views.template entries<std::uint32_t>();
      plain_bfs<apps::executor<M>, std::remove_const_t<decltype(neighbours)>> search(at.run, at.shape, neighbours);
      auto begin = std::chrono::steady_clock::now();
      auto const seconds_since_last = [&] {
        auto const now = std::chrono::steady_clock::now();
        return std::chrono::duration<double>(now - std::exchange(begin, now)).count();
      };
      search(source, [&](std::uint64_t vertices) {
        double const seconds = seconds_since_last();
        if (!found.levels.empty()) found.figures.seconds += seconds;
        found.levels.push_back({vertices, 0, false, found.levels.empty() ? 0 : seconds});
      });
      found.figures.seconds += seconds_since_last();
      found.distances = search.distances_to_host();
      found.predecessors = search.predecessors_to_host();
      errors.bad_neighbour = search.bad_ids();
    }
  });
  for (std::size_t v = 0; v < found.distances.size(); ++v) {
    if (found.distances[v] == bfs_unreached) continue;
    std::uint64_t const entries = lists.row_begin[v + 1] - lists.row_begin[v];
    found.figures.useful_bytes += entries * sizeof(std::uint32_t);
    found.levels[found.distances[v]].entries += entries;
  }
  return errors;
}

template <class Id, class M, class Views>
bfs_wrong check_search(placed_run<M, Views> const& at, std::uint32_t source, std::uint32_t const* distances,
                       std::uint32_t const* predecessors) {
  auto const neighbours = at.views.template entries<Id>();
  return check_bfs(at.run,
                   edge_sweep<std::remove_const_t<decltype(neighbours)>>{
                       at.shape, neighbours, at.template page_elements<Id>(), {at.paging.share_pages, 1}},
                   source, distances, predecessors);
}

template <class M>
std::uint64_t wrong_in_bfs_on(placed_lists const& lists, std::uint32_t source, std::span<std::uint32_t const> distances,
                              std::span<std::uint32_t const> predecessors) {
  bfs_wrong wrong;
  in_plain_memory<M>(lists, [&](auto const& at) {
    apps::device_array<std::uint32_t> const there(at.run.memory(), distances), before(at.run.memory(), predecessors);
    wrong = lists.entry == entry_kind::wide_id ? check_search<std::uint64_t>(at, source, there.data(), before.data())
                                               : check_search<std::uint32_t>(at, source, there.data(), before.data());
  });
  return wrong.arcs + wrong.vertices + wrong.errors.vertices.count;
}

}  // namespace forebay::graph
