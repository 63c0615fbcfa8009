// SPDX-License-Identifier: Apache-2.0
//! \file
//! Launches on the GPU of a storage, as `apps::cpu_launch` does on the CPU executor. For CUDA sources.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "forebay/error.hpp"
#include "forebay/simt/cuda.hpp"
#include "forebay/storage/storage.hpp"

namespace forebay::apps {

/// Owns a stream that waits for no other. Not copyable.
class gpu_launch {
 public:
  /// Threads that are few get a warp each: lanes of one warp that are at different places of their code run one after
  /// the other, which costs a thread that waits for its own completion more than an idle lane does.
  static constexpr std::uint32_t threads_alone_max = 1024;
  static constexpr std::uint32_t threads_per_block = 128;

  explicit gpu_launch(storage const& drives) : memory_(drives.device_memory()) {
    require(cudaSetDevice(drives.gpu_ordinal()), "select the GPU");
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "create a stream");
  }
  gpu_launch(gpu_launch const&) = delete;
  gpu_launch& operator=(gpu_launch const&) = delete;
  ~gpu_launch() { cudaStreamDestroy(stream_); }

  memory::resource& memory() const { return memory_; }
  /// Runs at least `threads` threads of `kernel`; returns when they have ended. Throws `operation_failed`.
  template <class Kernel>
  void operator()(std::uint32_t threads, Kernel const& kernel) const {
    std::uint32_t const per_block = threads <= threads_alone_max ? 1 : threads_per_block;
    simt::launch<simt::cuda>({.blocks = (threads + per_block - 1) / per_block, .threads_per_block = per_block}, kernel,
                             stream_);
    require(cudaStreamSynchronize(stream_), "run a kernel");
  }

 private:
  static void require(cudaError_t error, char const* what) {
    if (error != cudaSuccess) throw operation_failed(std::string("cannot ") + what + ": " + cudaGetErrorString(error));
  }

  memory::resource& memory_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace forebay::apps
