// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/bfs_on.hpp"

namespace forebay::graph {

template run_errors run_bfs_on<simt::cuda>(placed_lists const&, std::uint32_t, bfs_direction, level_listener const&,
                                           found_bfs&);
template run_errors run_plain_bfs_on<simt::cuda>(placed_lists const&, std::uint32_t, found_bfs&);
template std::uint64_t wrong_in_bfs_on<simt::cuda>(placed_lists const&, std::uint32_t, std::span<std::uint32_t const>,
                                                   std::span<std::uint32_t const>);

}  // namespace forebay::graph
