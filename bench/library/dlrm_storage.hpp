// SPDX-License-Identifier: Apache-2.0
//! \file
//! A recommender whose tables lie on drives, behind a cache, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "apps/recommender/cublas.hpp"

namespace forebay {
struct storage_options;
}
namespace forebay::recommender {
struct dlrm_config;
struct dlrm_trace;
}  // namespace forebay::recommender

namespace forebay::bench {

using recommender::cublas_math;
using recommender::dlrm_config;
using recommender::dlrm_trace;

/// While it lives, the drives' engines run. Throws `refused_input`, `operation_failed`.
class dlrm_on_storage {
 public:
  /// Opens the drives and writes the tables.
  dlrm_on_storage(dlrm_config const& config, dlrm_trace const& trace, std::uint32_t samples_max, cublas_math math,
                  storage_options const& options);
  ~dlrm_on_storage();
  dlrm_on_storage(dlrm_on_storage const&) = delete;
  dlrm_on_storage& operator=(dlrm_on_storage const&) = delete;

  /// Takes the next batches of the trace, so that a run does not find in the cache what the run before it has read;
  /// starts again where the trace ends. Returns how many they are.
  std::uint64_t take(std::uint32_t samples, std::uint64_t batches);
  /// Of the batches that were taken last.
  double seconds_in_turn();
  /// `patience_ns`: of a prefetch that finds the queues full.
  double seconds_ahead(std::uint64_t patience_ns);
  double seconds_to_gather();
  double seconds_to_infer();
  /// Of the last batch that was gathered.
  std::uint64_t wrong_floats();

  /// How many pages the cache can take in ahead of their use.
  std::uint64_t prefetch_distance_max() const;
  /// Whether an access failed so far.
  bool failed();
  /// JSON of what its drives did since the last call.
  std::string report();
  /// Registers per thread of the two kernels.
  std::uint32_t gather_registers() const;
  std::uint32_t prefetch_registers() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
