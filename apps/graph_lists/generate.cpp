// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/generate_on.hpp"

namespace forebay::graph {

#ifdef FOREBAY_HAS_CUDA
extern template generated_lists generate_on<simt::cuda>(graph_options const&, entry_kind, int);
#endif

generated_lists generate(graph_options const& options, entry_kind entry, int gpu) {
#ifdef FOREBAY_HAS_CUDA
  if (gpu >= 0) return generate_on<simt::cuda>(options, entry, gpu);
#endif
  return generate_on<simt::fiber>(options, entry, gpu);
}

}  // namespace forebay::graph
