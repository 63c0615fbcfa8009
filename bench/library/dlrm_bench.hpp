// SPDX-License-Identifier: Apache-2.0
//! \file
//! A recommender on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "apps/recommender/cublas.hpp"

namespace forebay::recommender {
struct dlrm_config;
struct dlrm_trace;
}  // namespace forebay::recommender

namespace forebay::bench {

using recommender::cublas_math;
using recommender::dlrm_config;
using recommender::dlrm_trace;

/// The caller takes the median.
struct dlrm_seconds {
  double in_turn;
  double ahead;
  double gather;
  double infer;
};

/// With its tables in the memory of GPU 0: the cost without a cache. Throws `refused_input`, `operation_failed`.
class dlrm_in_memory {
 public:
  dlrm_in_memory(dlrm_config const& config, dlrm_trace const& trace, std::uint32_t samples_max, cublas_math math);
  ~dlrm_in_memory();
  dlrm_in_memory(dlrm_in_memory const&) = delete;
  dlrm_in_memory& operator=(dlrm_in_memory const&) = delete;

  /// Cuts the trace into whole batches, at most `batches_max`; returns how many there are.
  std::uint64_t cut(std::uint32_t samples, std::uint64_t batches_max);
  /// Of the last cut.
  dlrm_seconds measure();
  /// Compares the clicks of the first `samples` of the trace, as the last measurement left them, with those by products
  /// without cuBLAS. Returns the largest difference.
  double largest_error(std::uint32_t samples);
  int cublas_version() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
