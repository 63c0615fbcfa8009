// SPDX-License-Identifier: Apache-2.0
//! \file
//! What happens when a page of a mapped file cannot be had: the disk is full, or somebody has cut the file shorter. The
//! system then sends SIGBUS, which ends a program, to whichever thread touched the page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/media.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// Puts pages of zeros, which belong to no file, where the pages of a mapping cannot be had, and notes which they were.
/// A thread that touched one goes on, and then finds the note. Pages that were replaced once stay so until the end.
///
/// The first guard of a process installs a handler of SIGBUS for good, which hands every other fault on to the one that
/// was there. Members are thread-safe.
class mapped_file_guard {
 public:
  /// Guards [begin, begin + bytes), a mapping with `protection` of mmap. Throws `operation_failed` where the process
  /// has `most` already.
  mapped_file_guard(void* begin, std::size_t bytes, int protection);
  /// The mapping may only go after this.
  ~mapped_file_guard();
  mapped_file_guard(mapped_file_guard const&) = delete;
  mapped_file_guard& operator=(mapped_file_guard const&) = delete;

  lost_pages* lost() { return &lost_; }
  bool any_lost() const;

  static constexpr std::size_t most = 1024;

 private:
  std::size_t slot_;
  memory::allocation bits_;  ///< untouched but for what is lost
  lost_pages lost_;
};

}  // namespace forebay::emulator
