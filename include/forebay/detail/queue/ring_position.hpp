// SPDX-License-Identifier: Apache-2.0
//! \file
//! The position of the next command or completion in a ring of any size.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// A slot and the number of completed laps of the ring, as one 64-bit word. It needs no division, whatever the ring's
/// size. It returns to its first value after 2^32 laps.
struct ring_position {
  std::uint32_t slot = 0;
  std::uint32_t lap = 0;

  /// The position of the `ticket`-th entry ever, counted from 0.
  static constexpr ring_position of(std::uint64_t ticket, std::uint32_t entries) {
    return {static_cast<std::uint32_t>(ticket % entries), static_cast<std::uint32_t>(ticket / entries)};
  }
  FOREBAY_DEVICE static constexpr ring_position from_word(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
  }
  FOREBAY_DEVICE constexpr std::uint64_t word() const { return std::uint64_t{lap} << 32 | slot; }

  /// The position `steps` entries further on; `steps` is at most a lap.
  FOREBAY_DEVICE constexpr ring_position after(std::uint32_t steps, std::uint32_t entries) const {
    std::uint32_t const to = slot + steps;
    return to < entries ? ring_position{to, lap} : ring_position{to - entries, lap + 1};
  }
  /// How many entries come before it, modulo 2^32: differences of counts are right if they are less than 2^31.
  FOREBAY_DEVICE constexpr std::uint32_t count(std::uint32_t entries) const { return lap * entries + slot; }
};

}  // namespace forebay
