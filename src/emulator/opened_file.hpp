// SPDX-License-Identifier: Apache-2.0
//! \file
//! The file or block device that holds a drive's bytes: opened, checked and locked.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::emulator {

/// Which file a drive wants, and as what.
struct file_request {
  std::string path;
  std::uint64_t drive_bytes = 0;    ///< 0: as many as the file gives
  std::uint32_t block_bytes = 512;  ///< of the drive
  bool read_only = false;
  /// Of a block device that may be written although there is something on it: its name, path or serial number.
  std::string allow_destroy = {};
};

/// What direct I/O must be aligned to. Both 0: the system does not allow it for this file, or does not say.
struct direct_alignment {
  std::uint32_t memory_bytes = 0;
  std::uint32_t offset_bytes = 0;  ///< of offsets and lengths
};

/// Owns the file descriptor and its lock. Members are thread-safe.
///
/// A writer locks every other drive out, and readers lock writers out. A block device that is written is opened
/// exclusively too: the system then refuses to mount it, and this class refuses one that is in use. Programs that ask
/// for neither lock can still write.
class opened_file {
 public:
  /// Throws `refused_input` for whatever is not the file that was asked for, before anything of it has changed, and
  /// `operation_failed` if the system cannot tell what it is.
  explicit opened_file(file_request const& request);
  ~opened_file();
  opened_file(opened_file&& other) noexcept;
  opened_file(opened_file const&) = delete;
  opened_file& operator=(opened_file const&) = delete;

  /// Opened for what the request says, without O_DIRECT; `fcntl` sets that if `direct()` allows it.
  int fd() const { return fd_; }
  std::string const& path() const { return path_; }
  bool read_only() const { return read_only_; }
  bool is_block_device() const { return is_block_device_; }
  /// The bytes that are stored.
  std::uint64_t file_bytes() const { return file_bytes_; }
  /// The bytes of the drive: whole blocks, and the last one may reach beyond `file_bytes()`.
  std::uint64_t drive_bytes() const { return drive_bytes_; }
  direct_alignment direct() const { return direct_; }

 private:
  void open(file_request const& request);
  void check_size(file_request const& request);
  void check_contents(file_request const& request) const;
  void lock() const;

  std::string path_;
  bool read_only_;
  bool is_block_device_ = false;
  int fd_ = -1;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t drive_bytes_ = 0;
  direct_alignment direct_;
};

}  // namespace forebay::emulator
