// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `replay::run` that each machine compiles for itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "apps/common/command_latencies.hpp"
#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/common/latency_histogram.hpp"
#include "apps/replay/kernel.hpp"
#include "apps/replay/operation.hpp"
#include "apps/replay/replay.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"

namespace forebay::replay {

/// Replays checked operations on a storage of `region_bytes` bytes. Adds the threads' counts to `out`.
template <class M>
void run_on(storage& drives, std::span<operation const> operations, workload const& work, std::uint64_t region_bytes,
            result& out) {
  apps::io_buffer const buffer(drives, work.iodepth * work.slot_bytes);
  auto const ref = drives.template ref<M>();
  using kernel_type = kernel<M, std::remove_const_t<decltype(ref)>, std::remove_cvref_t<decltype(buffer.ref())>>;

  apps::executor<M> const run(drives.gpu_ordinal());
  memory::resource& from = run.memory();
  apps::device_array<operation> trace(from, operations);
  apps::device_array<control> shared(from, 1);
  apps::device_array<typename kernel_type::slot_type> slots(from, work.iodepth);
  apps::device_array<thread_result> results(from, std::vector<thread_result>(work.threads));
  apps::device_array<std::uint64_t> read_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint64_t> write_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint64_t> flush_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint64_t> lag_bins(from, apps::latency_bins::count);
  apps::device_array<std::uint32_t> written(from, work.verify ? region_bytes / work.block_bytes / 32 + 1 : 0);
  apps::device_array<std::uint32_t> written_before(from, work.verify ? work.iodepth * work.snapshot_words() : 0);

  run.threads(drives, work.threads,
              kernel_type{ref,
                          buffer.ref(),
                          work,
                          trace.data(),
                          shared.data(),
                          slots.data(),
                          results.data(),
                          {read_bins.data(), write_bins.data(), flush_bins.data(), lag_bins.data()},
                          written.data(),
                          written_before.data()});

  std::uint64_t const epoch_ns = shared.to_host()[0].epoch_ns;
  std::uint64_t last_completion_ns = epoch_ns;
  out.first_mismatch_byte = ~std::uint64_t{0};
  for (thread_result const& r : results.to_host()) {
    out.read.merge(r.read);
    out.write.merge(r.write);
    out.flush.merge(r.flush);
    out.lag.summary.merge(r.lag);
    out.above_bound += r.above_bound;
    out.completed.read_bytes += r.read_bytes;
    out.completed.write_bytes += r.write_bytes;
    out.verified_blocks += r.verified_blocks;
    out.mismatches += r.mismatches;
    out.first_mismatch_byte = std::min(out.first_mismatch_byte, r.first_mismatch_byte);
    if (out.errors == 0) {
      out.first_error = r.first_error;
      out.first_error_line = r.first_error_line;
    }
    out.errors += r.errors;
    last_completion_ns = std::max(last_completion_ns, r.last_completion_ns);
  }
  out.read.completion.bins = read_bins.to_host();
  out.write.completion.bins = write_bins.to_host();
  out.flush.completion.bins = flush_bins.to_host();
  out.lag.bins = lag_bins.to_host();
  out.completed.reads = out.read.completion.summary.count;
  out.completed.writes = out.write.completion.summary.count;
  out.completed.flushes = out.flush.completion.summary.count;
  out.seconds = static_cast<double>(last_completion_ns - epoch_ns) * 1e-9;
}

/// On the GPU of `drives`. Defined where CUDA is built in.
void run_on_gpu(storage& drives, std::span<operation const> operations, workload const& work,
                std::uint64_t region_bytes, result& out);

}  // namespace forebay::replay
