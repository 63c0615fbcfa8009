// SPDX-License-Identifier: Apache-2.0
//! \file
//! Timing of work in a stream.
#pragma once

#include <cuda_runtime_api.h>

#include "forebay/cuda_stream.hpp"

namespace forebay::bench {

/// How long the GPU takes for the work that `launch` puts into `stream`.
template <class Launch>
double seconds_of(memory::cuda_stream const& stream, Launch&& launch) {
  cudaEvent_t begin, end;
  memory::check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  memory::check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  cudaEventRecord(begin, stream.get());
  launch();
  memory::check_cuda(cudaGetLastError(), "launch");
  cudaEventRecord(end, stream.get());
  stream.synchronize();
  float ms = 0;
  memory::check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms / 1e3;
}

}  // namespace forebay::bench
