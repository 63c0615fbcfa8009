// SPDX-License-Identifier: Apache-2.0
//! \file
//! Launches of the cache benchmark's kernels, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/storage.hpp"
#include "library/cache_kernels.hpp"

namespace forebay::bench {

/// One run of a kernel.
struct cache_run {
  double seconds = 0;
  cache_tally seen;
};

/// An array on drives, behind a cache, and the same array in the GPU's memory.
class cache_rig {
 public:
  /// `in_memory`: elements of the array that is not on a drive.
  cache_rig(storage_options const& options, std::uint32_t client_sms, std::uint64_t in_memory);
  ~cache_rig();
  cache_rig(cache_rig const&) = delete;
  cache_rig& operator=(cache_rig const&) = delete;

  storage& drives();
  std::uint64_t elements() const;

  cache_run write();
  /// `pages`: how many a warp holds at a time, 1 to 32.
  cache_run stream(bool memory, std::uint32_t threads_per_sm, std::uint32_t pages);
  cache_run random(bool memory, std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint64_t seed);
  cache_run each_page(std::uint32_t threads_per_sm, std::uint64_t first, std::uint64_t count);
  cache_run read_and_add(std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint32_t percent, std::uint64_t seed);

  /// Registers per thread, and bytes of local memory, of a kernel: `stream`, `random`, `each_page`, `read_and_add`.
  std::string kernel_shapes() const;

 private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

}  // namespace forebay::bench
