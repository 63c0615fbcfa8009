// SPDX-License-Identifier: Apache-2.0
//! \file
//! The example of docs/how-to/port-a-kernel.md: the mean of a file of floats.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "forebay/machine.hpp"
#include "forebay/storage.hpp"

__global__ void sum(auto values, std::uint64_t n, double* total) {
  double mine = 0;
  std::uint64_t const first = blockIdx.x * blockDim.x + threadIdx.x;
  for (std::uint64_t i = first; i < n; i += gridDim.x * blockDim.x) mine += values[i];
  atomicAdd(total, mine);
}

int main(int, char** argv) {
  std::string const path = argv[1];
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  std::uint64_t const bytes = file.tellg(), n = bytes / sizeof(float);
  forebay::storage drive({.drives = {"file:" + path}, .cache = {.size_bytes = 64 << 20}});
  auto const values = drive.ref<forebay::simt::cuda, forebay::cached>().array<float const>();
  auto const running = drive.lease();
  double* total = nullptr;
  cudaMallocManaged(&total, sizeof(double));
  *total = 0;
  sum<<<64, 128>>>(values, n, total);
  if (cudaStreamSynchronize(nullptr) != cudaSuccess) return 1;
  std::printf("mean %g\n", *total / n);
  return 0;
}
