// SPDX-License-Identifier: Apache-2.0
//! \file
//! What some controllers do otherwise than the specification says.
#pragma once

#include <cstdint>

namespace forebay::driver {

/// What a controller needs of its driver. All zero: it keeps to the specification.
struct quirks {
  std::uint64_t ready_delay_ns = 0;           ///< from a change of CC.EN until CSTS may be read
  std::uint32_t queue_entries_most = 0;       ///< queues with more do not work, whatever CAP.MQES says
  std::uint32_t queue_entries_if_untold = 0;  ///< what its queues may have if CAP.MQES says 0
  bool no_write_zeroes = false;               ///< Write Zeroes is slow or wrong, whatever Identify says

  bool operator==(quirks const&) const = default;
};

}  // namespace forebay::driver
