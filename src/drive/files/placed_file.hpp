// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a file of a file system lies on its block device, and keeping it there.
#pragma once

#include <linux/fiemap.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../open_file.hpp"
#include "forebay/detail/driver/file_extent.hpp"

namespace forebay::drive::files {

/// The extents of a file on its block device, by `byte`, without gaps. The last one is rounded up to a whole block of
/// the file system.
struct placement {
  std::string device;  ///< `nbd0`, the block device of the file system
  std::uint64_t file_bytes = 0;
  std::vector<file_extent> extents;
};

/// A file that was opened for reading, and that nobody has open for writing. It has what somebody wrote: all that is in
/// the system's memory is written to the device first. Thread-safe.
class placed_file {
 public:
  /// Throws `refused_input` for a file that cannot be read past the file system: it is none of ext4 or XFS, is empty or
  /// open for writing, or has holes or extents that are unwritten, inline, shared, encrypted or compressed.
  explicit placed_file(std::string const& path);

  placement const& where() const { return where_; }
  std::string const& path() const { return path_; }
  /// Whether somebody wants to write the file, and waits until this object is destroyed, or for a time that the system
  /// sets (/proc/sys/fs/lease-break-time).
  bool is_wanted() const;
  /// Whether it lies elsewhere by now. The lease keeps it from being written, but some file systems let its owner
  /// share its blocks with another file meanwhile.
  bool has_moved() const noexcept;
  /// Reads through the file system. Throws `operation_failed`.
  void read(void* to, std::size_t bytes, std::uint64_t byte) const;

 private:
  std::string const path_;
  open_file file_;
  std::uint64_t device_first_byte_ = 0;  ///< of a partition
  std::uint64_t block_bytes_ = 0;        ///< of the file system
  placement where_;
};

/// The extents as the system tells them, checked. `device_first_byte`: where the file system's device begins on the
/// whole one. `block_bytes`: of the file system. Throws `refused_input` that names `path`.
std::vector<file_extent> checked_extents(std::string const& path, std::uint64_t file_bytes,
                                         std::span<fiemap_extent const> told, std::uint64_t device_first_byte,
                                         std::uint64_t block_bytes);

}  // namespace forebay::drive::files
