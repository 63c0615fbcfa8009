// SPDX-License-Identifier: Apache-2.0
//! \file
//! A run of a workload on the CPU executor.
#pragma once

#include <cstdint>
#include <string>

#include "apps/transfer/workload.hpp"

namespace forebay::transfer {

struct cpu_run {
  std::string mismatch;  ///< "" if the results are right
  double seconds = 0;    ///< that the kernels took. It says nothing of a GPU
};

/// Throws `operation_failed` if a kernel fails.
cpu_run run_on_cpu(workload const& work, stage_kind how, std::uint64_t seed);

}  // namespace forebay::transfer
