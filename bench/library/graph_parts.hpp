// SPDX-License-Identifier: Apache-2.0
//! \file
//! A graph in the memory of a GPU, and the code that times and checks work on it, over any view of its columns and
//! values. For CUDA sources.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/bfs_check.hpp"
#include "apps/graph/build.hpp"
#include "apps/graph/spmv.hpp"
#include "forebay/cuda_stream.hpp"
#include "harness/event_timer.hpp"
#include "library/graph_bench.hpp"

namespace forebay::bench {

/// Belongs to a `graph_on_gpu`.
struct graph_parts {
  apps::executor<simt::cuda> const& run;
  graph::csr_graph const& graph;
  float const* x;
  float* y;

  graph::spmv_shape spmv_of() const { return {graph.vertices(), graph.entries(), graph.row_begin.data()}; }
  graph::graph_shape bfs_of() const { return {graph.vertices(), graph.entries(), graph.row_begin.data()}; }
};

/// So that the result of an earlier product is not taken for that of a product which computes nothing.
inline void forget_product(graph_parts const& parts) {
  memory::check_cuda(cudaMemsetAsync(parts.y, 0xff, parts.graph.vertices() * sizeof(float), parts.run.stream().get()),
                     "cudaMemsetAsync");
}

/// `product` is a `spmv` of the parts' graph.
template <class Product>
double timed_product(graph_parts const& parts, Product const& product) {
  forget_product(parts);
  return seconds_of(parts.run.stream(), [&] { product(parts.x, parts.y); });
}

/// `search` is a `bfs` of the parts' graph. The time in which the host looks at results between levels counts.
template <class Search>
bfs_timing timed_search(graph_parts const& parts, Search& search, std::uint32_t source, graph::bfs_how const& how) {
  bfs_timing timing{};
  timing.seconds = seconds_of(parts.run.stream(), [&] { timing.levels = search(source, how); });
  std::vector<std::uint64_t> const begins = parts.graph.row_begin.to_host();
  std::vector<std::uint32_t> const distances = search.distances_to_host();
  for (std::size_t v = 0; v < distances.size(); ++v) {
    if (distances[v] != graph::bfs_unreached) timing.entries += begins[v + 1] - begins[v];
  }
  return timing;
}

/// The count of a checking kernel.
template <class KernelFor>
std::uint64_t counted(graph_parts const& parts, KernelFor&& kernel_for) {
  apps::device_array<std::uint64_t> const wrong(parts.run.memory(), 1);
  parts.run({.blocks = parts.run.warps() / 4, .threads_per_block = 128}, kernel_for(wrong.data()));
  parts.run.synchronize();
  return wrong.to_host()[0];
}

/// Of the last product.
inline std::uint64_t wrong_rows(graph_parts const& parts) {
  return counted(parts, [&](std::uint64_t* wrong) {
    return graph::spmv_check<simt::cuda>{
        parts.spmv_of(), parts.graph.columns.data(), parts.graph.values.data(), parts.x, parts.y, wrong};
  });
}

/// Of the arcs and the vertices together.
inline std::uint64_t wrong_vertices(graph_parts const& parts, std::uint32_t source, std::uint32_t const* distances) {
  apps::memory_view<std::uint32_t> const neighbours(parts.graph.columns.data(), parts.graph.entries());
  graph::bfs_wrong const wrong =
      graph::check_bfs(parts.run, graph::edge_sweep<apps::memory_view<std::uint32_t>>{parts.bfs_of(), neighbours, 1024},
                       source, distances, nullptr);
  return wrong.arcs + wrong.vertices + wrong.errors.vertices.count;
}

}  // namespace forebay::bench
