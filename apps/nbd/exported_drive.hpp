// SPDX-License-Identifier: Apache-2.0
//! \file
//! A drive that many host threads read and write at once: what `forebay drive export-nbd` serves.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "forebay/status.hpp"

namespace forebay::nbd {

struct options {
  std::string uri;
  bool read_only = false;
  bool allow_destroy = false;   ///< also if that overwrites the drive's catalogue
  std::stop_token cancel = {};  ///< ends the opening
};

/// The commands of all threads are in flight on the drive at once, and each call returns when its own have completed. A
/// call may carry any number of whole blocks. Thread-safe.
class exported_drive {
 public:
  /// Throws `refused_input`, with fields named as on the command line, and `operation_failed` if the drive does not
  /// open.
  explicit exported_drive(options const& wanted);
  ~exported_drive();
  exported_drive(exported_drive const&) = delete;
  exported_drive& operator=(exported_drive const&) = delete;

  std::uint64_t size_bytes() const;
  /// Offsets and lengths are multiples of this; others end with `bad_alignment`.
  std::uint32_t block_bytes() const;
  bool writable() const;

  /// May throw `operation_failed` or `std::bad_alloc` if there is no memory that the drive reaches.
  status read(void* to, std::uint64_t bytes, std::uint64_t offset_bytes);
  status write(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes);
  status write_zeroes(std::uint64_t bytes, std::uint64_t offset_bytes);
  status deallocate(std::uint64_t bytes, std::uint64_t offset_bytes);
  /// Makes every write durable that had completed before the call.
  status flush();

  /// The storage's report (docs/reference/json.md), which counts from the opening on. Exact once no call is under way.
  std::string report() const;

 private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

}  // namespace forebay::nbd
