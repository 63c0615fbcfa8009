// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where an application's kernels run: a stream of a GPU, as `apps::cpu_executor` is the CPU. For CUDA sources.
#pragma once

#include <cstdint>

#include "forebay/cuda_stream.hpp"
#include "forebay/machine.hpp"
#include "forebay/memory.hpp"

namespace forebay::apps {

/// Owns a stream that waits for no other. Not copyable. Its GPU is the current one of the calling thread.
class gpu_executor {
 public:
  using machine = simt::cuda;

  explicit gpu_executor(int ordinal, memory::urgency how = memory::urgency::ordinary)
      : stream_(ordinal, how), memory_(memory::device(ordinal)) {
    int multiprocessors = 0;
    memory::check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, ordinal),
                       "cudaDeviceGetAttribute");
    warps_ = static_cast<std::uint32_t>(multiprocessors) * warps_per_multiprocessor;
    memory::check_cuda(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming), "cudaEventCreate");
  }
  gpu_executor(gpu_executor const&) = delete;
  gpu_executor& operator=(gpu_executor const&) = delete;
  ~gpu_executor() { cudaEventDestroy(reached_); }

  memory::resource& memory() const { return memory_; }
  memory::cuda_stream const& stream() const { return stream_; }
  /// How many warps an evenly divided job is worth.
  std::uint32_t warps() const { return warps_; }
  /// Returns before the kernel has run. Throws `operation_failed`.
  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    simt::launch<simt::cuda>(shape, kernel, stream_.get());
  }
  /// What is launched from now on starts when all that `other` has launched has run.
  void wait_for(gpu_executor const& other) const {
    memory::check_cuda(cudaEventRecord(other.reached_, other.stream_.get()), "cudaEventRecord");
    memory::check_cuda(cudaStreamWaitEvent(stream_.get(), other.reached_), "cudaStreamWaitEvent");
  }
  /// Returns when all that was launched has run.
  void synchronize() const { stream_.synchronize(); }

 private:
  static constexpr std::uint32_t warps_per_multiprocessor = 32;
  memory::cuda_stream stream_;
  memory::resource& memory_;
  std::uint32_t warps_ = 0;
  cudaEvent_t reached_ = nullptr;
};

}  // namespace forebay::apps
