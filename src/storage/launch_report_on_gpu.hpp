// SPDX-License-Identifier: Apache-2.0
//! \file
//! The parts of a launch report that do not need a GPU, so that they can be tested without one.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/error.hpp"
#include "forebay/launch_report.hpp"

namespace forebay::detail {

/// The resources of a multiprocessor that its blocks share.
struct sm_limits {
  std::uint32_t max_blocks = 0;
  std::uint64_t shared_bytes = 0;
  std::uint64_t reserved_shared_bytes_per_block = 0;  ///< taken by the system for each block
};

/// Throws `refused_input` unless the shape has blocks and threads.
void check_shape(simt::grid const& shape);

/// `launch_report::gpu_use::limited_by` for the rest of `use`.
std::string what_limits(launch_report::gpu_use const& use, simt::grid const& shape, sm_limits const& sm);

}  // namespace forebay::detail
