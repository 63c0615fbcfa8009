// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "apps/block_io/run_on.hpp"

namespace forebay::block_io {

launch_result run_on_gpu(storage& drives, workload const& work, apps::io_buffer const& buffer) {
  // A type of its own: the copies take half as many registers again.
  if (!work.lands || !memory::host_reaches(buffer.ref().data())) return run_on<simt::cuda>(drives, work, buffer);
  // Each is a warp, and all must be resident to keep their commands in flight.
  constexpr std::uint32_t threads_max = 1024;
  workload landing = work;
  landing.threads = std::min(work.threads, threads_max);
  return run_on<simt::cuda, true>(drives, landing, buffer);
}

}  // namespace forebay::block_io
