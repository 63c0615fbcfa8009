// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a run of a file's bytes lies on a drive.
#pragma once

#include <cstdint>

namespace forebay {

/// Bytes [byte, byte + bytes) of a file are bytes [byte_on_drive, byte_on_drive + bytes) of a namespace. All three are
/// multiples of its block.
struct file_extent {
  std::uint64_t byte = 0;
  std::uint64_t byte_on_drive = 0;
  std::uint64_t bytes = 0;
  bool operator==(file_extent const&) const = default;
};

}  // namespace forebay
