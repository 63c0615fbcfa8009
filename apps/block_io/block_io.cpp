// SPDX-License-Identifier: Apache-2.0
#include "apps/block_io/block_io.hpp"

#include "apps/block_io/job.hpp"
#include "apps/block_io/run_on.hpp"

namespace forebay::block_io {
namespace {

launch_result launch(storage& drives, workload const& work) {
  apps::io_buffer const buffer(drives, work.iodepth * work.block_bytes);
#ifdef FOREBAY_HAS_CUDA
  if (drives.on_gpu()) return run_on_gpu(drives, work, buffer);
#endif
  // One thread needs no fiber, whose every access to memory takes longer.
  if (work.threads == 1) return run_on<simt::native>(drives, work, buffer);
  return run_on<simt::fiber>(drives, work, buffer);
}

}  // namespace

result run(storage& drives, options const& wanted, progress const& tell) {
  workload const work = validated(wanted, {"drives", drives.size_bytes(), drives.block_bytes()});
  // Otherwise the run would measure the first access of each page, and reads of pages that do not exist yet.
  bool const populated = drives.populate(work.region_bytes);
  job const on_drives{
      .read = [&](void* to, std::uint64_t bytes, std::uint64_t at) { drives.pread(to, bytes, at); },
      .write = [&](void const* from, std::uint64_t bytes, std::uint64_t at) { drives.pwrite(from, bytes, at); },
      .launch =
          [&] {
            drives.reset_statistics();
            return launch(drives, work);
          },
  };
  result r = run(on_drives, work, tell);
  r.populated = populated;
  return r;
}

}  // namespace forebay::block_io
