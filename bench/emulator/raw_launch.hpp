// SPDX-License-Identifier: Apache-2.0
//! \file
//! The clients of the benchmarks on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "emulator/raw_workload.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

/// The parameters of a client, by value.
struct raw_launch {
  raw_queue* queues = nullptr;
  std::uint32_t queue_count = 0;  ///< with `own_queues` at least the warps of the launch
  std::uint32_t* told = nullptr;  ///< a zero for each thread of the launch; not needed with `own_queues`
  raw_area area;
  raw_workload work;
  raw_result* result = nullptr;
  bool own_queues = false;  ///< a queue for each warp
};

/// Returns before the client has run.
void launch_raw_client(simt::grid const& shape, raw_launch const& what, cudaStream_t stream);

/// Reads blocks of 512 bytes from anywhere in `bytes` bytes at `region`, `rounds` x 8 by each warp, and stores them
/// anywhere in `to_bytes` bytes at `to`, if that is not null: to compare with a drive that has its bytes there.
void launch_raw_reads(simt::grid const& shape, std::byte const* region, std::uint64_t bytes, std::uint32_t rounds,
                      std::byte* to, std::uint64_t to_bytes, std::uint32_t* sink, cudaStream_t stream);

}  // namespace forebay::bench
