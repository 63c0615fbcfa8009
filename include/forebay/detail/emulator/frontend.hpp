// SPDX-License-Identifier: Apache-2.0
//! \file
//! Steps that the part of an I/O engine that fetches and times commands does for many commands together, and that can
//! be switched to one by one.
#pragma once

namespace forebay::emulator {

/// Switch one off to measure what it gains.
struct frontend_techniques {
  bool coalesced_fetch = true;    ///< false: entries are fetched one at a time
  bool aggregated_timing = true;  ///< false: each command advances the shared clocks by itself
};

}  // namespace forebay::emulator
