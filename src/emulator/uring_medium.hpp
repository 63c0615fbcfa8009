// SPDX-License-Identifier: Apache-2.0
//! \file
//! A file or block device, accessed by io_uring: many requests are in flight, and no thread waits for any of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "forebay/detail/emulator/medium.hpp"

namespace forebay::emulator {

/// What went wrong with a file for good. Each only ever gets worse.
struct file_health {
  /// A Flush failed. An operating system reports what it could not write only once, so all later ones must fail too.
  std::atomic<bool> flush_failed{false};
  /// The file was cut shorter by another program, to this length. What was beyond is lost, even if the file grows
  /// again.
  std::atomic<std::uint64_t> cut_bytes{~std::uint64_t{0}};

  bool lost_data() const {
    // Relaxed, both: they order nothing.
    return flush_failed.load(std::memory_order_relaxed) ||
           cut_bytes.load(std::memory_order_relaxed) != ~std::uint64_t{0};
  }
};

/// What a medium needs to know of a file. The descriptors stay the caller's.
struct medium_file {
  int fd = -1;
  int direct_fd = -1;  ///< the same file, opened with O_DIRECT; -1: none
  /// Of requests on `direct_fd`: what offsets and lengths, and addresses of memory, must be multiples of.
  std::uint32_t offset_alignment_bytes = 512;
  std::uint32_t memory_alignment_bytes = 512;
  /// Its length when it was opened. What a drive has beyond that reads as zeros, and what is written there is dropped.
  std::uint64_t bytes = 0;
  bool can_be_cut = true;  ///< an ordinary file
  /// The device of `direct_fd` has queues that the kernel polls.
  bool polled = false;
  file_health* health = nullptr;
};

/// A port for each unit, with a ring each.
class uring_medium : public medium {
 public:
  static constexpr unsigned most_pieces = 512;  ///< in flight, of a unit

  /// Why not all of the clients' memory is registered with the kernel, as far as is known yet; empty: it is.
  virtual std::string why_no_fixed_buffers() const = 0;
  /// Whether a file with `medium_file::polled` was not polled after all.
  virtual bool refused_polling() const = 0;
};

/// Throws `operation_failed` if the system refuses a ring.
std::unique_ptr<uring_medium> medium_of(medium_file const& file);

/// The status of an NVMe command that failed as a system call did with `error`.
std::uint16_t status_of(int error, medium_operation operation);

}  // namespace forebay::emulator
