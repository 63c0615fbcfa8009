// SPDX-License-Identifier: Apache-2.0
//! \file
//! Graphs that a device generates and the host then has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apps/graph/build.hpp"
#include "apps/graph_lists/lists.hpp"

namespace forebay::graph {

struct generated_lists {
  std::vector<std::uint64_t> row_begin;
  std::vector<std::byte> entries;
};

/// On GPU `gpu`, or the CPU executor if it is negative. Throws `refused_input` as `build_rows` does, and what the
/// memory of the device throws.
generated_lists generate(graph_options const& options, entry_kind entry, int gpu);

template <class M>
generated_lists generate_on(graph_options const& options, entry_kind entry, int gpu);

}  // namespace forebay::graph
