// SPDX-License-Identifier: Apache-2.0
#include "apps/search/run_exact_on.hpp"

namespace forebay::search {

template search_found run_exact_on<simt::cuda>(placed_exact_index const&, query_set const&, exact_options const&);

}  // namespace forebay::search
