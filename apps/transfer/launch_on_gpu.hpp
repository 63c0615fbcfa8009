// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the files that compile kernels for the GPU instantiate.
#pragma once

#include <cuda_runtime_api.h>

#include "apps/transfer/launch.hpp"

namespace forebay::transfer {

/// Starts kernels in a stream of the current GPU.
struct stream_run {
  using machine = simt::cuda;
  cudaStream_t stream;

  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    simt::launch<machine>(shape, kernel, stream);
  }
};

template <class W>
void launch_on_gpu(W const& work, stage_kind how, views memory, CUstream_st* stream) {
  launch_with(work, how, stream_run{stream}, memory);
}

}  // namespace forebay::transfer
