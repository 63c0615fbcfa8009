// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/paged_view.hpp"
#include "apps/recommender/dlrm.hpp"
#include "apps/recommender/trace.hpp"

namespace forebay::bench {
namespace {

using namespace recommender;
using cpu_executor = apps::executor<simt::fiber>;
using testing::paged_array;
using testing::paged_view;
using products = dlrm_naive_products<cpu_executor>;

dlrm_config small_config() {
  return {
      .dense = 3, .tables = 4, .floats = 12, .bottom_layers = 2, .bottom_width = 8, .top_layers = 1, .top_width = 10};
}

dlrm_trace small_trace(std::uint64_t samples) {
  return make_zipf_trace({.samples = samples, .dense = 3, .table_rows = {30, 1, 7, 100}, .exponent = 0.9, .seed = 5});
}

std::vector<dlrm_quad> table_of(dlrm_trace const& trace, std::uint32_t floats) {
  std::vector<dlrm_quad> table(trace.rows_of_all_tables() * floats / 4);
  cpu_executor const run;
  run({.blocks = 1, .threads_per_block = 32},
      dlrm_fill_table<simt::fiber>{0, table.size() * 4, reinterpret_cast<float*>(table.data())});
  return table;
}

/// The definition, in double precision, one sample at a time.
std::vector<double> reference(dlrm_config const& c, dlrm_trace const& trace, std::vector<float> const& parameters) {
  auto const layers = dlrm_layers(c);
  auto const layer = [&](dlrm_layer const& l, std::vector<double> const& x, bool relu) {
    std::vector<double> y(l.outputs);
    for (std::uint32_t o = 0; o < l.outputs; ++o) {
      y[o] = static_cast<double>(parameters[l.biases + o]);
      for (std::uint32_t k = 0; k < l.inputs; ++k) {
        y[o] += x[k] * static_cast<double>(parameters[l.weights + std::uint64_t{k} * l.outputs + o]);
      }
      y[o] = relu ? std::fmax(y[o], 0) : 1 / (1 + std::exp(-y[o]));
    }
    return y;
  };
  std::vector<double> clicks;
  auto const rows = trace.rows_in_one_table();
  for (std::uint64_t s = 0; s < trace.samples(); ++s) {
    std::vector<double> x;
    for (std::uint32_t i = 0; i < c.dense; ++i) x.push_back(static_cast<double>(trace.dense_values[s * c.dense + i]));
    std::size_t l = 0;
    for (; l <= c.bottom_layers; ++l) x = layer(layers[l], x, true);
    std::vector<std::vector<double>> vectors{x};
    for (std::uint32_t t = 0; t < c.tables; ++t) {
      std::vector<double> v;
      for (std::uint32_t i = 0; i < c.floats; ++i) {
        v.push_back(static_cast<double>(dlrm_table_value(std::uint64_t{rows[s * c.tables + t]} * c.floats + i)));
      }
      vectors.push_back(v);
    }
    for (std::size_t i = 1; i < vectors.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        double sum = 0;
        for (std::uint32_t k = 0; k < c.floats; ++k) sum += vectors[i][k] * vectors[j][k];
        x.push_back(sum);
      }
    }
    for (; l < layers.size(); ++l) x = layer(layers[l], x, l + 1 < layers.size());
    clicks.push_back(x[0]);
  }
  return clicks;
}

struct outcome {
  std::vector<float> clicks;
  std::vector<float> parameters;
  apps::failure_latch failures;
};

template <class Table>
outcome infer(dlrm_config const& c, dlrm_trace const& trace, Table table, std::uint64_t page_quads,
              std::uint32_t samples_per_batch, bool ahead, dlrm_lookahead const& lookahead = {}) {
  cpu_executor const run, side;
  products const by(run);
  dlrm<cpu_executor, Table, products> const model(run, side, by, c, table, page_quads, samples_per_batch);
  outcome out;
  out.clicks.resize(trace.samples(), -1);
  std::vector<std::uint32_t> const rows = trace.rows_in_one_table();
  std::vector<dlrm_batch> batches;
  for (std::uint64_t s = 0; s < trace.samples(); s += samples_per_batch) {
    auto const samples = static_cast<std::uint32_t>(std::min<std::uint64_t>(samples_per_batch, trace.samples() - s));
    batches.push_back(
        {samples, rows.data() + s * c.tables, trace.dense_values.data() + s * c.dense, out.clicks.data() + s});
  }
  if (ahead) {
    model.run_ahead(batches, lookahead);
  } else {
    model.run_in_turn(batches);
  }
  out.parameters = model.parameters();
  out.failures = model.failures();
  return out;
}

TEST(library_dlrm, clicks_are_those_of_the_definition) {
  dlrm_config const c = small_config();
  dlrm_trace const trace = small_trace(23);
  auto const table = table_of(trace, c.floats);
  auto const got = infer(c, trace, apps::memory_view<dlrm_quad>(table.data(), table.size()), table.size(), 7, false);
  auto const want = reference(c, trace, got.parameters);
  double least = 1, most = 0;
  for (std::size_t s = 0; s < want.size(); ++s) {
    EXPECT_NEAR(static_cast<double>(got.clicks[s]), want[s], 1e-5) << s;
    least = std::min(least, want[s]);
    most = std::max(most, want[s]);
  }
  EXPECT_GT(most - least, 0.01) << "samples that all have the same outcome prove little";
}

TEST(library_dlrm, ahead_or_in_turn_by_pages_or_not_the_clicks_are_the_same) {
  dlrm_config const c = small_config();
  dlrm_trace const trace = small_trace(40);
  paged_array<dlrm_quad> table;
  table.elements = table_of(trace, c.floats);
  auto const want =
      infer(c, trace, apps::memory_view<dlrm_quad>(table.elements.data(), table.elements.size()), 1, 40, false);
  for (std::uint64_t const page : {1, 2, 5, 1000}) {  // an embedding has three quads
    for (std::uint32_t const listed_from : {0, 1, 1000}) {
      bool const ahead = listed_from != 0;
      table.page_elements = page;
      table.prefetches = 0;
      auto const got = infer(c, trace, paged_view(table), page, 11, ahead, {.listed_from = listed_from});
      EXPECT_EQ(got.clicks, want.clicks);
      EXPECT_EQ(got.failures.failures, 0u);
      // All batches but the first, a prefetch for each page of each row.
      std::uint64_t wanted = 0;
      auto const rows = trace.rows_in_one_table();
      for (std::size_t i = 11 * c.tables; i < rows.size(); ++i) {
        wanted += (rows[i] * std::uint64_t{3} + 2) / page - rows[i] * std::uint64_t{3} / page + 1;
      }
      EXPECT_EQ(table.prefetches, ahead ? wanted : 0u);
      EXPECT_EQ(table.stray_prefetches, 0u);
    }
  }
}

TEST(library_dlrm, prefetches_no_more_than_the_cache_has_room_for) {
  dlrm_config const c = small_config();
  dlrm_trace const trace = small_trace(60);
  paged_array<dlrm_quad> table;
  table.elements = table_of(trace, c.floats);
  table.page_elements = 3;  // a page for each row
  for (std::uint32_t const listed_from : {1, 1000}) {
    auto const prefetched = [&](std::uint64_t room, std::uint32_t batches) {
      table.room = room;
      table.prefetches = 0;
      auto const got =
          infer(c, trace, paged_view(table), 3, 10, true, {.batches = batches, .listed_from = listed_from});
      EXPECT_EQ(got.failures.failures, 0u);
      return table.prefetches.load();
    };
    EXPECT_EQ(prefetched(1000, 1), 5u * 40) << "six batches of 40 rows, all but the first";
    EXPECT_EQ(prefetched(1000, 3), 5u * 40);
    EXPECT_EQ(prefetched(25, 1), 5u * 25);
    EXPECT_EQ(prefetched(1, 4), 5u);
  }
}

TEST(library_dlrm, a_prefetch_that_finds_no_room_tries_again_for_as_long_as_it_may) {
  dlrm_config const c = small_config();
  dlrm_trace const trace = small_trace(20);
  paged_array<dlrm_quad> table;
  table.elements = table_of(trace, c.floats);
  table.page_elements = 3;
  for (std::uint32_t const listed_from : {1, 1000}) {
    auto const prefetched = [&](std::uint64_t patience_ns) {
      table.refused = 5;
      table.prefetches = 0;
      infer(c, trace, paged_view(table), 3, 10, true, {.patience_ns = patience_ns, .listed_from = listed_from});
      return table.prefetches.load();
    };
    EXPECT_EQ(prefetched(0), 40u);
    EXPECT_EQ(prefetched(60'000'000'000), 45u);
  }
}

TEST(library_dlrm, looks_as_far_ahead_as_2048_samples_reach) {
  EXPECT_EQ(dlrm_lookahead::batches_of(1), 4u);
  EXPECT_EQ(dlrm_lookahead::batches_of(512), 4u);
  EXPECT_EQ(dlrm_lookahead::batches_of(1024), 2u);
  EXPECT_EQ(dlrm_lookahead::batches_of(2048), 1u);
  EXPECT_EQ(dlrm_lookahead::batches_of(4096), 1u);
}

TEST(library_dlrm, a_page_that_cannot_be_had_is_told) {
  dlrm_config const c = small_config();
  dlrm_trace const trace = small_trace(10);
  paged_array<dlrm_quad> table;
  table.elements = table_of(trace, c.floats);
  table.page_elements = 3;
  table.bad_page = trace.rows_in_one_table()[5];
  auto const got = infer(c, trace, paged_view(table), 3, 10, false);
  EXPECT_GT(got.failures.failures, 0u);
  EXPECT_EQ(got.failures.status_bits, status::from_nvme(0x281).bits());
}

TEST(library_dlrm, the_check_of_a_gather_sees_a_wrong_row) {
  dlrm_config const c = small_config();
  dlrm_trace const trace = small_trace(10);
  auto table = table_of(trace, c.floats);
  cpu_executor const run;
  products const by(run);
  dlrm<cpu_executor, apps::memory_view<dlrm_quad>, products> const model(
      run, run, by, c, apps::memory_view<dlrm_quad>(table.data(), table.size()), 1, 10);
  auto const rows = trace.rows_in_one_table();
  dlrm_batch const batch{10, rows.data(), trace.dense_values.data(), nullptr};
  model.gather(batch);
  EXPECT_EQ(model.wrong_floats(batch), 0u);
  std::uint64_t const victim = rows[6];
  table[victim * 3 + 1].low ^= 1;
  model.gather(batch);
  EXPECT_EQ(model.wrong_floats(batch), static_cast<std::uint64_t>(std::count(rows.begin(), rows.end(), victim)));
}

TEST(library_dlrm, sizes_of_the_three_configurations) {
  std::uint64_t floats[4] = {};
  for (std::uint32_t n = 1; n <= 3; ++n) {
    dlrm_config const c = dlrm_config_number(n);
    std::uint32_t const per_network = n == 1 ? 3 : n == 2 ? 1 : 18;
    EXPECT_EQ(dlrm_layers(c, &floats[n]).size(), 2 * (per_network + 1));
    EXPECT_EQ(c.top_inputs(), 128u + 351u);
  }
  EXPECT_GT(floats[3], 5 * floats[1]);
  EXPECT_LT(floats[2], floats[1]);
  EXPECT_THROW(dlrm_config_number(4), refused_input);
  EXPECT_THROW(dlrm_config_number(0), refused_input);
  cpu_executor const run;
  dlrm_config odd = small_config();
  odd.floats = 10;
  apps::memory_view<dlrm_quad> const nothing;
  products const by(run);
  EXPECT_THROW((dlrm<cpu_executor, apps::memory_view<dlrm_quad>, products>(run, run, by, odd, nothing, 1, 1)),
               refused_input);
}

}  // namespace
}  // namespace forebay::bench
