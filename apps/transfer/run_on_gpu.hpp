// SPDX-License-Identifier: Apache-2.0
//! \file
//! Runs of a workload on a GPU in one mode: first one that is verified, then those that are timed. Only where CUDA is
//! built in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

struct gpu_run {
  std::string mismatch;  ///< "" if the results are right. If they are not, nothing was timed
  run_times cold;        ///< the first run of this mode, which was verified
  std::vector<run_times> warm;
  double page_locking_seconds = 0;  ///< of the host's buffers, once; in no total
};

/// Runs `work` on GPU `ordinal`. Throws `refused_input` if the GPU cannot do the mode or lacks memory, before anything
/// is allocated; `operation_failed` if CUDA fails.
gpu_run run_on_gpu(workload const& work, mode how, std::uint64_t seed, std::uint32_t repetitions, int ordinal);

}  // namespace forebay::transfer
