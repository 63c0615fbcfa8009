// SPDX-License-Identifier: Apache-2.0
//! \file
//! Launches of the library's clients, for sources that nvcc does not compile.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "emulator/raw_workload.hpp"
#include "forebay/simt/vocabulary.hpp"
#include "forebay/storage/storage.hpp"
#include "library/library_client.hpp"

namespace forebay::bench {

/// What the compiler made of a kernel, and how many of its threads a multiprocessor runs at a time.
struct kernel_shape {
  int registers = 0;
  int local_bytes = 0;  ///< spilled, and arrays that found no registers
  std::uint32_t threads_per_sm = 0;
};

/// `open` is 1, 2 or 4.
kernel_shape library_reader_shape(std::uint32_t open, std::uint32_t threads_per_block);

/// Both return before they have run.
void launch_library_reader(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           raw_workload const& work, std::uint32_t open, library_result* result, cudaStream_t stream);
void launch_library_writer(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           library_result* result, cudaStream_t stream);

}  // namespace forebay::bench
