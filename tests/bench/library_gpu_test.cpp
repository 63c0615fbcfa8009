// SPDX-License-Identifier: Apache-2.0
// The applications of the library on a GPU, compared with the same code on the CPU executor.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "apps/common/executor.hpp"
#include "bench/library_outcomes.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::bench {
namespace {

class library_gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
  apps::executor<simt::fiber> cpu;
};

constexpr graph::graph_options graphs[] = {{graph::graph_kind::kronecker, 11, 16, 3},
                                           {graph::graph_kind::uniform, 11, 8, 4}};

void expect_near(std::vector<float> const& got, std::vector<float> const& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-4f * (1 + want[i])) << i;
}

TEST_F(library_gpu, graphs_are_those_of_the_cpu) {
  for (graph::graph_options const& o : graphs) EXPECT_TRUE(on_gpu::graph(o) == graph_of(cpu, o));
  // More than a block of GAP's edges; and several ranges of vertices.
  for (graph::graph_options const& o : {graph::graph_options{graph::graph_kind::gap_kronecker, 9, 600},
                                        graph::graph_options{graph::graph_kind::gap_uniform, 11, 140},
                                        graph::graph_options{graph::graph_kind::kronecker, 11, 16, 3, 16 * 20000}}) {
    EXPECT_TRUE(on_gpu::graph(o) == graph_of(cpu, o));
  }
}

TEST_F(library_gpu, products_are_those_of_the_cpu) {
  for (graph::graph_options const& o : graphs) {
    auto const want = product_of<512, 4>(cpu, o);
    for (std::uint32_t const tile : {256, 512, 1024}) expect_near(on_gpu::product(o, tile), want);
  }
}

TEST_F(library_gpu, products_are_those_of_cusparse) {
  for (int const algorithm : {1, 2}) {
    try {
      expect_near(on_gpu::cusparse_product(graphs[0], algorithm), product_of<512, 4>(cpu, graphs[0]));
    } catch (operation_failed const& missing) {
      GTEST_SKIP() << missing.what();
    }
  }
}

TEST_F(library_gpu, distances_are_those_of_the_cpu) {
  for (graph::graph_options const& o : graphs) {
    auto const want = distances_of(cpu, o, 1024);
    EXPECT_EQ(on_gpu::distances(o, 1024), want);
    EXPECT_EQ(on_gpu::distances(o, 64), want);
  }
}

TEST_F(library_gpu, clicks_are_those_of_the_cpu_with_and_without_cublas) {
  auto const want = clicks_of(cpu, cpu, dlrm_naive_products<apps::executor<simt::fiber>>(cpu)).in_turn;
  for (bool const with_cublas : {false, true}) {
    try {
      inferred const got = on_gpu::clicks(with_cublas);
      expect_near(got.in_turn, want);
      EXPECT_EQ(got.ahead, got.in_turn);
    } catch (operation_failed const& missing) {
      GTEST_SKIP() << missing.what();
    }
  }
}

TEST_F(library_gpu, the_mean_is_that_of_the_elements) {
  on_gpu::mean_of const got = on_gpu::mean(1'000'003);
  EXPECT_NEAR(got.computed, got.exact, 1e-6);
}

}  // namespace
}  // namespace forebay::bench
