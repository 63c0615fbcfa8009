// SPDX-License-Identifier: Apache-2.0
//! \file
//! The first failures of a grid, whose threads have no caller to report to.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::apps {

/// In the memory of the machine, zeroed; read by the host between launches.
struct failure_latch {
  std::uint32_t status_bits = 0;  ///< of one of the failures
  std::uint32_t failures = 0;

  /// Whether `outcome` is success; otherwise the latch keeps it.
  template <class M>
  FOREBAY_DEVICE bool passes(status outcome) {
    if (outcome.ok()) return true;
    // relaxed, both: the host reads them after the grid has ended.
    simt::atomic<M>(status_bits).fetch_max(outcome.bits(), simt::order::relaxed);
    simt::atomic<M>(failures).fetch_add(1, simt::order::relaxed);
    return false;
  }
};

}  // namespace forebay::apps
