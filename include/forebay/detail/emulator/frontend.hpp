// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the part of an I/O engine that fetches and times commands does together, and may be told to do one by one.
#pragma once

namespace forebay::emulator {

/// To be turned off in order to measure what each is worth.
struct frontend_techniques {
  bool coalesced_fetch = true;    ///< false: entries are fetched one at a time
  bool aggregated_timing = true;  ///< false: each command advances the shared clocks by itself
};

}  // namespace forebay::emulator
