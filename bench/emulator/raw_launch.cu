// SPDX-License-Identifier: Apache-2.0
#include "emulator/raw_launch.hpp"
#include "forebay/simt/cuda.hpp"

namespace forebay::bench {

void launch_raw_client(simt::grid const& shape, raw_launch const& what, cudaStream_t stream) {
  simt::launch<simt::cuda>(
      shape,
      raw_client<simt::cuda>{what.queues, what.queue_count, what.buffers, what.bus_offset, what.work, what.result},
      stream);
}

}  // namespace forebay::bench
