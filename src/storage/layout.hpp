// SPDX-License-Identifier: Apache-2.0
//! \file
//! How the bytes of a storage lie on its drives, and how many queues kernels have there. Both follow from the options
//! and from what the drives report.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/storage.hpp"

namespace forebay::detail {

struct drive_plan {
  bool writable = false;             ///< neither the options nor a drive forbid it
  std::vector<drive_queues> queues;  ///< the kernels' on each drive: none of count and depth is 0
  std::uint32_t host_pairs = 1;      ///< the host's, on each drive
  storage_layout layout;             ///< with one pair on each drive, and without `file_extents`
  std::vector<file_extent> file_extents;
};

/// From checked options. At least one pair of each drive is left for the host. Throws `refused_input` if the drives
/// cannot make one storage, or not the one that was asked for. `file`: of the only drive, if that is a file.
drive_plan plan_drives(storage_options const& options, std::span<driver::drive_identity const> drives, bool on_gpu,
                       std::vector<file_extent> file = {});

}  // namespace forebay::detail
