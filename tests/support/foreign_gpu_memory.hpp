// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory of a GPU that a test's own call to `cudaMalloc` gives.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "forebay/cuda_stream.hpp"
#include "forebay/memory.hpp"

namespace forebay {

/// Memory of GPU 0 that the library knows nothing of.
class foreign_gpu_memory {
 public:
  explicit foreign_gpu_memory(std::size_t bytes) : bytes_(bytes) {
    memory::current_device const here(0);
    memory::check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
    memory::check_cuda(cudaMemset(data_, 0, bytes), "cudaMemset");
    memory::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  ~foreign_gpu_memory() { cudaFree(data_); }
  foreign_gpu_memory(foreign_gpu_memory const&) = delete;
  foreign_gpu_memory& operator=(foreign_gpu_memory const&) = delete;

  std::size_t size_bytes() const { return bytes_; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::vector<unsigned char> content() const {
    std::vector<unsigned char> all(bytes_);
    memory::device(0).copy_out(all.data(), data_, bytes_);
    return all;
  }
  void fill(std::vector<unsigned char> const& with) { memory::device(0).copy_in(data_, with.data(), with.size()); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace forebay
