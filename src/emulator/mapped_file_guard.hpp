// SPDX-License-Identifier: Apache-2.0
//! \file
//! Handles the case that a page of a mapped file cannot be had: the disk is full, or another process has truncated the
//! file. The system then sends SIGBUS to the thread that touched the page, which would end the program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/media.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// Where the pages of a mapping cannot be had, puts pages of zeros there, which belong to no file, and notes which they
/// were. A thread that touched one goes on, and then finds the note. Pages that were replaced once stay so until the
/// end.
///
/// The first guard of a process installs a handler of SIGBUS for good. The handler passes every other fault to the
/// handler that was there before. Members are thread-safe.
class mapped_file_guard {
 public:
  /// Guards [begin, begin + bytes), a mapping with `protection` of mmap. Throws `operation_failed` where the process
  /// has `most` already.
  mapped_file_guard(void* begin, std::size_t bytes, int protection);
  /// The mapping may be removed only after the guard.
  ~mapped_file_guard();
  mapped_file_guard(mapped_file_guard const&) = delete;
  mapped_file_guard& operator=(mapped_file_guard const&) = delete;

  lost_pages* lost() { return &lost_; }
  bool any_lost() const;

  static constexpr std::size_t most = 1024;

 private:
  std::size_t slot_;
  memory::allocation bits_;  ///< only the words that note lost pages are touched
  lost_pages lost_;
};

}  // namespace forebay::emulator
