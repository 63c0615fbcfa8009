// SPDX-License-Identifier: Apache-2.0
//! \file
//! What transfers of the host need of CUDA: whose memory an address is, copies, and the order with a caller's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "forebay/memory.hpp"

namespace forebay::detail {

/// One allocation of memory.
struct memory_place {
  int gpu = -1;            ///< whose memory it is; -1: the host's
  bool managed = false;    ///< its pages move between the host and the GPU
  bool by_pieces = false;  ///< a range of addresses to which memory is mapped piece by piece, now and later
  std::uintptr_t first = 0;
  std::uint64_t bytes = 0;  ///< of the whole allocation, where a GPU has it
  /// No other allocation of the process ever has the same, even at the same address.
  std::uint64_t id = 0;
};

/// Work of a GPU that was started. For one thread at a time.
class gpu_work {
 public:
  virtual ~gpu_work() = default;
  /// Whether it has ended. Throws `operation_failed` if it failed.
  virtual bool ended() = 0;
};

/// A stream that is to wait for a transfer.
class stream_order {
 public:
  /// Lets the stream go on.
  virtual ~stream_order() = default;
  /// Has it wait, at the point at which it is now. Called once; throws `operation_failed`.
  virtual void begin() = 0;
  /// Lets it go on now. Any thread may call this after `begin`; it makes no call to CUDA.
  virtual void let_go() = 0;
  /// Whether the stream has come to the point at which the order began. Throws `operation_failed`.
  virtual bool reached() = 0;
};

/// Thread-safe. Its functions wait for nothing that a GPU does, but for what `order` says.
class gpu_access {
 public:
  virtual ~gpu_access() = default;
  /// Lets the calling thread, which is the library's own, work on while others capture CUDA graphs.
  virtual void allow_captures() = 0;
  /// Memory of the host from which GPUs copy by themselves.
  virtual memory::resource& locked_memory() = 0;
  /// Of an address that a caller gave.
  virtual memory_place place_of(void const* address) = 0;
  /// Starts a copy between memory of GPU `gpu` and page-locked memory of the host.
  virtual std::unique_ptr<gpu_work> copy(int gpu, void* to, void const* from, std::size_t bytes) = 0;
  /// Throws `refused_input` if it is a stream of another GPU than `gpu`, which is -1 for any. If as many streams as
  /// `stream_gate` allows wait already, the call returns once one of them goes on. Nothing that the drives or a call to
  /// CUDA may need may be held meanwhile. It asks `gives_up` now and then, and returns null if that says so.
  virtual std::unique_ptr<stream_order> order(std::uintptr_t stream, int gpu,
                                              std::function<bool()> const& gives_up) = 0;
};

/// CUDA's; null in a build without CUDA, and where there is no GPU. It lives as long as the process. The first call
/// loads the driver.
gpu_access* cuda_access();

}  // namespace forebay::detail
