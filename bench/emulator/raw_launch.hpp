// SPDX-License-Identifier: Apache-2.0
//! \file
//! The raw client on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "emulator/raw_client.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::bench {

/// What `raw_client` has, by value.
struct raw_launch {
  raw_queue* queues = nullptr;
  std::uint32_t queue_count = 0;
  std::byte* buffers = nullptr;
  std::int64_t bus_offset = 0;
  raw_workload work;
  raw_result* result = nullptr;
};

/// Returns before it has run.
void launch_raw_client(simt::grid const& shape, raw_launch const& what, cudaStream_t stream);

/// Reads blocks of 512 bytes from anywhere in `bytes` bytes at `region`, `rounds` x 8 by each warp; what a drive that
/// stores its bytes there can do at most.
void launch_raw_reads(simt::grid const& shape, std::byte const* region, std::uint64_t bytes, std::uint32_t rounds,
                      std::uint32_t* sink, cudaStream_t stream);

}  // namespace forebay::bench
