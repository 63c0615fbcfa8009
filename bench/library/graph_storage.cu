// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/forget_pages.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "harness/gpu_use.hpp"
#include "library/graph_parts.hpp"
#include "library/graph_storage.hpp"
#include "library/sweep_pages.hpp"

namespace forebay::bench {

namespace {

using gpu_executor = apps::executor<simt::cuda>;
using storage_view = storage_ref<simt::cuda, cached>;
using column_view = storage_view::view_type<std::uint32_t const>;
using value_view = storage_view::view_type<float const>;
constexpr std::uint32_t tile = 512;
template <unsigned ThreadsMax>
using searcher = graph::bfs<gpu_executor, column_view, ThreadsMax>;

/// A search during which all pages are brought in. With windows of 32 about as many reads are in flight as a drive
/// needs that serves 40 million reads a second with a latency of 50 us. With more, the search would only wait.
template <class Searcher>
struct swept_search {
  static constexpr std::uint32_t warps = 96;
  gpu_executor const& run;
  gpu_executor const& side;
  Searcher& search;
  sweep_pages<simt::cuda, column_view> sweep;

  std::vector<std::uint64_t> operator()(std::uint32_t source, graph::bfs_how const& how) const {
    side.wait_for(run);
    // Blocks of one warp each, so that they find room beside large blocks.
    side({.blocks = warps, .threads_per_block = 32}, sweep);
    std::vector<std::uint64_t> levels = search(source, how);
    run.wait_for(side);
    return levels;
  }
  std::vector<std::uint32_t> distances_to_host() const { return search.distances_to_host(); }
};

}  // namespace

struct graph_on_storage::impl {
  impl(graph_on_gpu& g, storage_options const& options)
      : parts(g.parts()),
        page_bytes(options.cache.page_bytes),
        layout(graph_layout::of(parts.graph.entries(), options.cache.page_bytes)),
        host_columns(parts.graph.columns.to_host()),
        host_values(parts.graph.values.to_host()),
        drives(options) {
    write();
    auto const ref = drives.ref<simt::cuda, cached>();
    columns = ref.array<std::uint32_t const>(0, parts.graph.entries());
    values = ref.array<float const>(layout.columns_bytes, parts.graph.entries());
    search_768.emplace(parts.run, parts.bfs_of(), columns, graph::bfs_paging{.page_elements = page_bytes / 4});
    search_1024.emplace(parts.run, parts.bfs_of(), columns, graph::bfs_paging{.page_elements = page_bytes / 4});
    running.emplace(drives.lease());
  }
  void write() {
    drives.pwrite(host_columns.data(), host_columns.size() * 4, 0);
    drives.pwrite(host_values.data(), host_values.size() * 4, layout.columns_bytes);
  }

  template <std::uint32_t RowLanes, unsigned ThreadsMax>
  double multiply(spmv_on_storage const& how) {
    graph::spmv<gpu_executor, column_view, value_view, tile, RowLanes, ThreadsMax> const work(
        parts.run, parts.spmv_of(), columns, values, how.entries_per_warp,
        {.window = how.window, .entries = page_bytes / 4, .prefetch_shares = how.prefetch_shares});
    double const seconds = timed_product(parts, work);
    some_failed = some_failed || work.failures().failures != 0;
    return seconds;
  }

  template <class Searcher>
  bfs_timing search(Searcher& work, std::uint32_t source, bfs_on_storage const& how) {
    graph::bfs_how const levels{.share_pages = how.share_pages, .window = how.share_pages};
    constexpr std::uint32_t window = 32;
    swept_search<Searcher> swept{parts.run, side, work, {columns, parts.graph.entries(), page_bytes / 4, window}};
    bfs_timing const timing =
        how.sweep ? timed_search(parts, swept, source, levels) : timed_search(parts, work, source, levels);
    last_source = source;
    distances = work.distances();
    some_failed = some_failed || work.failures().failures != 0;
    return timing;
  }

  graph_parts parts;
  gpu_executor side{0};
  std::uint32_t page_bytes;
  graph_layout layout;
  std::vector<std::uint32_t> host_columns;
  std::vector<float> host_values;
  storage drives;
  column_view columns;
  value_view values;
  std::optional<searcher<768>> search_768;
  std::optional<searcher<1024>> search_1024;
  std::uint32_t last_source = 0;
  std::uint32_t const* distances = nullptr;
  bool some_failed = false;
  std::optional<storage_lease> running;
};

graph_on_storage::graph_on_storage(graph_on_gpu& graph, storage_options const& options)
    : impl_(std::make_unique<impl>(graph, options)) {}
graph_on_storage::~graph_on_storage() = default;

void graph_on_storage::make_cold() {
  impl& i = *impl_;
  auto const cache = i.drives.ref<simt::cuda, cached>().cache();
  std::uint64_t const kept = counted(i.parts, [&](std::uint64_t* count) {
    return apps::forget_pages<simt::cuda, storage_view::cache_type>{cache, 0, i.layout.size_bytes() / i.page_bytes,
                                                                    count};
  });
  if (kept != 0) throw operation_failed(std::to_string(kept) + " pages stayed in the cache");
}

double graph_on_storage::spmv_seconds(spmv_on_storage const& how) {
  if (how.row_lanes == 4) return impl_->multiply<4, 768>(how);
  return how.threads == 1024 ? impl_->multiply<1, 1024>(how) : impl_->multiply<1, 768>(how);
}

bfs_timing graph_on_storage::search(std::uint32_t source, bfs_on_storage const& how) {
  impl& i = *impl_;
  return how.threads == 1024 ? i.search(*i.search_1024, source, how) : i.search(*i.search_768, source, how);
}

std::uint64_t graph_on_storage::bfs_wrong_vertices() const {
  return wrong_vertices(impl_->parts, impl_->last_source, impl_->distances);
}

bool graph_on_storage::failed() {
  if (!impl_->drives.take_errors().first.ok()) impl_->some_failed = true;
  return impl_->some_failed;
}

std::string graph_on_storage::report() {
  std::string const text = impl_->drives.report();
  impl_->drives.reset_statistics();
  return text;
}

std::uint32_t graph_on_storage::warps() const {
  return impl_->parts.run.warps();
}
std::uint32_t graph_on_storage::spmv_registers() const {
  return gpu_use_of<graph::spmv_multiply<simt::cuda, column_view, value_view, tile, 1, 768>>().registers_per_thread;
}
std::uint32_t graph_on_storage::bfs_from_above_registers() const {
  return gpu_use_of<graph::bfs_visit<simt::cuda, column_view>>().registers_per_thread;
}
std::uint32_t graph_on_storage::bfs_from_below_registers() const {
  return gpu_use_of<graph::bfs_look_up<simt::cuda, column_view, 768>>().registers_per_thread;
}

}  // namespace forebay::bench
