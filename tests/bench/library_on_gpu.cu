// SPDX-License-Identifier: Apache-2.0
#include "apps/common/executor.hpp"
#include "apps/recommender/cublas.hpp"
#include "bench/library_outcomes.hpp"
#include "forebay/error.hpp"
#include "library/mean.hpp"
#include "library/spmv_cusparse.hpp"

namespace forebay::bench::on_gpu {

using apps::device_array;
using gpu_executor = apps::executor<simt::cuda>;

host_graph graph(graph::graph_options const& o) {
  return graph_of(gpu_executor(0), o);
}

std::vector<float> product(graph::graph_options const& o, std::uint32_t tile) {
  gpu_executor const run(0);
  if (tile == 256) return product_of<256, 1>(run, o);
  if (tile == 512) return product_of<512, 4>(run, o);
  return product_of<1024, 8>(run, o);
}

std::vector<float> cusparse_product(graph::graph_options const& o, int algorithm) {
  gpu_executor const run(0);
  graph::csr_graph const graph = graph::build_graph(run, o);
  std::vector<std::int32_t> begins;
  for (std::uint64_t const b : graph.row_begin.to_host()) begins.push_back(static_cast<std::int32_t>(b));
  device_array<std::int32_t> const row_begin(run.memory(), begins);
  device_array<float> const x(run.memory(), harmonic(graph.vertices())), y(run.memory(), graph.vertices());
  cusparse_spmv const work(run.stream().get(), run.memory(),
                           {graph.vertices(), static_cast<std::int64_t>(graph.entries()), row_begin.data(),
                            graph.columns.data(), graph.values.data()},
                           x.data(), y.data(), algorithm == 1 ? cusparse_algorithm::csr_1 : cusparse_algorithm::csr_2);
  work();
  run.synchronize();
  return y.to_host();
}

std::vector<std::uint32_t> distances(graph::graph_options const& o, std::uint32_t page_elements) {
  return distances_of(gpu_executor(0), o, page_elements);
}

inferred clicks(bool with_cublas) {
  gpu_executor const run(0), side(0);
  if (!with_cublas) return clicks_of(run, side, dlrm_naive_products<gpu_executor>(run));
  return clicks_of(run, side, dlrm_cublas(run.stream().get(), run.memory(), cublas_math::fp32));
}

mean_of mean(std::uint64_t elements) {
  gpu_executor const run(0);
  device_array<float> const vector(run.memory(), elements);
  device_array<std::uint64_t> const sum(run.memory(), 1);
  run({.blocks = 8, .threads_per_block = 256}, mean_fill<simt::cuda>{0, elements, vector.data()});
  run({.blocks = 8, .threads_per_block = 256}, mean_exact<simt::cuda>{elements, sum.data()});
  bench::mean<gpu_executor, apps::memory_view<float>> const work(run, apps::memory_view<float>(vector.data(), elements),
                                                                 1024, 1);
  work();
  run.synchronize();
  return {work.value(), static_cast<double>(sum.to_host()[0]) * 0x1p-24 / static_cast<double>(elements)};
}

}  // namespace forebay::bench::on_gpu
