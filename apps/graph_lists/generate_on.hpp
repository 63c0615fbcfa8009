// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/common/executor.hpp"
#include "apps/graph_lists/generate.hpp"

namespace forebay::graph {

template <class M>
generated_lists generate_on(graph_options const& options, entry_kind entry, int gpu) {
  apps::executor<M> const run(gpu);
  generated_lists made;
  auto const build = [&]<class Entry>(Entry) {
    made.row_begin = build_rows<Entry>(run, options, [&](edge_list_piece<Entry> const& piece) {
                       std::size_t const at = made.entries.size();
                       made.entries.resize(at + piece.count * sizeof(Entry));
                       run.memory().copy_out(made.entries.data() + at, piece.entries, piece.count * sizeof(Entry));
                     }).to_host();
  };
  if (entry == entry_kind::weighted) {
    build(weighted_neighbour());
  } else if (entry == entry_kind::wide_id) {
    build(std::uint64_t());
  } else {
    build(std::uint32_t());
  }
  return made;
}

}  // namespace forebay::graph
