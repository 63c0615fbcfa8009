// SPDX-License-Identifier: Apache-2.0
//! \file
//! The workloads by name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "apps/transfer/workload.hpp"

namespace forebay::transfer {

struct registered_workload {
  workload_facts const* facts;
  std::unique_ptr<workload> (*make)(problem_size, launch_shape);
  /// How many kernels a run starts, one after the other.
  std::uint64_t (*launches)(problem_size, launch_shape);
};

/// In the order of the study: micro workloads, applications, networks.
std::span<registered_workload const> workloads();

/// Throws `refused_input`, which names the workload with the nearest name, or the member of the shape that does not
/// fit.
std::unique_ptr<workload> make_workload(std::string_view name, problem_size size, launch_shape shape = {});
/// As `registered_workload::launches`, with the errors of `make_workload`.
std::uint64_t launch_count(std::string_view name, problem_size size, launch_shape shape = {});

}  // namespace forebay::transfer
