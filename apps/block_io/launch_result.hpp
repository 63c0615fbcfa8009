// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the threads of one launch counted, together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/block_io/kernel.hpp"
#include "apps/common/command_latencies.hpp"

namespace forebay::block_io {

struct launch_result {
  apps::command_latencies read;
  apps::command_latencies write;
  std::uint32_t threads = 0;  ///< that the workload had
  std::uint64_t epoch_ns = 0;
  std::uint64_t last_completion_ns = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t first_mismatch_byte = ~std::uint64_t{0};
  std::uint64_t errors = 0;
  status first_error;
  std::vector<std::uint32_t> written;  ///< one bit a block of the region

  /// Adds all that one thread counted except the bins.
  void merge(thread_result const& r) {
    read.merge(r.read);
    write.merge(r.write);
    last_completion_ns = std::max(last_completion_ns, r.last_completion_ns);
    mismatches += r.mismatches;
    first_mismatch_byte = std::min(first_mismatch_byte, r.first_mismatch_byte);
    if (errors == 0) first_error = r.first_error;
    errors += r.errors;
  }
};

}  // namespace forebay::block_io
