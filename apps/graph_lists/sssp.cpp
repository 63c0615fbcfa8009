// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/sssp_on.hpp"

namespace forebay::graph {

template run_errors run_sssp_on<simt::fiber>(placed_lists const&, std::uint32_t, std::uint32_t, found_sssp&);
template std::uint64_t wrong_in_sssp_on<simt::fiber>(placed_lists const&, std::uint32_t, std::span<std::uint64_t const>,
                                                     std::span<std::uint32_t const>);

}  // namespace forebay::graph
