// SPDX-License-Identifier: Apache-2.0
#include "apps/search/run_pq_on.hpp"

namespace forebay::search {

template <>
block_room room_for<simt::fiber>(int /*gpu*/, std::uint32_t /*warp_bytes*/) {
  // More queries at a time would only wait for the cores.
  return {.bytes_max = 1 << 20, .blocks = 16};
}

template search_found run_pq_on<simt::fiber>(placed_index const&, query_set const&, search_options const&);

}  // namespace forebay::search
