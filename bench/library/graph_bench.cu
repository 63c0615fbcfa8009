// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "apps/common/executor.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/common/random.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/build.hpp"
#include "apps/graph/spmv.hpp"
#include "forebay/error.hpp"
#include "harness/event_timer.hpp"
#include "library/graph_bench.hpp"
#include "library/graph_parts.hpp"
#include "library/spmv_cusparse.hpp"

namespace forebay::bench {

namespace {

using gpu_executor = apps::executor<simt::cuda>;
using apps::memory_view;
using column_view = memory_view<std::uint32_t>;
using value_view = memory_view<float>;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

struct graph_on_gpu::impl {
  explicit impl(graph::graph_options const& o)
      : options(o),
        began(std::chrono::steady_clock::now()),
        graph(graph::build_graph(run, o)),
        seconds(seconds_since(began)) {
    std::vector<std::uint64_t> const begins = graph.row_begin.to_host();
    std::vector<std::int32_t> narrow(begins.size());
    for (std::size_t v = 0; v < begins.size(); ++v) {
      narrow[v] = static_cast<std::int32_t>(begins[v]);
      if (v == 0) continue;
      std::uint64_t const degree = begins[v] - begins[v - 1];
      degree_max = std::max(degree_max, degree);
      if (degree == 0) ++alone;
    }
    row_begin_32.emplace(run.memory(), narrow);
    apps::splitmix64 draws(o.seed, ~std::uint64_t{0});
    std::vector<float> from(graph.vertices());
    for (float& v : from) v = static_cast<float>(draws.next() >> 40) * 0x1p-24f;
    x.emplace(run.memory(), from);
    y.emplace(run.memory(), graph.vertices());
    while (sources.size() < 64 && alone < graph.vertices()) {
      auto const v = static_cast<std::uint32_t>(draws.below(graph.vertices()));
      if (begins[v] != begins[v + 1]) sources.push_back(v);
    }
    search.emplace(run, graph::graph_shape{graph.vertices(), graph.entries(), graph.row_begin.data()}, columns());
  }

  column_view columns() const { return {graph.columns.data(), graph.entries()}; }
  value_view values() const { return {graph.values.data(), graph.entries()}; }
  graph::spmv_shape shape() const { return {graph.vertices(), graph.entries(), graph.row_begin.data()}; }

  graph_parts parts() const { return {run, graph, x->data(), y->data()}; }
  template <std::uint32_t Tile, std::uint32_t RowLanes>
  double multiply(std::uint64_t entries_per_warp) {
    graph::spmv<gpu_executor, column_view, value_view, Tile, RowLanes> const work(run, shape(), columns(), values(),
                                                                                  entries_per_warp);
    return timed_product(parts(), work);
  }

  graph::graph_options options;
  gpu_executor run{0};
  std::chrono::steady_clock::time_point began;
  graph::csr_graph graph;
  double seconds;
  std::uint64_t degree_max = 0;
  std::uint64_t alone = 0;
  std::vector<std::uint32_t> sources;
  std::optional<apps::device_array<std::int32_t>> row_begin_32;
  std::optional<apps::device_array<float>> x, y;
  std::map<int, std::unique_ptr<cusparse_spmv>> cusparse;
  std::optional<graph::bfs<gpu_executor, column_view>> search;
  std::uint32_t last_source = 0;
};

graph_on_gpu::graph_on_gpu(graph::graph_options const& options) : impl_(std::make_unique<impl>(options)) {}
graph_on_gpu::~graph_on_gpu() = default;

graph_parts graph_on_gpu::parts() const {
  return impl_->parts();
}

double graph_on_gpu::seconds_to_build() const {
  return impl_->seconds;
}
std::uint32_t graph_on_gpu::vertices() const {
  return impl_->graph.vertices();
}
std::uint64_t graph_on_gpu::entries() const {
  return impl_->graph.entries();
}
std::uint64_t graph_on_gpu::degree_max() const {
  return impl_->degree_max;
}
std::uint64_t graph_on_gpu::vertices_alone() const {
  return impl_->alone;
}
std::uint32_t graph_on_gpu::source(std::uint32_t n) const {
  return impl_->sources.at(n);
}

double graph_on_gpu::spmv_seconds(spmv_division const& how) {
  impl& i = *impl_;
  auto const with_tile = [&]<std::uint32_t Tile>() {
    switch (how.row_lanes) {
      case 1:
        return i.multiply<Tile, 1>(how.entries_per_warp);
      case 4:
        return i.multiply<Tile, 4>(how.entries_per_warp);
      case 8:
        return i.multiply<Tile, 8>(how.entries_per_warp);
      default:
        throw refused_input("row_lanes", std::to_string(how.row_lanes), "is 1, 4 or 8");
    }
  };
  switch (how.tile) {
    case 256:
      return with_tile.operator()<256>();
    case 512:
      return with_tile.operator()<512>();
    case 1024:
      return with_tile.operator()<1024>();
    default:
      throw refused_input("tile", std::to_string(how.tile), "is 256, 512 or 1024");
  }
}

double graph_on_gpu::cusparse_seconds(int algorithm) {
  impl& i = *impl_;
  std::unique_ptr<cusparse_spmv>& work = i.cusparse[algorithm];
  if (!work) {
    if (i.graph.entries() > 0x7fffffff)
      throw refused_input("scale", std::to_string(i.options.scale), "has entries that 32 bits do not count");
    work = std::make_unique<cusparse_spmv>(
        i.run.stream().get(), i.run.memory(),
        cusparse_matrix{i.graph.vertices(), static_cast<std::int64_t>(i.graph.entries()), i.row_begin_32->data(),
                        i.graph.columns.data(), i.graph.values.data()},
        i.x->data(), i.y->data(), algorithm == 1 ? cusparse_algorithm::csr_1 : cusparse_algorithm::csr_2);
  }
  forget_product(parts());
  return seconds_of(i.run.stream(), [&] { (*work)(); });
}

std::uint64_t graph_on_gpu::spmv_wrong_rows() {
  return wrong_rows(parts());
}

bfs_timing graph_on_gpu::search(std::uint32_t source, std::uint32_t share_pages) {
  impl_->last_source = source;
  return timed_search(parts(), *impl_->search, source, {.share_pages = share_pages});
}

std::uint64_t graph_on_gpu::bfs_wrong_vertices() {
  return wrong_vertices(parts(), impl_->last_source, impl_->search->distances());
}

}  // namespace forebay::bench
