// SPDX-License-Identifier: Apache-2.0
#include "forebay/error.hpp"
#include "forebay/memory/cuda_stream.hpp"
#include "forebay/simt/cuda.hpp"
#include "library/random_reads.hpp"

namespace forebay::bench {
namespace {

/// Calls `with` with the reader for that many open requests.
template <class With>
auto for_open(std::uint32_t open, With&& with) {
  switch (open) {
    case 1:
      return with(library_reader<simt::cuda, 1>{});
    case 2:
      return with(library_reader<simt::cuda, 2>{});
    case 4:
      return with(library_reader<simt::cuda, 4>{});
    default:
      throw refused_input("open", std::to_string(open), "use 1, 2 or 4");
  }
}

}  // namespace

kernel_shape library_reader_shape(std::uint32_t open, std::uint32_t threads_per_block) {
  return for_open(open, [&]<class Reader>(Reader const&) {
    auto const entry = reinterpret_cast<void const*>(simt::detail::cuda_entry_of<Reader>());
    cudaFuncAttributes found{};
    memory::check_cuda(cudaFuncGetAttributes(&found, entry), "cudaFuncGetAttributes");
    int blocks = 0;
    memory::check_cuda(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, entry, static_cast<int>(threads_per_block), 0),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    return kernel_shape{found.numRegs, static_cast<int>(found.localSizeBytes),
                        static_cast<std::uint32_t>(blocks) * threads_per_block};
  });
}

void launch_library_reader(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           raw_workload const& work, std::uint32_t open, library_result* result, cudaStream_t stream) {
  for_open(open, [&]<class Reader>(Reader reader) {
    reader.storage = drives.ref<simt::cuda>();
    reader.buffers = buffers;
    reader.work = work;
    reader.result = result;
    simt::launch<simt::cuda>(shape, reader, stream);
  });
}

void launch_library_writer(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           library_result* result, cudaStream_t stream) {
  simt::launch<simt::cuda>(shape, library_writer<simt::cuda>{drives.ref<simt::cuda>(), buffers, result}, stream);
}

}  // namespace forebay::bench
