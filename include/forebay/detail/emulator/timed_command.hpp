// SPDX-License-Identifier: Apache-2.0
//! \file
//! A command as the timing models see it. Times are picoseconds since the engine's epoch; 64 bits of them last 213
//! days.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// A due time that never comes.
inline constexpr std::uint64_t never_ps = ~std::uint64_t{0};

/// Spreads the bits of `x` (the finaliser of MurmurHash3).
FOREBAY_DEVICE constexpr std::uint64_t mix(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

/// The kinds of commands that the models distinguish.
enum class operation : std::uint8_t { read, write, other };

/// One command of a batch.
struct timed_command {
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;     ///< 0 for a command without a range, which occupies every channel
  std::uint64_t sequence = 0;  ///< identifies the command: the jitter is a function of seed and sequence
  operation op = operation::read;
  bool charged = true;  ///< false for a command that failed its checks: due on arrival
  std::uint64_t target_ps = 0;
};

}  // namespace forebay::emulator
