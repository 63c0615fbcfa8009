// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where an emulated drive's bytes live: anonymous memory, a mapped file, a copy of either elsewhere, or nowhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "forebay/detail/emulator/media.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// Owns the storage of one drive. Move-only through `std::unique_ptr`.
class backing_store {
 public:
  virtual ~backing_store() = default;
  /// Valid as long as this object.
  virtual media view() = 0;
  /// Where the pointers of `view()` point to.
  virtual memory::resource& where() { return memory::host(); }
  /// Makes durable what was written before the call. False: the operating system could not.
  virtual bool sync() = 0;
  /// Has the system find memory for [0, bytes) now, and not at the first access of each page, which would take far
  /// longer than the drive. What the pages hold stays. Does nothing where the pages are not ordinary memory, and where
  /// they would take more than half of what the machine has left. How many bytes of them need no such thing any more.
  /// Ends early, and then none, where `cancel` says so. Thread-safe.
  virtual std::uint64_t populate(std::uint64_t bytes, std::stop_token const& cancel = {}) {
    static_cast<void>(cancel);
    return bytes;
  }
};

/// Zeroed memory of `from`; pages that nobody wrote cost nothing.
std::unique_ptr<backing_store> memory_backing(std::uint64_t bytes, std::uint32_t block_bytes,
                                              memory::resource& from = memory::host());

/// A file, mapped and shared: writes reach it at once, and the medium at `sync`. The file is locked against a second
/// drive. Where a page of it cannot be had, since the disk is full or somebody has cut the file shorter, commands on
/// that page fail, and so does every `sync` from then on (see `media::lost`). With `read_only` it need not be writable,
/// stays as it is, and any number of drives that are read-only may have it open; the last block may then reach beyond
/// its end, and reads as zeros from there on. Throws `refused_input` when it is missing, locked or empty, ends within a
/// block and may be written, or the drive would not have `bytes` bytes (0: whatever the file gives).
std::unique_ptr<backing_store> file_backing(std::string const& path, std::uint64_t bytes, std::uint32_t block_bytes,
                                            bool read_only = false);

/// The bytes of `home` in memory of `where`, from which `sync` brings back what was written. Throws like `where`.
std::unique_ptr<backing_store> working_copy(std::unique_ptr<backing_store> home, memory::resource& where);

/// A drive that checks and times commands and moves nothing; reads leave the client's buffer as it is.
std::unique_ptr<backing_store> no_backing(std::uint64_t bytes, std::uint32_t block_bytes);

}  // namespace forebay::emulator
