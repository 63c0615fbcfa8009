// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where an emulated drive's bytes live on the host: anonymous memory, a mapped file, or nowhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "forebay/emulator/media.hpp"
#include "forebay/memory/resource.hpp"

namespace forebay::emulator {

/// Owns the storage of one drive. Move-only through `std::unique_ptr`.
class backing_store {
 public:
  virtual ~backing_store() = default;
  /// Valid as long as this object.
  virtual media view() = 0;
  /// Makes durable what was written before the call. False: the operating system could not.
  virtual bool sync() = 0;
};

/// Zeroed memory of `from`; pages that nobody wrote cost nothing.
std::unique_ptr<backing_store> memory_backing(std::uint64_t bytes, std::uint32_t block_bytes,
                                              memory::resource& from = memory::host());

/// A file, mapped and shared: writes reach it at once, and the medium at `sync`. The file is locked against a second
/// drive. Throws `refused_input` when it is missing, locked, or its size is not `bytes` (0: whatever its size is).
std::unique_ptr<backing_store> file_backing(std::string const& path, std::uint64_t bytes, std::uint32_t block_bytes);

/// A drive that checks and times commands and moves nothing; reads leave the client's buffer as it is.
std::unique_ptr<backing_store> no_backing(std::uint64_t bytes, std::uint32_t block_bytes);

}  // namespace forebay::emulator
