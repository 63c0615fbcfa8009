// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/generate_on.hpp"

namespace forebay::graph {

template generated_lists generate_on<simt::cuda>(graph_options const&, entry_kind, int);

}  // namespace forebay::graph
