// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `graph::run_bfs` that each machine compiles for itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/direct_view.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/run_bfs.hpp"
#include "forebay/status.hpp"
#include "forebay/storage.hpp"

namespace forebay::graph {

/// A search whose input has been checked.
struct bfs_request {
  extent edges;
  std::span<std::uint64_t const> row_begin;
  std::uint32_t source;
  std::uint32_t iodepth;
  std::uint64_t request_bytes;
  std::uint64_t timeout_ns;
};

/// The results of the launches, errors included.
struct bfs_outcome {
  bfs_result result;
  std::uint64_t errors = 0;
  status error;                     ///< one of them
  std::uint64_t bad_neighbour = 0;  ///< an id that names no vertex; 0: all do
};

/// Searches level by level, from above: the graph may be directed.
template <class M>
bfs_outcome run_on(storage& drives, bfs_request const& request, bfs_progress const& tell) {
  std::uint32_t const warps = (request.iodepth + 31) / 32;
  std::size_t const pieces = std::size_t{warps} * 32;
  apps::io_buffer const buffer(drives, pieces * request.request_bytes);
  auto const ref = drives.template ref<M>(request.edges);
  using view_type = apps::direct_view<std::uint32_t, std::remove_const_t<decltype(ref)>,
                                      std::remove_cvref_t<decltype(buffer.ref())>, true>;

  apps::executor<M> const run(drives.gpu_ordinal());
  bfs_outcome out;
  run.beside(drives, [&] {
    apps::device_array<std::uint64_t> const row_begin(run.memory(), request.row_begin);
    apps::device_array<apps::direct_reads> const reads(run.memory(), std::vector<apps::direct_reads>(pieces));
    apps::device_array<std::uint64_t> const bins(run.memory(), apps::latency_bins::count);
    view_type const neighbours(
        ref, buffer.ref(), request.row_begin.back(), static_cast<std::uint32_t>(drives.block_bytes()),
        static_cast<std::uint32_t>(request.request_bytes), request.timeout_ns, reads.data(), bins.data());
    bfs<apps::executor<M>, view_type, 0, true> search(
        run, {static_cast<std::uint32_t>(request.row_begin.size() - 1), request.row_begin.back(), row_begin.data()},
        neighbours,
        {.page_elements = static_cast<std::uint32_t>(request.request_bytes / sizeof(std::uint32_t)),
         .at_a_time = request.iodepth / warps,
         .warps_max = warps});
    std::uint32_t level = 0;
    auto const begin = std::chrono::steady_clock::now();
    out.result.frontiers = search(request.source, {bfs_direction::from_above}, [&](bfs_level const& known) {
      out.result.useful_bytes += known.entries * sizeof(std::uint32_t);
      if (tell) tell(level++, known.vertices);
    });
    out.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

    out.errors = search.failures().failures;
    out.error = status::from_bits(search.failures().status_bits);
    out.bad_neighbour = search.bad_neighbour();
    out.result.distances = search.distances_to_host();
    out.result.predecessors = search.predecessors_to_host();
    out.result.latency.bins = bins.to_host();
    for (apps::direct_reads const& r : reads.to_host()) {
      out.result.latency.summary.merge(r.latency);
      out.result.read_bytes += r.bytes;
    }
  });
  out.result.reads = out.result.latency.summary.count;
  out.result.request_bytes = request.request_bytes;
  return out;
}

/// On the GPU of `drives`. Defined where CUDA is built in.
bfs_outcome run_on_gpu(storage& drives, bfs_request const& request, bfs_progress const& tell);

}  // namespace forebay::graph
