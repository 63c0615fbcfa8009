// SPDX-License-Identifier: Apache-2.0
// The applications of the library over a storage with a cache, on the CPU executor. They must compute the same as over
// plain memory, both with a cache that holds all pages, and with one that evicts every page again and again.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/common/forget_pages.hpp"
#include "apps/paged_view.hpp"
#include "bench/library_outcomes.hpp"
#include "forebay/storage.hpp"
#include "library/cache_kernels.hpp"
#include "library/mean.hpp"
#include "library/sweep_pages.hpp"
#include "support/traits.hpp"

namespace forebay::bench {
namespace {

using cpu_executor = apps::executor<simt::fiber>;
using M = cpu_executor::machine;
template <class T>
using view = storage_ref<M, cached>::view_type<T>;

class library_on_storage : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static storage_options options() {
    storage_options o;
    o.drives = {"emulated:size=4M,threads=1"};
    o.device = "cpu";
    o.cache.page_bytes = 512;
    o.cache.size_bytes = GetParam();
    return o;
  }
  template <class T>
  view<T const> written(std::vector<T> const& values, std::uint64_t at_byte) {
    drives.pwrite(values.data(), values.size() * sizeof(T), at_byte);
    return drives.ref<M, cached>().array<T const>(at_byte, values.size());
  }
  cpu_executor run;
  storage drives{options()};
};

constexpr graph::graph_options kronecker{graph::graph_kind::kronecker, 8, 8, 3};
constexpr std::uint64_t second_half = 2 << 20;

TEST_P(library_on_storage, products) {
  graph::csr_graph const graph = graph::build_graph(run, kronecker);
  auto const columns = written(graph.columns.to_host(), 0);
  auto const values = written(graph.values.to_host(), second_half);
  auto const x = harmonic(graph.vertices());
  for (graph::spmv_paging const& paging :
       {graph::spmv_paging{.window = 1, .entries = 128}, graph::spmv_paging{.window = 4, .entries = 128},
        graph::spmv_paging{.window = 32, .entries = 128, .prefetch_shares = 2}}) {
    std::vector<float> y(graph.vertices());
    graph::spmv<cpu_executor, view<std::uint32_t const>, view<float const>, 256> const work(
        run, {graph.vertices(), graph.entries(), graph.row_begin.data()}, columns, values, 512, paging);
    work(x.data(), y.data());
    EXPECT_EQ(work.failures().failures, 0u);
    auto const want = product_of<256, 4>(run, kronecker);
    ASSERT_EQ(y.size(), want.size());
    for (std::size_t r = 0; r < want.size(); ++r) ASSERT_NEAR(y[r], want[r], 1e-4f * (1 + want[r])) << r;
  }
  EXPECT_TRUE(drives.take_errors().first.ok());
}

TEST_P(library_on_storage, distances) {
  graph::csr_graph const graph = graph::build_graph(run, kronecker);
  auto const columns = written(graph.columns.to_host(), 0);
  graph::bfs<cpu_executor, view<std::uint32_t const>> search(
      run, {graph.vertices(), graph.entries(), graph.row_begin.data()}, columns,
      {.page_elements = 128, .at_a_time = GetParam() > second_half ? 32u : 1u});
  run({.blocks = 2, .threads_per_block = 32},
      sweep_pages<M, view<std::uint32_t const>>{columns, graph.entries(), 128, 4});
  auto const want = distances_of(run, kronecker, 128);
  for (graph::bfs_how const& how :
       {graph::bfs_how{.share_pages = 4, .window = 4}, graph::bfs_how{graph::bfs_direction::from_above},
        graph::bfs_how{graph::bfs_direction::from_below, 1, 1}, graph::bfs_how{graph::bfs_direction::from_below, 8, 4},
        graph::bfs_how{graph::bfs_direction::from_below, 32, 32}}) {
    search(graph.columns.to_host(1)[0], how);
    EXPECT_EQ(search.failures().failures, 0u);
    EXPECT_EQ(search.distances_to_host(), want);
  }
}

TEST_P(library_on_storage, means) {
  std::vector<float> elements(20'000);
  run({.blocks = 1, .threads_per_block = 32}, mean_fill<M>{0, elements.size(), elements.data()});
  double want = 0;
  for (float const e : elements) want += static_cast<double>(e) / static_cast<double>(elements.size());
  for (std::uint32_t const prefetch_ahead : {0, 2}) {
    mean<cpu_executor, view<float const>> const work(run, written(elements, 0), 128, prefetch_ahead);
    work();
    EXPECT_NEAR(work.value(), want, 1e-6);
    EXPECT_EQ(work.failures().failures, 0u);
  }
}

TEST_P(library_on_storage, streams_of_elements) {
  constexpr std::uint64_t run_elements = 512 / sizeof(cache_element), count = 100 * run_elements;
  auto const all = drives.ref<M, cached>().array<cache_element>(0, count);
  auto const read_only = drives.ref<M, cached>().array<cache_element const>(0, count);
  simt::grid const shape{.blocks = 2, .threads_per_block = 64};
  cache_tally written;
  run(shape, write_elements<M, view<cache_element>>{all, run_elements, &written});
  EXPECT_EQ(written.accesses, count);
  cache_tally mixed;
  run(shape, read_and_add<M, view<cache_element>>{all, 50, 40, 7, &mixed});
  EXPECT_GT(mixed.added, 1000u);
  for (std::uint32_t const pages : {1, 3, 32}) {
    cache_tally seen;
    run(shape, stream_elements<M, view<cache_element const>>{read_only, run_elements, pages, &seen});
    EXPECT_EQ(seen.accesses, count);
    EXPECT_EQ(seen.failed + seen.wrong, 0u);
    EXPECT_EQ(seen.sum, mixed.added) << pages << " pages";
  }
  all.store(99 * run_elements + 5, 0);
  cache_tally seen;
  run(shape, stream_elements<M, view<cache_element const>>{read_only, run_elements, 4, &seen});
  EXPECT_EQ(seen.wrong, 1u);
}

TEST_P(library_on_storage, clicks) {
  dlrm_config const c{
      .dense = 3, .tables = 4, .floats = 32, .bottom_layers = 1, .bottom_width = 8, .top_layers = 1, .top_width = 8};
  dlrm_trace const trace =
      make_zipf_trace({.samples = 60, .dense = 3, .table_rows = {300, 1, 70, 1000}, .exponent = 0.9, .seed = 5});
  std::uint64_t const floats = trace.rows_of_all_tables() * c.floats;
  apps::failure_latch failure;
  run({.blocks = 2, .threads_per_block = 64},
      dlrm_write_table<M, view<float>>{drives.ref<M, cached>().array<float>(0, floats), 128, &failure});
  ASSERT_EQ(failure.failures, 0u);
  drives.flush();

  dlrm_naive_products<cpu_executor> const by(run);
  dlrm<cpu_executor, view<dlrm_quad const>, dlrm_naive_products<cpu_executor>> const model(
      run, run, by, c, drives.ref<M, cached>().array<dlrm_quad const>(0, floats / 4), 32, 20);
  auto const rows = trace.rows_in_one_table();
  std::vector<float> clicks[2] = {std::vector<float>(60), std::vector<float>(60)};
  for (int const ahead : {0, 1}) {
    std::vector<dlrm_batch> batches;
    for (std::uint32_t s = 0; s < 60; s += 20) {
      batches.push_back({20, rows.data() + s * 4, trace.dense_values.data() + s * 3, clicks[ahead].data() + s});
    }
    if (ahead == 0) {
      model.run_in_turn(batches);
    } else {
      model.run_ahead(batches);
    }
    EXPECT_EQ(model.wrong_floats(batches.back()), 0u);
  }
  EXPECT_EQ(model.failures().failures, 0u);
  EXPECT_EQ(clicks[0], clicks[1]);
  EXPECT_GT(clicks[0][0], 0);
}

TEST(library_sweep_pages, asks_for_every_page_once) {
  cpu_executor const run;
  for (std::uint64_t const elements : {0, 1, 16, 17, 1000, 1024}) {
    testing::paged_array<std::uint32_t> array;
    array.elements.resize(elements);
    testing::paged_view<std::uint32_t> const view(array);
    run({.blocks = 3, .threads_per_block = 32},
        sweep_pages<simt::fiber, testing::paged_view<std::uint32_t>>{view, elements, 16, 4});
    EXPECT_EQ(array.taken, (elements + 15) / 16) << elements;
  }
}

TEST(library_forget_pages, leaves_none_in_the_cache_but_those_that_are_held) {
  using ref = storage_ref<M, test::traits<replacement::clock, true>>;
  storage_options o;
  o.drives = {"emulated:size=1M,threads=1"};
  o.device = "cpu";
  o.cache.size_bytes = 1 << 20;
  o.cache.statistics = true;
  storage drives(o);
  cpu_executor const run;
  auto const counted = drives.ref<M, test::traits<replacement::clock, true>>();
  auto const all = counted.array<cache_element const>();
  auto const read = [&] {
    cache_tally seen;
    std::uint64_t const before = drives.cache_statistics().misses;
    run({.blocks = 1, .threads_per_block = 64},
        stream_elements<M, ref::view_type<cache_element const>>{all, 512, 8, &seen});
    return drives.cache_statistics().misses - before;
  };
  auto const forget = [&] {
    std::uint64_t kept = 0;
    run({.blocks = 2, .threads_per_block = 32}, apps::forget_pages<M, ref::cache_type>{counted.cache(), 0, 256, &kept});
    return kept;
  };
  EXPECT_EQ(read(), 256u);
  EXPECT_EQ(read(), 0u);
  EXPECT_EQ(forget(), 0u);
  EXPECT_EQ(read(), 256u);
  {
    page_pin const held = counted.cache().pin(7, access::read);
    ASSERT_TRUE(held.outcome.ok());
    EXPECT_EQ(forget(), 1u);
    counted.cache().unpin(held.frame);
  }
  EXPECT_EQ(read(), 255u);
}

/// All of it; two sets of 16 pages.
INSTANTIATE_TEST_SUITE_P(caches, library_on_storage, ::testing::Values(4u << 20, 32u * 512));

}  // namespace
}  // namespace forebay::bench
