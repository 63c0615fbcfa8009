// SPDX-License-Identifier: Apache-2.0
//! \file
//! Launches of the kernels over a cache whose frames are staged, or are not, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "forebay/storage.hpp"
#include "library/cache_bench.hpp"

namespace forebay::bench {

/// An array on drives, behind a cache.
class cached_elements {
 public:
  virtual ~cached_elements() = default;
  virtual storage& drives() = 0;
  /// Writes all elements.
  virtual cache_run write() = 0;
  virtual cache_run random(std::uint32_t threads_per_sm, std::uint32_t rounds, std::uint64_t seed) = 0;
  /// Reads one element of each of `count` pages, from the `first` of a random order on.
  virtual cache_run each_page(std::uint32_t threads_per_sm, std::uint64_t first, std::uint64_t count) = 0;
  /// Registers per thread, and bytes of local memory, of a kernel: `write`, `random`, `each_page`.
  virtual std::string kernel_shapes() const = 0;
};

/// With staged frames if the options have staging pages.
std::unique_ptr<cached_elements> open_cached_elements(storage_options const& options, std::uint32_t client_sms);

}  // namespace forebay::bench
