// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which memory a drive reaches when threads of a GPU use it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace forebay::drive {

/// Where the queues and the data of a GPU's commands are. docs/concepts/placements.md compares the three.
enum class gpu_placement : std::uint8_t {
  host = 1,         ///< queues and data in page-locked host memory
  data_on_gpu = 2,  ///< queues there, data in the GPU's memory
  all_on_gpu = 3,   ///< both in the GPU's memory
};

/// The placement of each direction. They may differ: writing to a GPU's memory works on machines where reading it does
/// not. If one of them is `all_on_gpu`, both are.
struct gpu_placements {
  gpu_placement reads = gpu_placement::host;   ///< of data that comes from the drive
  gpu_placement writes = gpu_placement::host;  ///< of data that goes to the drive

  bool queues_on_gpu() const { return reads == gpu_placement::all_on_gpu; }
  /// Of a buffer that is both read and written.
  gpu_placement both_ways() const { return std::min(reads, writes); }
};

}  // namespace forebay::drive
