// SPDX-License-Identifier: Apache-2.0
#include "apps/replay/run_on.hpp"

namespace forebay::replay {

void run_on_gpu(storage& drives, std::span<operation const> operations, workload const& work,
                std::uint64_t region_bytes, result& out) {
  run_on<simt::cuda>(drives, operations, work, region_bytes, out);
}

}  // namespace forebay::replay
