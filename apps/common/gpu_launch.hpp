// SPDX-License-Identifier: Apache-2.0
//! \file
//! Launches on the GPU of a storage, as `apps::cpu_launch` does on the CPU executor. For CUDA sources.
#pragma once

#include <cstdint>

#include "forebay/cuda_stream.hpp"
#include "forebay/machine.hpp"
#include "forebay/storage.hpp"

namespace forebay::apps {

/// Owns a stream that waits for no other. Not copyable.
class gpu_launch {
 public:
  /// Threads that are few get a warp each: lanes of one warp that are at different places of their code run one after
  /// the other, which costs a thread that waits for its own completion more than an idle lane does.
  static constexpr std::uint32_t threads_alone_max = 1024;
  static constexpr std::uint32_t threads_per_block = 128;

  explicit gpu_launch(storage const& drives)
      : drives_(drives), memory_(drives.device_memory()), stream_(drives.gpu_ordinal()) {}

  memory::resource& memory() const { return memory_; }
  /// Runs at least `threads` threads of `kernel`; returns when they have ended. Throws `operation_failed`.
  template <class Kernel>
  void operator()(std::uint32_t threads, Kernel const& kernel) const {
    std::uint32_t const per_block = threads <= threads_alone_max ? 1 : threads_per_block;
    storage_lease const running = drives_.lease();
    memory::current_device const here(stream_.ordinal());
    simt::launch<simt::cuda>({.blocks = (threads + per_block - 1) / per_block, .threads_per_block = per_block}, kernel,
                             stream_.get());
    stream_.synchronize();
  }

 private:
  storage const& drives_;
  memory::resource& memory_;
  memory::cuda_stream stream_;
};

}  // namespace forebay::apps
