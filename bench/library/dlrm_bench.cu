// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "apps/common/memory_view.hpp"
#include "library/dlrm_bench.hpp"
#include "library/dlrm_on_gpu.hpp"

namespace forebay::bench {

namespace {

using quads_in_memory = apps::memory_view<dlrm_quad>;
using naive = recommender::dlrm_naive_products<apps::executor<simt::cuda>>;

}  // namespace

struct dlrm_in_memory::impl {
  impl(dlrm_config const& c, dlrm_trace const& trace, std::uint32_t samples_max, cublas_math math)
      : config(c),
        inputs(side.memory(), trace),
        table(side.memory(), trace.rows_of_all_tables() * c.floats / dlrm_quad_floats),
        gpu(c, view(), table.size(), samples_max, math) {
    side({.blocks = side.warps() / 4, .threads_per_block = 128},
         recommender::dlrm_fill_table<simt::cuda>{0, table.size() * dlrm_quad_floats,
                                                  reinterpret_cast<float*>(table.data())});
    side.synchronize();
  }
  quads_in_memory view() const { return {table.data(), table.size()}; }

  dlrm_config config;
  apps::executor<simt::cuda> side{0};
  dlrm_inputs inputs;
  apps::device_array<dlrm_quad> table;
  dlrm_on_gpu<quads_in_memory> gpu;
  std::vector<dlrm_batch> batches;
};

dlrm_in_memory::dlrm_in_memory(dlrm_config const& config, dlrm_trace const& trace, std::uint32_t samples_max,
                               cublas_math math)
    : impl_(std::make_unique<impl>(config, trace, samples_max, math)) {}
dlrm_in_memory::~dlrm_in_memory() = default;

std::uint64_t dlrm_in_memory::cut(std::uint32_t samples, std::uint64_t batches_max) {
  impl_->batches = impl_->inputs.batches(samples, batches_max);
  return impl_->batches.size();
}

dlrm_seconds dlrm_in_memory::measure() {
  impl& i = *impl_;
  dlrm_seconds s{};
  s.gather = i.gpu.seconds_to_gather(i.batches);
  s.infer = i.gpu.seconds_to_infer(i.batches);
  s.ahead = i.gpu.seconds_ahead(i.batches, {});
  s.in_turn = i.gpu.seconds_in_turn(i.batches);
  return s;
}

double dlrm_in_memory::largest_error(std::uint32_t samples) {
  impl& i = *impl_;
  std::vector<float> const seen = i.inputs.clicks();
  apps::executor<simt::cuda> const run(0);
  naive const by(run);
  dlrm<apps::executor<simt::cuda>, quads_in_memory, naive> const model(run, i.side, by, i.config, i.view(),
                                                                       i.table.size(), samples);
  model.run_in_turn(i.inputs.batches(samples, 1));
  run.synchronize();
  std::vector<float> const want = i.inputs.clicks();
  double largest = 0;
  for (std::size_t s = 0; s < samples && s < want.size(); ++s) {
    double const error = std::fabs(static_cast<double>(seen[s]) - static_cast<double>(want[s]));
    if (!(error <= largest)) largest = error;  // also where it is not a number
  }
  return largest;
}

int dlrm_in_memory::cublas_version() const {
  return impl_->gpu.cublas_version();
}

}  // namespace forebay::bench
