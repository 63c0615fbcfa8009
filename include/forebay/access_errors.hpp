// SPDX-License-Identifier: Apache-2.0
//! \file
//! The errors of accesses that return no status.
#pragma once

#include <cstdint>

#include "forebay/status.hpp"

namespace forebay {

/// Accesses through array views, and write-backs, that failed.
struct access_errors {
  static constexpr std::uint64_t no_offset = ~std::uint64_t{0};

  status first;             ///< of the first failure; success: none failed
  std::uint64_t count = 0;  ///< how many failed
  /// Where the first failure was, in bytes of the storage; `no_offset` for a page that could not be written back.
  std::uint64_t first_offset_bytes = no_offset;
};

}  // namespace forebay
