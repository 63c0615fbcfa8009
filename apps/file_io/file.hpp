// SPDX-License-Identifier: Apache-2.0
//! \file
//! The file that an engine measures.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::file_io {

/// How a file is used. `direct`: with O_DIRECT where the file system allows that. `random`: at random offsets, so that
/// the system need not read ahead.
struct file_use {
  bool writable = false;
  bool direct = false;
  bool random = false;
};

/// Owns an open file descriptor. A file that may be written is locked as a drive in a file is: it locks out drives, and
/// they lock it out. Members are thread-safe.
class file {
 public:
  /// Throws `refused_input`, field `--filename`.
  file(std::string const& path, file_use const& use);
  file(file const&) = delete;
  file& operator=(file const&) = delete;
  ~file();

  int descriptor() const { return descriptor_; }
  std::string const& path() const { return path_; }
  bool writable() const { return use_.writable; }
  /// Whether it is read and written past the page cache.
  bool direct() const { return use_.direct; }
  bool random() const { return use_.random; }
  bool block_device() const { return block_device_; }
  bool has_holes() const { return has_holes_; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  /// The least number of bytes that is transferred at once, and of which offsets are multiples. At least 512.
  std::uint64_t block_bytes() const { return block_bytes_; }

  /// Transfers all bytes. `data` begins at a multiple of 4096 bytes. Throws `operation_failed`.
  void read(void* data, std::uint64_t bytes, std::uint64_t offset_bytes) const;
  void write(void const* data, std::uint64_t bytes, std::uint64_t offset_bytes) const;

 private:
  void examine();
  void lock() const;
  bool reads_directly() const;
  void leave_direct();

  std::string path_;
  file_use use_;
  bool block_device_ = false;
  bool has_holes_ = false;
  int descriptor_ = -1;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t block_bytes_ = 512;
};

/// Transfers `bytes` bytes by pread or pwrite; returns 0 or an errno. Fewer bytes are EIO.
int read_whole(int descriptor, void* to, std::uint64_t bytes, std::uint64_t offset_bytes);
int write_whole(int descriptor, void const* from, std::uint64_t bytes, std::uint64_t offset_bytes);

}  // namespace forebay::file_io
