// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/products_on.hpp"

namespace forebay::graph {

template run_errors run_pagerank_on<simt::cuda>(placed_lists const&, std::span<std::uint32_t const>,
                                                pagerank_options const&, found_pagerank&);
template double residual_of_pagerank_on<simt::cuda>(placed_lists const&, std::span<std::uint32_t const>,
                                                    std::span<float const>, pagerank_options const&);
template run_errors run_product_on<simt::cuda>(placed_lists const&, std::span<float const>, found_product&);

}  // namespace forebay::graph
