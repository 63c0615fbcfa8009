// SPDX-License-Identifier: Apache-2.0
//! \file
//! The buffers of a run on a GPU: where the host has them, where kernels have them, and how bytes get from one to the
//! other. Only where CUDA is built in.
//!
//! Memory comes straight from CUDA (`device_memory.hpp`). `memory::pinned` keeps what is freed, and would hide what
//! allocation costs, which the suite measures.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "apps/transfer/attribution.hpp"
#include "apps/transfer/modes.hpp"
#include "apps/transfer/workload.hpp"
#include "forebay/cuda_stream.hpp"

namespace forebay::transfer {

/// One run calls, in this order: `allocate`, then (if the mode is managed: only then) fills `host()`, `to_device`, the
/// kernels in `stream()` on `device()`, `to_host`, `finish`, `release`. It may begin again. Not thread-safe. Members
/// throw `operation_failed`, with the call of CUDA that failed.
class gpu_buffers {
 public:
  /// Makes the host's buffers, and touches them, except in managed modes. Throws `refused_input` if the GPU cannot do
  /// this transfer, or has too little memory; then nothing was allocated.
  gpu_buffers(std::vector<buffer> buffers, transfer_kind transfer, allocation_kind allocation, int ordinal);
  gpu_buffers(gpu_buffers const&) = delete;
  gpu_buffers& operator=(gpu_buffers const&) = delete;
  ~gpu_buffers();

  void allocate();
  /// The buffers of the host. Scratch buffers have none, except after `fetch_scratch`, and where kernels work in place.
  views host() const;
  /// Starts to bring the buffers that are read to the device.
  void to_device();
  views device() const;
  /// Starts to bring results to the host, when the kernels in the stream have ended.
  void to_host();
  /// Returns when results are in `host()`.
  void finish();
  /// Gives the device's memory back.
  void release();
  /// For verification: copies scratch buffers to the host. Between `finish` and `release`.
  void fetch_scratch();

  memory::cuda_stream const& stream() const;
  /// How long page-locking took, in seconds: of the host's buffers, or of the chunks that copies go through.
  double page_locking_seconds() const;
  /// When threads of the host copied or touched bytes since `allocate`, on the steady clock.
  std::vector<activity> const& host_work() const;

 private:
  class implementation;
  std::unique_ptr<implementation> here_;
};

}  // namespace forebay::transfer
