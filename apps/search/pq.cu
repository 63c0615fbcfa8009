// SPDX-License-Identifier: Apache-2.0
#include "apps/search/run_pq_on.hpp"

namespace forebay::search {

template <>
block_room room_for<simt::cuda>(int gpu, std::uint32_t warp_bytes) {
  auto const attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    memory::check_cuda(cudaDeviceGetAttribute(&value, which, gpu), "cudaDeviceGetAttribute");
    return static_cast<std::uint32_t>(value);
  };
  constexpr std::uint32_t reserved_bytes = 1024;  // of each block, by the system (CUDA C++ Programming Guide)
  std::uint32_t const of_multiprocessor = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  std::uint32_t const blocks = std::min(32u, std::max(1u, of_multiprocessor / (warp_bytes + reserved_bytes)));
  return {.bytes_max = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin),
          .blocks = blocks * attribute(cudaDevAttrMultiProcessorCount)};
}

template search_found run_pq_on<simt::cuda>(placed_index const&, query_set const&, search_options const&);

}  // namespace forebay::search
