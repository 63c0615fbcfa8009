// SPDX-License-Identifier: Apache-2.0
#include "forebay/memory/cuda_stream.hpp"
#include "forebay/memory/resource.hpp"
#include "forebay/queue/drain.hpp"
#include "forebay/simt/cuda.hpp"
#include "storage/drain_on_gpu.hpp"

namespace forebay::detail {

bool drain_on_gpu(io_queues const& queues, int ordinal, std::uint64_t timeout_ns) {
  memory::allocation busy(memory::pinned(), sizeof(std::uint32_t), 128);
  memory::cuda_stream const stream(ordinal);
  simt::launch<simt::cuda>({.blocks = (queues.pair_count() + 31) / 32, .threads_per_block = 32},
                           drain_kernel<simt::cuda>{queues.ref<simt::cuda>(), timeout_ns, busy.as<std::uint32_t>()},
                           stream.get());
  stream.synchronize();
  return *busy.as<std::uint32_t>() == 0;
}

}  // namespace forebay::detail
