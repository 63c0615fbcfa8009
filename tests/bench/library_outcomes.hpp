// SPDX-License-Identifier: Apache-2.0
//! \file
//! The results of the applications of the library, on any executor; and the same on GPU 0, for sources that nvcc does
//! not compile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/build.hpp"
#include "apps/graph/spmv.hpp"
#include "apps/recommender/dlrm.hpp"
#include "apps/recommender/trace.hpp"

namespace forebay::bench {

using namespace recommender;

struct host_graph {
  std::vector<std::uint64_t> row_begin;
  std::vector<std::uint32_t> columns;
  std::vector<float> values;
  bool operator==(host_graph const&) const = default;
};

template <class Executor>
host_graph graph_of(Executor const& run, graph::graph_options const& o) {
  graph::csr_graph const graph = graph::build_graph(run, o);
  return {graph.row_begin.to_host(), graph.columns.to_host(), graph.values.to_host()};
}

/// The library or code that computes products.
inline std::vector<float> harmonic(std::size_t size) {
  std::vector<float> x(size);
  for (std::size_t i = 0; i < size; ++i) x[i] = 1.0f / static_cast<float>(i + 1);
  return x;
}

template <std::uint32_t Tile, std::uint32_t RowLanes, class Executor>
std::vector<float> product_of(Executor const& run, graph::graph_options const& o) {
  graph::csr_graph const graph = graph::build_graph(run, o);
  apps::device_array<float> const x(run.memory(), harmonic(graph.vertices())), y(run.memory(), graph.vertices());
  graph::spmv<Executor, apps::memory_view<std::uint32_t>, apps::memory_view<float>, Tile, RowLanes> const work(
      run, {graph.vertices(), graph.entries(), graph.row_begin.data()},
      apps::memory_view<std::uint32_t>(graph.columns.data(), graph.entries()),
      apps::memory_view<float>(graph.values.data(), graph.entries()), 1024);
  work(x.data(), y.data());
  run.synchronize();
  if (work.failures().failures != 0) throw std::runtime_error("a view of plain memory failed");
  return y.to_host();
}

template <class Executor>
std::vector<std::uint32_t> distances_of(Executor const& run, graph::graph_options const& o,
                                        std::uint32_t page_elements) {
  graph::csr_graph const graph = graph::build_graph(run, o);
  graph::bfs<Executor, apps::memory_view<std::uint32_t>> work(
      run, {graph.vertices(), graph.entries(), graph.row_begin.data()},
      apps::memory_view<std::uint32_t>(graph.columns.data(), graph.entries()), {.page_elements = page_elements});
  work(graph.columns.to_host(1)[0]);
  return work.distances_to_host();
}

struct inferred {
  std::vector<float> in_turn, ahead;
};

template <class Executor, class Products>
inferred clicks_of(Executor const& run, Executor const& side, Products const& products) {
  dlrm_config const c{.floats = 64, .bottom_layers = 2, .bottom_width = 48, .top_layers = 2, .top_width = 40};
  dlrm_trace const trace = make_zipf_trace({.samples = 100, .rows_max = 500, .seed = 9});
  apps::device_array<dlrm_quad> const table(run.memory(), trace.rows_of_all_tables() * c.floats / 4);
  using M = typename Executor::machine;
  run({.blocks = 4, .threads_per_block = 64},
      dlrm_fill_table<M>{0, table.size() * 4, reinterpret_cast<float*>(table.data())});
  dlrm<Executor, apps::memory_view<dlrm_quad>, Products> const model(
      run, side, products, c, apps::memory_view<dlrm_quad>(table.data(), table.size()), table.size(), 32);
  apps::device_array<std::uint32_t> const rows(run.memory(), trace.rows_in_one_table());
  apps::device_array<float> const dense(run.memory(), trace.dense_values), clicks(run.memory(), trace.samples());
  std::vector<dlrm_batch> batches;
  for (std::uint32_t s = 0; s < 100; s += 32) {
    batches.push_back(
        {std::min(32u, 100 - s), rows.data() + s * c.tables, dense.data() + s * c.dense, clicks.data() + s});
  }
  inferred out;
  model.run_in_turn(batches);
  run.synchronize();
  out.in_turn = clicks.to_host();
  model.run_ahead(batches);
  run.synchronize();
  out.ahead = clicks.to_host();
  return out;
}

/// These throw `operation_failed` if cuSPARSE or cuBLAS is asked for and is not there.
namespace on_gpu {
host_graph graph(graph::graph_options const& o);
/// Tiles of 256 with 1 lane a row, 512 with 4 and 1024 with 8.
std::vector<float> product(graph::graph_options const& o, std::uint32_t tile);
std::vector<float> cusparse_product(graph::graph_options const& o, int algorithm);
std::vector<std::uint32_t> distances(graph::graph_options const& o, std::uint32_t page_elements);
inferred clicks(bool with_cublas);
struct mean_of {
  double computed, exact;
};
mean_of mean(std::uint64_t elements);
}  // namespace on_gpu

}  // namespace forebay::bench
