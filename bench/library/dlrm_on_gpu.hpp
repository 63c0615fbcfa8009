// SPDX-License-Identifier: Apache-2.0
//! \file
//! Timing a recommender on a GPU, over any view of its tables. For CUDA sources.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/recommender/cublas.hpp"
#include "apps/recommender/dlrm.hpp"
#include "apps/recommender/trace.hpp"
#include "harness/event_timer.hpp"
#include "library/dlrm_bench.hpp"

namespace forebay::bench {

using recommender::dlrm;
using recommender::dlrm_batch;
using recommender::dlrm_cublas;
using recommender::dlrm_lookahead;
using recommender::dlrm_quad;
using recommender::dlrm_quad_floats;

/// A trace in the GPU's memory, cut into batches of any size.
class dlrm_inputs {
 public:
  dlrm_inputs(memory::resource& from, dlrm_trace const& trace)
      : tables_(trace.tables()),
        dense_count_(trace.dense),
        samples_(trace.samples()),
        rows_(from, trace.rows_in_one_table()),
        dense_(from, trace.dense_values),
        clicks_(from, trace.samples()) {}

  std::uint64_t samples() const { return samples_; }
  /// Whole batches of the trace from sample `first` on, at most `batches_max`.
  std::vector<dlrm_batch> batches(std::uint32_t samples, std::uint64_t batches_max, std::uint64_t first = 0) const {
    std::vector<dlrm_batch> cut;
    for (std::uint64_t s = first; s + samples <= samples_ && cut.size() < batches_max; s += samples) {
      cut.push_back({samples, rows_.data() + s * tables_, dense_.data() + s * dense_count_, clicks_.data() + s});
    }
    return cut;
  }
  std::vector<float> clicks() const { return clicks_.to_host(); }

 private:
  std::uint32_t tables_;
  std::uint32_t dense_count_;
  std::uint64_t samples_;
  apps::device_array<std::uint32_t> rows_;
  apps::device_array<float> dense_;
  apps::device_array<float> clicks_;
};

/// One recommender over one view. The streams are its own.
template <class Table>
class dlrm_on_gpu {
 public:
  dlrm_on_gpu(dlrm_config const& config, Table table, std::uint64_t page_quads, std::uint32_t samples_max,
              cublas_math math)
      : products_(run_.stream().get(), run_.memory(), math),
        model_(run_, side_, products_, config, table, page_quads, samples_max) {}

  /// From the first batch's gather to the last one's clicks.
  double seconds_in_turn(std::vector<dlrm_batch> const& batches) const {
    return seconds_of(run_.stream(), [&] { model_.run_in_turn(batches); });
  }
  double seconds_ahead(std::vector<dlrm_batch> const& batches, dlrm_lookahead const& ahead) const {
    return seconds_of(run_.stream(), [&] { model_.run_ahead(batches, ahead); });
  }
  /// One part of the work alone.
  double seconds_to_gather(std::vector<dlrm_batch> const& batches) const {
    return seconds_of(run_.stream(), [&] {
      for (dlrm_batch const& b : batches) model_.gather(b);
    });
  }
  double seconds_to_infer(std::vector<dlrm_batch> const& batches) const {
    return seconds_of(run_.stream(), [&] {
      for (dlrm_batch const& b : batches) model_.infer(b);
    });
  }
  std::uint64_t wrong_floats(dlrm_batch const& batch) const { return model_.wrong_floats(batch); }
  apps::failure_latch failures() const { return model_.failures(); }
  int cublas_version() const { return products_.version(); }
  apps::executor<simt::cuda> const& run() const { return run_; }

 private:
  apps::executor<simt::cuda> run_{0};
  /// The kernel's blocks are few and mostly wait; behind those of the networks they would begin too late.
  apps::executor<simt::cuda> side_{0, memory::urgency::first};
  dlrm_cublas products_;
  dlrm<apps::executor<simt::cuda>, Table, dlrm_cublas> model_;
};

}  // namespace forebay::bench
