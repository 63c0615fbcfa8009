// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/triangles_on.hpp"

namespace forebay::graph {

template run_errors run_triangles_on<simt::fiber>(placed_lists const&, found_triangles&);

}  // namespace forebay::graph
