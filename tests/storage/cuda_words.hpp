// SPDX-License-Identifier: Apache-2.0
//! \file
//! The few names of CUDA C++ that the examples in docs/examples/ use, for the CPU executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "forebay/detail/simt/launch.hpp"

#define __global__

/// `threadIdx.x` and its kin: their values depend on the lane that reads them.
namespace forebay::cuda_words {

using machine = simt::fiber;

template <auto Ask>
struct index {
  struct {
    operator unsigned() const { return Ask(); }
  } x;
};
template <class Kernel>
void launch(unsigned blocks, unsigned threads_per_block, Kernel const& kernel) {
  simt::launch<machine>({blocks, threads_per_block}, kernel);
}

}  // namespace forebay::cuda_words

inline constexpr forebay::cuda_words::index<[] { return forebay::cuda_words::machine::this_block().rank; }> blockIdx{};
inline constexpr forebay::cuda_words::index<[] { return forebay::cuda_words::machine::this_block().size(); }>
    blockDim{};
inline constexpr forebay::cuda_words::index<[] { return forebay::cuda_words::machine::this_block().thread_rank(); }>
    threadIdx{};
inline constexpr forebay::cuda_words::index<[] {
  return forebay::cuda_words::machine::thread_count() / forebay::cuda_words::machine::this_block().size();
}>
    gridDim{};

enum cuda_words_status { cudaSuccess };
template <class T>
cuda_words_status cudaMallocManaged(T** address, std::size_t bytes) {
  // The examples free nothing; the end of the process does.
  static std::vector<std::unique_ptr<std::byte[]>> kept;
  kept.push_back(std::make_unique<std::byte[]>(bytes));
  *address = reinterpret_cast<T*>(kept.back().get());
  return cudaSuccess;
}
inline cuda_words_status cudaStreamSynchronize(std::nullptr_t) {
  return cudaSuccess;
}
inline void atomicAdd(double* to, double amount) {
  // Lanes of one OS thread switch only in waits; the exchange keeps out lanes of other OS threads.
  auto& bits = *reinterpret_cast<std::uint64_t*>(to);
  auto word = forebay::simt::atomic<forebay::cuda_words::machine>(bits);
  // Relaxed, both: a sum that is read after the launch.
  std::uint64_t before = word.load(forebay::simt::order::relaxed);
  for (std::uint64_t after = 0;;) {
    double sum;
    __builtin_memcpy(&sum, &before, sizeof sum);
    sum += amount;
    __builtin_memcpy(&after, &sum, sizeof after);
    if (word.compare_exchange(before, after, forebay::simt::order::relaxed)) return;
  }
}
