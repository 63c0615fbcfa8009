// SPDX-License-Identifier: Apache-2.0
//! \file
//! The device whose threads use a storage, and where their memory lies.
#pragma once

#include <cstdint>
#include <string>

#include "forebay/memory.hpp"

namespace forebay::detail {

/// A GPU, or the CPU. A value.
class client_device {
 public:
  /// `cpu`, `cuda:N`, or `auto`: GPU 0 where there is one. Throws `refused_input`.
  static client_device named(std::string const& name);

  bool on_gpu() const { return gpu_ != no_gpu; }
  /// -1 if it is the CPU.
  int gpu() const { return gpu_; }
  /// `cuda:N` or `cpu`.
  std::string name() const { return on_gpu() ? "cuda:" + std::to_string(gpu_) : "cpu"; }
  /// The memory where its threads keep their own data.
  memory::resource& memory() const { return on_gpu() ? memory::device(gpu_) : memory::host(); }
  /// The memory that its threads and the host both reach.
  memory::resource& shared_memory() const { return on_gpu() ? memory::pinned() : memory::host(); }
  /// The host's clock that runs as `M::clock_ns()` of its kernels does.
  std::uint64_t (*clock() const)();

 private:
  static constexpr int no_gpu = -1;
  explicit client_device(int gpu) : gpu_(gpu) {}
  int gpu_;
};

}  // namespace forebay::detail
