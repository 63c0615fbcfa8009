// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/components_on.hpp"

namespace forebay::graph {

template run_errors run_components_on<simt::fiber>(placed_lists const&, found_components&);
template std::uint64_t wrong_in_components_on<simt::fiber>(placed_lists const&, std::span<std::uint32_t const>);
template void make_lists_cold<simt::fiber>(placed_lists const&);

}  // namespace forebay::graph
