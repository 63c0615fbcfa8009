// SPDX-License-Identifier: Apache-2.0
#include "forebay/simt/cuda.hpp"
#include "machine_conformance.hpp"

namespace forebay::simt::testing {
namespace {

void require(cudaError_t error) {
  if (error != cudaSuccess) throw operation_failed(cudaGetErrorString(error));
}

struct on_gpu {
  using machine = simt::cuda;
  static char const* unavailable() {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices != 0 ? nullptr : "no CUDA device";
  }
  template <class Kernel, class T>
  static void run(grid const& shape, Kernel const& kernel, std::vector<T>& data) {
    T* on_device = nullptr;
    require(cudaMalloc(&on_device, data.size() * sizeof(T)));
    require(cudaMemcpy(on_device, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice));
    launch<simt::cuda>(shape, kernel.with(on_device), cudaStreamPerThread);
    require(cudaStreamSynchronize(cudaStreamPerThread));
    require(cudaMemcpy(data.data(), on_device, data.size() * sizeof(T), cudaMemcpyDeviceToHost));
    require(cudaFree(on_device));
  }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, MachineConformance, on_gpu);

TEST(CudaLaunch, RefusesAShapeThatTheDeviceHasNot) {
  if (char const* const reason = on_gpu::unavailable()) GTEST_SKIP() << reason;
  EXPECT_THROW(launch<simt::cuda>(grid{1, 4096, 0}, chain_kernel<simt::cuda>{nullptr}), operation_failed);
}

}  // namespace
}  // namespace forebay::simt::testing
