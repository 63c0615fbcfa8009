// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/graph/build.hpp"
#include "apps/graph/spmv.hpp"
#include "apps/paged_view.hpp"

namespace forebay::graph {
namespace {

using cpu_executor = apps::executor<simt::fiber>;
using apps::memory_view;
using testing::paged_array;
using testing::paged_view;

struct matrix {
  std::vector<std::uint64_t> row_begin{0};
  paged_array<std::uint32_t> columns;
  paged_array<float> values;
  std::vector<float> x;

  std::uint32_t rows() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
  spmv_shape shape() const { return {rows(), columns.elements.size(), row_begin.data()}; }

  /// Fills columns and values of the rows, each as long as `row_begin` says.
  void fill(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    x.resize(rows());
    for (float& v : x) v = std::uniform_real_distribution<float>(-1, 1)(random);
    for (std::uint64_t i = 0; i < row_begin.back(); ++i) {
      columns.elements.push_back(static_cast<std::uint32_t>(random() % rows()));
      values.elements.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
    }
  }
  std::vector<double> product() const {
    std::vector<double> y(rows());
    for (std::uint32_t r = 0; r < rows(); ++r) {
      for (std::uint64_t i = row_begin[r]; i < row_begin[r + 1]; ++i) {
        y[r] += static_cast<double>(values.elements[i]) * static_cast<double>(x[columns.elements[i]]);
      }
    }
    return y;
  }
};

/// Rows of every kind: none, few, many and very many entries, in runs.
void random_rows(matrix& m, std::uint64_t seed, std::uint32_t rows) {
  std::mt19937_64 random(seed);
  for (std::uint32_t r = 0; r < rows; ++r) {
    std::uint64_t const kind = random() % 40;
    std::uint64_t const length = kind < 12   ? 0
                                 : kind < 30 ? random() % 8
                                 : kind < 39 ? random() % 120
                                             : random() % 3000;
    m.row_begin.push_back(m.row_begin.back() + length);
  }
  m.fill(seed);
}

void expect_near(std::vector<float> const& got, std::vector<double> const& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    ASSERT_NEAR(static_cast<double>(got[r]), want[r], 1e-4) << "row " << r;
  }
}

template <std::uint32_t Tile, std::uint32_t RowLanes = 4>
std::vector<float> multiply(matrix& m, std::uint64_t entries_per_warp, spmv_paging const& paging = {}) {
  cpu_executor const run;
  std::vector<float> y(m.rows(), NAN);
  spmv<cpu_executor, paged_view<std::uint32_t>, paged_view<float>, Tile, RowLanes> const work(
      run, m.shape(), paged_view(m.columns), paged_view(m.values), entries_per_warp, paging);
  work(m.x.data(), y.data());
  EXPECT_EQ(work.failures().failures, 0u);
  return y;
}

TEST(graph_spmv, is_the_product_for_rows_of_every_length_pages_and_shares) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    matrix m;
    m.columns.page_elements = std::uint64_t{1} << random() % 12;
    m.values.page_elements = std::uint64_t{1} << random() % 12;
    random_rows(m, seed, 1 + static_cast<std::uint32_t>(random() % 300));
    expect_near(multiply<256>(m, 256 << random() % 4), m.product());
    expect_near(multiply<1024, 1>(m, 1024), m.product());
    expect_near(multiply<512, 8>(m, 2048), m.product());
  }
}

TEST(graph_spmv, rows_that_span_many_shares_and_empty_rows_at_both_ends) {
  matrix m;
  for (std::uint64_t const length : {0, 0, 5000, 0, 0, 0, 256, 256, 0, 1, 255, 7000, 0, 0}) {
    m.row_begin.push_back(m.row_begin.back() + length);
  }
  m.fill(3);
  expect_near(multiply<256>(m, 256), m.product());
  expect_near(multiply<512, 1>(m, 1024), m.product());
  expect_near(multiply<512, 32>(m, 1024), m.product());
}

TEST(graph_spmv, a_matrix_without_entries_is_zero) {
  matrix m;
  m.row_begin.resize(101);
  m.fill(1);
  expect_near(multiply<256>(m, 256), std::vector<double>(100));
}

TEST(graph_spmv, each_page_is_asked_for_once) {
  matrix m;
  m.columns.page_elements = m.values.page_elements = 1024;
  random_rows(m, 9, 2000);
  std::uint64_t const pages = (m.columns.elements.size() + 1023) / 1024;
  ASSERT_GT(pages, 20u);
  multiply<512>(m, 4096, {.window = 4, .prefetch_shares = 3});
  EXPECT_EQ(m.columns.moves, pages);
  EXPECT_EQ(m.values.moves, pages);
  // Each by the warp whose share it is or by the one three before it.
  EXPECT_EQ(m.columns.prefetches, pages);
  EXPECT_EQ(m.values.prefetches, pages);
  multiply<512>(m, 4096, {.window = 4});
  EXPECT_EQ(m.columns.prefetches, pages);
  EXPECT_EQ(m.values.prefetches, 2 * pages) << "so that they are read while the columns are";
  EXPECT_EQ(m.columns.stray_prefetches + m.values.stray_prefetches, 0u);
}

TEST(graph_spmv, the_result_does_not_depend_on_who_comes_first) {
  matrix m;
  random_rows(m, 21, 200);
  auto const first = multiply<256>(m, 512);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(multiply<256>(m, 512), first);
}

TEST(graph_spmv, a_page_that_cannot_be_had_is_told) {
  matrix m;
  random_rows(m, 5, 500);
  m.values.bad_page = 3;
  cpu_executor const run;
  std::vector<float> y(m.rows());
  spmv<cpu_executor, paged_view<std::uint32_t>, paged_view<float>, 256> const work(
      run, m.shape(), paged_view(m.columns), paged_view(m.values), 256);
  work(m.x.data(), y.data());
  EXPECT_EQ(work.failures().failures, 32u) << "each lane of one warp";
  EXPECT_EQ(work.failures().status_bits, status::from_nvme(0x281).bits());
}

TEST(graph_spmv, a_graph_in_plain_memory_and_the_check_of_it) {
  cpu_executor const run;
  csr_graph const graph = build_graph(run, {graph_kind::kronecker, 9, 16, 3});
  std::uint32_t const rows = graph.vertices();
  std::vector<float> x(rows), y(rows);
  for (std::uint32_t i = 0; i < rows; ++i) x[i] = 1.0f / static_cast<float>(i + 1);
  spmv_shape const shape{rows, graph.entries(), graph.row_begin.data()};
  spmv<cpu_executor, memory_view<std::uint32_t>, memory_view<float>> const work(
      run, shape, memory_view<std::uint32_t>(graph.columns.data(), graph.entries()),
      memory_view<float>(graph.values.data(), graph.entries()), 1024);
  work(x.data(), y.data());
  auto const wrong = [&] {
    std::uint64_t rows_wrong = 0;
    run({.blocks = 2, .threads_per_block = 64},
        spmv_check<simt::fiber>{shape, graph.columns.data(), graph.values.data(), x.data(), y.data(), &rows_wrong});
    return rows_wrong;
  };
  EXPECT_EQ(wrong(), 0u);
  std::uint32_t const victim = graph.columns.to_host(1)[0];  // which has a neighbour
  y[victim] *= 1.001f;
  EXPECT_EQ(wrong(), 1u);
  y[victim] = NAN;
  EXPECT_EQ(wrong(), 1u);
}

}  // namespace
}  // namespace forebay::graph
