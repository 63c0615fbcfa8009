// SPDX-License-Identifier: Apache-2.0
#include "storage/launch_report_on_gpu.hpp"

#include <cuda_runtime_api.h>

#include "forebay/cuda_stream.hpp"

namespace forebay::detail {

namespace {

std::uint32_t attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  memory::check_cuda(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return static_cast<std::uint32_t>(value);
}

}  // namespace

launch_report report_cuda_launch(void const* entry, simt::grid const& shape, int ordinal) {
  check_shape(shape);
  memory::current_device const here(ordinal);
  // As simt::launch does: above 48 KiB a kernel has to ask for dynamic shared memory.
  if (shape.shared_bytes > 48 * 1024) {
    memory::check_cuda(
        cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)),
        "a block with " + std::to_string(shape.shared_bytes) + " bytes of shared memory");
  }
  cudaFuncAttributes kernel{};
  memory::check_cuda(cudaFuncGetAttributes(&kernel, entry), "cudaFuncGetAttributes");

  launch_report::gpu_use use;
  use.registers_per_thread = static_cast<std::uint32_t>(kernel.numRegs);
  use.local_bytes_per_thread = kernel.localSizeBytes;
  use.static_shared_bytes = kernel.sharedSizeBytes;
  use.max_threads_per_block = static_cast<std::uint32_t>(kernel.maxThreadsPerBlock);
  use.max_threads_per_sm = attribute(cudaDevAttrMaxThreadsPerMultiProcessor, ordinal);
  use.sms = attribute(cudaDevAttrMultiProcessorCount, ordinal);
  if (shape.threads_per_block <= use.max_threads_per_block) {
    int blocks = 0;
    memory::check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                           &blocks, entry, static_cast<int>(shape.threads_per_block), shape.shared_bytes),
                       "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    use.resident_blocks_per_sm = static_cast<std::uint32_t>(blocks);
  }
  use.limited_by =
      what_limits(use, shape,
                  {.max_blocks = attribute(cudaDevAttrMaxBlocksPerMultiprocessor, ordinal),
                   .shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, ordinal),
                   .reserved_shared_bytes_per_block = attribute(cudaDevAttrReservedSharedMemoryPerBlock, ordinal)});

  cudaDeviceProp properties{};
  memory::check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  return {properties.name, shape, use};
}

}  // namespace forebay::detail
