// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "apps/common/forget_pages.hpp"
#include "apps/graph/components.hpp"
#include "apps/graph/components_check.hpp"
#include "apps/graph_lists/places.hpp"
#include "forebay/error.hpp"

namespace forebay::graph {

template <class M, class Views>
auto sweep_of(placed_run<M, Views> const& at) {
  auto const neighbours = at.views.template entries<std::uint32_t>();
  return edge_sweep<std::remove_const_t<decltype(neighbours)>>{
      at.shape, neighbours, at.template page_elements<std::uint32_t>(), {at.paging.share_pages, at.paging.window}};
}

template <class M>
run_errors run_components_on(placed_lists const& lists, found_components& found) {
  run_errors errors;
  in_their_place<M>(lists, found.figures, [&](auto const& at) {
    auto const sweep = sweep_of(at);
    components find(at.run, sweep, at.paging.warps_max);
    found.figures.seconds = seconds_of([&] { found.components = find(); });
    found.figures.useful_bytes = lists.entry_count() * sizeof(std::uint32_t);
    errors.lists = find.errors();
    found.labels = find.labels_to_host();
  });
  return errors;
}

template <class M>
std::uint64_t wrong_in_components_on(placed_lists const& lists, std::span<std::uint32_t const> labels) {
  components_wrong wrong;
  in_plain_memory<M>(lists, [&](auto const& at) {
    apps::device_array<std::uint32_t> const of_vertices(at.run.memory(), labels);
    wrong = check_components(at.run, sweep_of(at), of_vertices.data());
  });
  return wrong.arcs + wrong.labels + wrong.apart + wrong.errors.vertices.count;
}

template <class M>
void make_lists_cold(placed_lists const& lists) {
  if (lists.cache_page_bytes == 0) return;
  apps::executor<M> const run(lists.gpu);
  run.beside(*lists.drives, [&] {
    for (extent const* const part : {&lists.on_drives.entries, lists.has_values ? &*lists.on_drives.values : nullptr}) {
      if (part == nullptr) continue;
      auto const ref = lists.drives->template ref<M, cached>(*part);
      apps::device_array<std::uint64_t> const kept(run.memory(), 1);
      std::uint64_t const first = part->first_byte / lists.cache_page_bytes;
      std::uint64_t const last = (part->first_byte + part->size_bytes - 1) / lists.cache_page_bytes;
      run(grid_of_warps(run, run.warps(), ~0u),
          apps::forget_pages<M, std::remove_cvref_t<decltype(ref.cache())>>{ref.cache(), first, last + 1, kept.data()});
      run.synchronize();
      if (kept.to_host()[0] != 0) throw operation_failed("some pages did not leave the cache: other kernels use them");
    }
  });
}

}  // namespace forebay::graph
