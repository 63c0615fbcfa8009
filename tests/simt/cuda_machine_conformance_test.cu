// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <utility>

#include "forebay/detail/simt/cuda.hpp"
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

/// What a thread can ask about itself in a launch of any shape.
struct place {
  std::uint32_t thread_rank, thread_count, block_rank, rank_in_block, block_size, lane, warp_mask, lane_0_rank;
};

/// Each thread writes its place to the element that CUDA's own indices give it.
__global__ void write_places(place* places) {
  using M = simt::cuda;
  auto const block = M::this_block();
  auto const warp = M::this_warp();
  std::uint32_t const x = blockIdx.x * blockDim.x + threadIdx.x;
  std::uint32_t const y = blockIdx.y * blockDim.y + threadIdx.y;
  std::uint32_t const z = blockIdx.z * blockDim.z + threadIdx.z;
  std::uint32_t const columns = gridDim.x * blockDim.x;
  std::uint32_t const rows = gridDim.y * blockDim.y;
  places[(z * rows + y) * columns + x] = {
      M::thread_rank(), M::thread_count(),  block.rank,  block.thread_rank(),
      block.size(),     warp.thread_rank(), warp.mask(), warp.shfl(block.thread_rank(), 0)};
}

TEST(CudaLaunch, ThreadsOfLaunchesOfThreeDimensionsHaveRanksOfTheirOwnAndTheMaskOfTheirWarp) {
  if (char const* const reason = on_gpu::unavailable()) GTEST_SKIP() << reason;
  for (auto const& [blocks, threads] : {std::pair(dim3(5), dim3(96)), std::pair(dim3(3, 2), dim3(8, 8)),
                                        std::pair(dim3(2, 3, 4), dim3(5, 7, 3)), std::pair(dim3(1, 4), dim3(3, 3))}) {
    std::size_t const block_size = std::size_t{threads.x} * threads.y * threads.z;
    std::size_t const count = std::size_t{blocks.x} * blocks.y * blocks.z * block_size;
    std::vector<place> places(count);
    place* on_device = nullptr;
    require(cudaMalloc(&on_device, count * sizeof(place)));
    write_places<<<blocks, threads, 0, cudaStreamPerThread>>>(on_device);
    require(cudaStreamSynchronize(cudaStreamPerThread));
    require(cudaMemcpy(places.data(), on_device, count * sizeof(place), cudaMemcpyDeviceToHost));
    require(cudaFree(on_device));

    std::set<std::uint32_t> ranks;
    for (place const& at : places) {
      ranks.insert(at.thread_rank);
      EXPECT_LT(at.thread_rank, count);
      EXPECT_EQ(at.thread_count, count);
      EXPECT_EQ(at.block_size, block_size);
      EXPECT_EQ(at.thread_rank, at.block_rank * block_size + at.rank_in_block);
      // The lane is the hardware's own: the threads of a warp are those whose ranks lie side by side.
      EXPECT_EQ(at.lane, at.rank_in_block % 32);
      EXPECT_EQ(at.lane_0_rank, at.rank_in_block / 32 * 32);
      std::size_t const lanes = std::min<std::size_t>(block_size - at.lane_0_rank, 32);
      EXPECT_EQ(at.warp_mask, lanes == 32 ? ~0u : (1u << lanes) - 1);
    }
    EXPECT_EQ(ranks.size(), count);
  }
}

}  // namespace
}  // namespace forebay::simt::testing
