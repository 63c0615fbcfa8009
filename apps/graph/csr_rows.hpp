// SPDX-License-Identifier: Apache-2.0
//! \file
//! Finds which rows of a CSR matrix lie in a stretch of its entries.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"

namespace forebay::graph {

/// The first row that ends after entry `at`; `rows` if none does. A collective of a full warp: all lanes look at once,
/// so that a million rows take four steps.
template <class M, class Warp>
FOREBAY_DEVICE std::uint32_t row_that_ends_after(std::uint64_t const* row_begin, std::uint32_t rows, std::uint64_t at,
                                                 Warp const& warp) {
  std::uint32_t low = 0, high = rows;  // all rows before `low` end at or before `at`, row `high` after it
  while (low < high) {
    std::uint32_t const step = (high - low + 31) / 32;
    std::uint32_t const probe = low + warp.thread_rank() * step;
    bool const before = probe < high && row_begin[probe + 1] <= at;
    std::uint32_t const passed = simt::team<M>::ones(warp.ballot(before));
    if (passed == 0) {
      high = low;
    } else {
      std::uint32_t const limit = low + passed * step;
      low = low + (passed - 1) * step + 1;
      if (limit < high) high = limit;
    }
  }
  return low;
}

}  // namespace forebay::graph
