// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `block_io::run` that each machine compiles for itself.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/block_io/kernel.hpp"
#include "apps/block_io/launch_result.hpp"
#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/common/latency_histogram.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"

namespace forebay::block_io {

/// Runs the threads of `work` to their end. `buffer` has its blocks; see `kernel` for `Lands`.
template <class M, bool Lands = false>
launch_result run_on(storage& drives, workload const& work, apps::io_buffer const& buffer) {
  auto const ref = drives.template ref<M>();
  using kernel_type = kernel<M, std::remove_const_t<decltype(ref)>, std::remove_cvref_t<decltype(buffer.ref())>, Lands>;

  apps::executor<M> const run(drives.gpu_ordinal());
  memory::resource& from = run.memory();
  apps::device_array<control> shared(from, 1);
  apps::device_array<typename kernel_type::slot_type> slots(from, work.iodepth);
  apps::device_array<thread_result> results(from, std::vector<thread_result>(work.threads));
  apps::device_array<std::uint64_t> read_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint64_t> write_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint32_t> written(from, work.region_bytes / work.block_bytes / 32 + 1);
  memory::allocation landing;
  if constexpr (Lands) landing = memory::allocation(from, work.iodepth * work.block_bytes, 128);

  kernel_type const threads{ref,
                            buffer.ref(),
                            landing.as<std::byte>(),
                            work,
                            shared.data(),
                            slots.data(),
                            results.data(),
                            read_bins.data(),
                            write_bins.data(),
                            written.data()};
  if constexpr (Lands) {
    run.warps(drives, work.threads, threads);
  } else {
    run.threads(drives, work.threads, threads);
  }

  launch_result total;
  total.threads = work.threads;
  total.epoch_ns = shared.to_host()[0].epoch_ns;
  for (thread_result const& r : results.to_host()) total.merge(r);
  total.read.completion.bins = read_bins.to_host();
  total.write.completion.bins = write_bins.to_host();
  total.written = written.to_host();
  return total;
}

/// On the GPU of `drives`. Defined where CUDA is built in.
launch_result run_on_gpu(storage& drives, workload const& work, apps::io_buffer const& buffer);

}  // namespace forebay::block_io
