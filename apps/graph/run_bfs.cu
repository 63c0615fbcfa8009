// SPDX-License-Identifier: Apache-2.0
#include "apps/graph/run_on.hpp"

namespace forebay::graph {

bfs_outcome run_on_gpu(storage& drives, bfs_request const& request, bfs_progress const& tell) {
  return run_on<simt::cuda>(drives, request, tell);
}

}  // namespace forebay::graph
