// SPDX-License-Identifier: Apache-2.0
//! \file
//! The soak on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "forebay/storage.hpp"
#include "library/soak.hpp"

namespace forebay::bench {

/// Drives behind a cache, and kernels in several streams that use them. Throws `refused_input`, `operation_failed`.
class soak_on_gpu {
 public:
  /// `options.cache.user_frames` is not 0. Writes the drives. `work`: what the streams have in common.
  soak_on_gpu(storage_options const& options, std::uint32_t streams, std::uint32_t threads_of_stream,
              soak_work const& work);
  ~soak_on_gpu();
  soak_on_gpu(soak_on_gpu const&) = delete;
  soak_on_gpu& operator=(soak_on_gpu const&) = delete;

  /// Starts a kernel in each stream.
  void start(std::uint64_t run_ns, std::uint64_t seed);
  bool running() const;
  void finish();

  /// Of all kernels so far; to be asked when none runs.
  soak_result seen() const;
  std::vector<std::uint64_t> written() const;
  storage& drives();

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
