// SPDX-License-Identifier: Apache-2.0
//! \file
//! The storage for an emulated drive's bytes: anonymous memory, a mapped file, a copy of either in other memory, or
//! none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "forebay/detail/emulator/media.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// How the bytes of a file are reached.
enum class file_io : std::uint8_t {
  automatic,  ///< one of the others, whichever suits the file at the moment when it is opened
  uring,      ///< requests to the system, many at a time
  mmap,       ///< loads and stores
};

/// How the bytes of a drive's file are reached, and why not otherwise.
struct file_access {
  file_io io = file_io::mmap;
  std::string why;  ///< empty: because the drive says so
  bool direct = false;
  std::string why_not_direct = {};
  bool fixed_buffers = false;  ///< all memory that clients have registered so far is registered with the kernel
  std::string why_no_fixed_buffers = {};
  bool polled = false;  ///< the kernel polls the device for completions
  std::string why_not_polled = {};
};

/// Owns the storage of one drive. Move-only through `std::unique_ptr`.
class backing_store {
 public:
  virtual ~backing_store() = default;
  /// Valid as long as this object.
  virtual media view() = 0;
  /// The memory to which the pointers of `view()` point.
  virtual memory::resource& where() { return memory::host(); }
  /// As it is at the moment. None for a store that is no file. Thread-safe.
  virtual std::optional<file_access> access() const { return std::nullopt; }
  /// Makes everything durable that was written before the call. False: the operating system could not.
  virtual bool sync() = 0;
  /// Has the system allocate memory for [0, bytes) now, not at the first access of each page, which would take far
  /// longer than the drive. The contents of the pages stay as they are. Does nothing if the pages are not ordinary
  /// memory, or if they would take more than half of what the machine has left. Returns how many of the bytes need no
  /// allocation any more. If `cancel` says so, ends early and returns none. Thread-safe.
  virtual std::uint64_t populate(std::uint64_t bytes, std::stop_token const& cancel = {}) {
    static_cast<void>(cancel);
    return bytes;
  }
};

/// Zeroed memory of `from`; pages that were never written cost nothing.
std::unique_ptr<backing_store> memory_backing(std::uint64_t bytes, std::uint32_t block_bytes,
                                              memory::resource& from = memory::host());

/// A file or block device. Mapped, writes reach it at once, and its disk at `sync`; with io_uring, a write that
/// completes has reached its disk or the disk's cache, or the page cache if there is no direct I/O. It is locked
/// against a second drive. If a page of it is not available, since the disk is full or another process has cut the file
/// shorter, commands on that page fail. What was lost makes every later `sync` fail too. The last block may reach
/// beyond the end of the file (see `media::end_bytes`), whose length never changes. With `read_only` the file need not
/// be writable and does not change, and any number of read-only drives may have it open. `allow_destroy` names a block
/// device that may be written although there is something on it. Throws `refused_input` if the file is missing, of
/// another kind, locked, in use or empty, or if the drive would not have `bytes` bytes (0: as many as the file gives).
std::unique_ptr<backing_store> file_backing(std::string const& path, std::uint64_t bytes, std::uint32_t block_bytes,
                                            bool read_only = false, std::string const& allow_destroy = {},
                                            file_io io = file_io::mmap);

/// The bytes of `home`, copied to memory of `where`; `sync` writes back to `home` what was written. Throws like
/// `where`.
std::unique_ptr<backing_store> working_copy(std::unique_ptr<backing_store> home, memory::resource& where);

/// A drive that checks and times commands but moves no data; reads leave the client's buffer unchanged.
std::unique_ptr<backing_store> no_backing(std::uint64_t bytes, std::uint32_t block_bytes);

}  // namespace forebay::emulator
