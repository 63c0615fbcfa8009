// SPDX-License-Identifier: Apache-2.0
//! \file
//! Runs of a workload on a GPU in one mode: first one that is verified, then those that are timed, then those that are
//! traced. Only where CUDA is built in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/transfer/activity.hpp"
#include "apps/transfer/attribution.hpp"
#include "apps/transfer/modes.hpp"
#include "apps/transfer/workload.hpp"

namespace forebay::transfer {

/// One run, in seconds of the host's monotonic clock but for `kernels`.
struct run_times {
  double total = 0;  ///< from the allocation of device memory until it is free again; without filling managed memory
  double allocation = 0;  ///< of that
  double release = 0;     ///< of that
  double kernels = 0;     ///< from the start of the first kernel to the end of the last, by events of the GPU
};

/// What the time of a traced run went to: of the run whose total is the median.
struct traced_run {
  attribution time;
  std::optional<page_moves> pages;  ///< in modes whose pages move, where CUPTI can say
  std::string note;                 ///< why it cannot, if so
  std::uint32_t runs = 0;           ///< of how many runs it is the median
};

struct gpu_run {
  std::string mismatch;             ///< "" if the results are right. If they are not, nothing was timed
  run_times cold;                   ///< the first run of this mode, which was verified
  std::vector<run_times> warm;      ///< not traced
  double page_locking_seconds = 0;  ///< of the host's buffers or chunks, once; in no total
  std::optional<traced_run> traced;
  std::string traced_reason;  ///< why nothing was traced, if so
};

struct run_counts {
  std::uint32_t timed = 1;
  std::uint32_t traced = 0;  ///< if more than one, another is traced before, because CUPTI does much when first used
  std::vector<std::string> cupti_folders;  ///< where CUPTI may lie, besides the usual places
};

/// Runs `work` on GPU `ordinal`. Throws `refused_input` if the GPU cannot do the mode or lacks memory, before anything
/// is allocated; `operation_failed` if CUDA fails. If only the trace fails, the result says why.
gpu_run run_on_gpu(workload const& work, mode how, std::uint64_t seed, run_counts const& counts, int ordinal);

/// What results of one set have in common.
struct gpu_identity {
  std::string name;
  std::string driver;  ///< "580.95.05", or "unknown"
};
gpu_identity identity_of_gpu(int ordinal);

}  // namespace forebay::transfer
