// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `graph::run_bfs` that each machine compiles for itself.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/bfs_level.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"

namespace forebay::graph {

/// A search whose input has been checked.
struct bfs_request {
  extent edges;
  std::span<std::uint64_t const> row_begin;
  std::uint32_t source;
  std::uint32_t threads;
  std::uint32_t reads_per_thread;
  std::uint64_t request_bytes;
  std::uint64_t timeout_ns;
};

/// The results of the launches, errors included.
struct bfs_outcome {
  bfs_result result;
  std::uint64_t errors = 0;
  status first_error;
  std::uint64_t bad_neighbours = 0;
  std::uint32_t first_bad_neighbour = 0;
};

/// Searches level by level, with one launch for each level.
template <class M>
bfs_outcome run_on(storage& drives, bfs_request const& request, bfs_progress const& tell) {
  std::size_t const reads_in_flight = std::size_t{request.threads} * request.reads_per_thread;
  apps::io_buffer const buffer(drives, reads_in_flight * request.request_bytes);
  auto const ref = drives.template ref<M>(request.edges);
  using level_type = bfs_level<M, std::remove_const_t<decltype(ref)>, std::remove_cvref_t<decltype(buffer.ref())>>;

  apps::executor<M> const run(drives.gpu_ordinal());
  memory::resource& from = run.memory();
  auto const vertices = static_cast<std::uint32_t>(request.row_begin.size() - 1);
  bfs_outcome out;
  out.result.distances.assign(vertices, unreached);
  out.result.distances[request.source] = 0;

  apps::device_array<std::uint64_t> row_begin(from, request.row_begin);
  apps::device_array<std::uint32_t> distances(from, out.result.distances);
  apps::device_array<std::uint32_t> frontier(from, vertices), next_frontier(from, vertices);
  frontier.assign(std::vector<std::uint32_t>{request.source});
  apps::device_array<level_control> control(from, 1);
  apps::device_array<typename level_type::read_type> reads(from, reads_in_flight);
  apps::device_array<thread_result> results(from, std::vector<thread_result>(request.threads));
  apps::device_array<std::uint64_t> bins(from, apps::latency_bins::count);

  level_type level{.storage = ref,
                   .buffer = buffer.ref(),
                   .alignment_bytes = drives.block_bytes(),
                   .request_bytes = request.request_bytes,
                   .timeout_ns = request.timeout_ns,
                   .threads = request.threads,
                   .reads_per_thread = request.reads_per_thread,
                   .vertices = vertices,
                   .level = 0,
                   .frontier_size = 1,
                   .row_begin = row_begin.data(),
                   .distances = distances.data(),
                   .frontier = frontier.data(),
                   .next_frontier = next_frontier.data(),
                   .control = control.data(),
                   .reads = reads.data(),
                   .results = results.data(),
                   .latency_bins = bins.data()};
  auto const begin = std::chrono::steady_clock::now();
  for (; level.frontier_size != 0; ++level.level) {
    out.result.frontiers.push_back(level.frontier_size);
    if (tell) tell(level.level, level.frontier_size);
    control.assign(std::vector<level_control>(1));
    run.threads(drives, request.threads, level);
    level_control const after = control.to_host()[0];
    if (after.stop != 0) break;
    level.frontier_size = after.next_size;
    std::swap(frontier, next_frontier);
    level.frontier = frontier.data();
    level.next_frontier = next_frontier.data();
  }
  out.result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  out.result.distances = distances.to_host();
  out.result.latency.bins = bins.to_host();
  for (thread_result const& r : results.to_host()) {
    out.result.latency.summary.merge(r.latency);
    out.result.read_bytes += r.read_bytes;
    out.result.useful_bytes += r.useful_bytes;
    if (out.errors == 0) out.first_error = r.first_error;
    if (out.bad_neighbours == 0) out.first_bad_neighbour = r.first_bad_neighbour;
    out.errors += r.errors;
    out.bad_neighbours += r.bad_neighbours;
  }
  out.result.reads = out.result.latency.summary.count;
  out.result.threads = request.threads;
  out.result.reads_per_thread = request.reads_per_thread;
  out.result.request_bytes = request.request_bytes;
  return out;
}

/// On the GPU of `drives`. Defined where CUDA is built in.
bfs_outcome run_on_gpu(storage& drives, bfs_request const& request, bfs_progress const& tell);

}  // namespace forebay::graph
