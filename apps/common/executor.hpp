// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the kernels of applications and benchmarks run: the CPU executor in real time, or a stream of a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/memory.hpp"
#if defined(__CUDACC__)
#include "forebay/cuda_stream.hpp"
#endif

namespace forebay::apps {

/// An executor has a machine, memory for its kernels, and runs them one after the other:
///
/// - `run(shape, kernel)`: a grid of any shape. It may return before the kernel has run; `run.synchronize()` waits.
///   What the kernel uses of a storage, the caller holds a lease of.
/// - `run.beside(drives, work)`: calls `work()`, in which launches may use the storage `drives`: it holds the lease.
/// - `run.threads(drives, count, kernel)`: at least `count` threads that do I/O on the storage `drives`, with its
///   lease. It returns when they have ended.
///
/// `simt::fiber` has one everywhere, `simt::cuda` in CUDA sources. That of `simt::native` has the last way only. That
/// of `simt::cuda` has one more, `run.warps(drives, count, kernel)`: `count` whole warps that do I/O.
template <class M>
class executor;

template <>
class executor<simt::fiber> {
 public:
  using machine = simt::fiber;

  executor() = default;
  /// On the CPU there is only one device; on GPUs there is a choice.
  explicit executor(int /*ordinal*/) {}

  memory::resource& memory() const { return memory::host(); }
  /// The number of warps among which an evenly divided job should be divided.
  std::uint32_t warps() const { return 8; }

  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    simt::launch<machine>(shape, kernel, {.os_threads = 2});
  }
  /// Launches from now on start when all launches of `other` so far have run.
  void wait_for(executor const& /*other*/) const {}
  /// Returns when all launches so far have run.
  void synchronize() const {}
  template <class Storage, class Work>
  void beside(Storage const& /*drives*/, Work&& work) const {
    work();
  }

  template <class Storage, class Kernel>
  void threads(Storage const& /*drives*/, std::uint32_t count, Kernel const& kernel) const {
    std::uint32_t const per_block = std::min(count, threads_per_block);
    simt::launch<machine>({.blocks = (count + per_block - 1) / per_block, .threads_per_block = per_block}, kernel);
  }

 private:
  static constexpr std::uint32_t threads_per_block = 32;
};

/// The calling thread, for kernels of one thread.
template <>
class executor<simt::native> {
 public:
  using machine = simt::native;

  executor() = default;
  explicit executor(int /*ordinal*/) {}

  memory::resource& memory() const { return memory::host(); }

  template <class Storage, class Kernel>
  void threads(Storage const& /*drives*/, std::uint32_t /*count*/, Kernel const& kernel) const {
    kernel();
  }
};

#if defined(__CUDACC__)
/// Owns a stream that waits for no other. Not copyable.
template <>
class executor<simt::cuda> {
 public:
  using machine = simt::cuda;

  explicit executor(int ordinal, memory::urgency how = memory::urgency::ordinary)
      : stream_(ordinal, how), memory_(memory::device(ordinal)) {
    int multiprocessors = 0;
    memory::check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, ordinal),
                       "cudaDeviceGetAttribute");
    warps_ = static_cast<std::uint32_t>(multiprocessors) * warps_per_multiprocessor;
    memory::current_device const here(ordinal);
    memory::check_cuda(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming), "cudaEventCreate");
  }
  executor(executor const&) = delete;
  executor& operator=(executor const&) = delete;
  ~executor() { cudaEventDestroy(reached_); }

  memory::resource& memory() const { return memory_; }
  memory::cuda_stream const& stream() const { return stream_; }
  /// The number of warps among which an evenly divided job should be divided.
  std::uint32_t warps() const { return warps_; }

  /// Returns before the kernel has run. The GPU is the current one of the calling thread. Throws `operation_failed`.
  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    simt::launch<machine>(shape, kernel, stream_.get());
  }
  /// Launches from now on start when all launches of `other` so far have run.
  void wait_for(executor const& other) const {
    memory::check_cuda(cudaEventRecord(other.reached_, other.stream_.get()), "cudaEventRecord");
    memory::check_cuda(cudaStreamWaitEvent(stream_.get(), other.reached_), "cudaStreamWaitEvent");
  }
  /// Returns when all launches so far have run.
  void synchronize() const { stream_.synchronize(); }

  /// Any GPU may be the calling thread's current one. Throws what `work` does.
  template <class Storage, class Work>
  void beside(Storage const& drives, Work&& work) const {
    auto const running = drives.lease();
    memory::current_device const here(stream_.ordinal());
    work();
    synchronize();
  }
  /// Both work on any GPU that is the calling thread's current one, and throw `operation_failed`.
  template <class Storage, class Kernel>
  void threads(Storage const& drives, std::uint32_t count, Kernel const& kernel) const {
    std::uint32_t const per_block = count <= threads_alone_max ? 1 : threads_per_block;
    run_with(drives, {.blocks = (count + per_block - 1) / per_block, .threads_per_block = per_block}, kernel);
  }
  template <class Storage, class Kernel>
  void warps(Storage const& drives, std::uint32_t count, Kernel const& kernel) const {
    run_with(drives, {.blocks = count, .threads_per_block = 32}, kernel);
  }

 private:
  template <class Storage, class Kernel>
  void run_with(Storage const& drives, simt::grid const& shape, Kernel const& kernel) const {
    beside(drives, [&] { (*this)(shape, kernel); });
  }

  static constexpr std::uint32_t warps_per_multiprocessor = 32;
  /// If the threads are few, each gets a warp of its own. Lanes of one warp that are at different places of their code
  /// run one after the other. That costs a thread that waits for its own completion more than idle lanes do.
  static constexpr std::uint32_t threads_alone_max = 1024;
  static constexpr std::uint32_t threads_per_block = 128;

  memory::cuda_stream stream_;
  memory::resource& memory_;
  std::uint32_t warps_ = 0;
  cudaEvent_t reached_ = nullptr;
};
#endif

}  // namespace forebay::apps
