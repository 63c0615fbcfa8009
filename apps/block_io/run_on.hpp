// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `block_io::run` that each machine compiles for itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/block_io/block_io.hpp"
#include "apps/block_io/kernel.hpp"
#include "apps/common/command_latencies.hpp"
#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/common/latency_histogram.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"

namespace forebay::block_io {

/// What the threads of one launch counted, together.
struct launch_result {
  apps::command_latencies read;
  apps::command_latencies write;
  std::uint64_t epoch_ns = 0;
  std::uint64_t last_completion_ns = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t first_mismatch_byte = ~std::uint64_t{0};
  std::uint64_t errors = 0;
  status first_error;
  std::vector<std::uint32_t> written;  ///< one bit a block of the region
};

/// Runs the threads of `work` to their end.
template <class M>
launch_result run_on(storage& drives, workload const& work) {
  apps::io_buffer const buffer(drives, work.iodepth * work.block_bytes);
  auto const ref = drives.template ref<M>();
  using kernel_type = kernel<M, std::remove_const_t<decltype(ref)>, std::remove_cvref_t<decltype(buffer.ref())>>;

  apps::executor<M> const run(drives.gpu_ordinal());
  memory::resource& from = run.memory();
  apps::device_array<control> shared(from, 1);
  apps::device_array<typename kernel_type::slot_type> slots(from, work.iodepth);
  apps::device_array<thread_result> results(from, std::vector<thread_result>(work.threads));
  apps::device_array<std::uint64_t> read_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint64_t> write_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint32_t> written(from, work.region_bytes / work.block_bytes / 32 + 1);

  run.threads(drives, work.threads,
              kernel_type{ref, buffer.ref(), work, shared.data(), slots.data(), results.data(), read_bins.data(),
                          write_bins.data(), written.data()});

  launch_result total;
  total.epoch_ns = shared.to_host()[0].epoch_ns;
  for (thread_result const& r : results.to_host()) {
    total.read.merge(r.read);
    total.write.merge(r.write);
    total.last_completion_ns = std::max(total.last_completion_ns, r.last_completion_ns);
    total.mismatches += r.mismatches;
    total.first_mismatch_byte = std::min(total.first_mismatch_byte, r.first_mismatch_byte);
    if (total.errors == 0) total.first_error = r.first_error;
    total.errors += r.errors;
  }
  total.read.completion.bins = read_bins.to_host();
  total.write.completion.bins = write_bins.to_host();
  total.written = written.to_host();
  return total;
}

/// On the GPU of `drives`. Defined where CUDA is built in.
launch_result run_on_gpu(storage& drives, workload const& work);

}  // namespace forebay::block_io
