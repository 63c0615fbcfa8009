// SPDX-License-Identifier: Apache-2.0
//! \file
//! The errors of accesses that return no status.
#pragma once

#include <cstdint>

#include "forebay/status.hpp"

namespace forebay {

/// How many accesses through array views, and write-backs of pages, failed; with the status and the place of the first
/// failure. `storage::take_errors()` returns it.
struct access_errors {
  /// The `first_offset_bytes` of a write-back, which has no place of an access.
  static constexpr std::uint64_t no_offset = ~std::uint64_t{0};

  status first;             ///< of the first failure; success: none failed
  std::uint64_t count = 0;  ///< how many failed
  /// Where in the storage the first failure was; `no_offset` for a page that could not be written back.
  std::uint64_t first_offset_bytes = no_offset;
};

}  // namespace forebay
