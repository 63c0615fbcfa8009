// SPDX-License-Identifier: Apache-2.0
#include "apps/block_io/run_on.hpp"

namespace forebay::block_io {

launch_result run_on_gpu(storage& drives, workload const& work) {
  return run_on<simt::cuda>(drives, work);
}

}  // namespace forebay::block_io
