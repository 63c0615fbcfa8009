// SPDX-License-Identifier: Apache-2.0
//! \file
//! The limits of a storage that is made of several drives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/error.hpp"

namespace forebay {

struct drive_limits {
  std::uint64_t bytes;              ///< of the smallest drive
  std::uint64_t command_bytes_max;  ///< of one command, whichever drive it goes to
  bool write_protected;             ///< one of them at least is
};

/// `command_bytes_max`: the limit that the storage itself sets. `names`: of the drives, for errors. Throws
/// `refused_input` if the drives cannot make one storage.
inline drive_limits limits_of_all(std::span<driver::drive_identity const> drives, std::span<std::string const> names,
                                  std::uint64_t command_bytes_max) {
  driver::drive_identity const& first = drives.front();
  drive_limits all{first.size_bytes(), command_bytes_max, false};
  for (std::size_t i = 0; i < drives.size(); ++i) {
    driver::drive_identity const& id = drives[i];
    if (id.block_bytes != first.block_bytes) {
      throw refused_input("drives", names[i],
                          "its block is " + std::to_string(id.block_bytes) + " bytes, that of '" + names[0] + "' is " +
                              std::to_string(first.block_bytes) + ": use drives with the same block size");
    }
    // Device code has one namespace for all drives.
    if (id.nsid != first.nsid) {
      throw refused_input("drives", names[i],
                          "it is namespace " + std::to_string(id.nsid) + " of its controller, and '" + names[0] +
                              "' is namespace " + std::to_string(first.nsid) + ": use drives with the same nsid");
    }
    // Otherwise the same bytes would be in the storage twice.
    for (std::size_t k = 0; k < i; ++k) {
      if (id.serial.empty() || id.serial != drives[k].serial) continue;
      throw refused_input(
          "drives", names[i],
          "is the same drive as '" + names[k] + "', by its serial number, " + id.serial + ": name each drive once");
    }
    if (id.io_queue_pairs < 2) {
      throw refused_input("drives", names[i],
                          "it grants 1 I/O queue pair, a storage needs 2 or more: one is the host's");
    }
    all.bytes = std::min(all.bytes, id.size_bytes());
    all.command_bytes_max = std::min(all.command_bytes_max, id.max_transfer_bytes);
    all.write_protected = all.write_protected || id.write_protected;
  }
  return all;
}

}  // namespace forebay
