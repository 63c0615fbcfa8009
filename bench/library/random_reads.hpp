// SPDX-License-Identifier: Apache-2.0
//! \file
//! Launches of the library's clients, for sources that nvcc does not compile.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "emulator/raw_workload.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/storage.hpp"
#include "library/library_client.hpp"

namespace forebay::bench {

/// The compiler's figures for a kernel, and how many of its threads a multiprocessor runs at a time.
struct kernel_shape {
  std::uint32_t registers = 0;
  std::uint64_t local_bytes = 0;  ///< spilled, and arrays that found no registers
  std::uint32_t threads_per_sm = 0;
};

/// How the threads of a reader work.
struct reader_kind {
  std::uint32_t open = 1;  ///< requests of a thread: 1, 2 or 4
  bool serviced = false;   ///< threads of `launch_library_service` consume the completions
};
kernel_shape library_reader_shape(reader_kind kind, std::uint32_t threads_per_block);

/// All of these return before their kernels have run.
void launch_library_reader(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           raw_workload const& work, reader_kind kind, library_result* result, cudaStream_t stream);
/// Runs until `*stop`, in page-locked memory, is set.
void launch_library_service(simt::grid const& shape, storage const& drives, std::uint32_t* stop, cudaStream_t stream);
void launch_library_writer(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           library_result* result, cudaStream_t stream);

}  // namespace forebay::bench
