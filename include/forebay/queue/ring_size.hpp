// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a command that is the n-th of its queue stands in a ring of any size.
#pragma once

#include <cstdint>

#include "forebay/simt/vocabulary.hpp"

namespace forebay {

/// Maps 64-bit tickets, which count commands for ever, to ring slots and laps. A queue at 1 G commands/s uses up its
/// tickets after 584 years, so no counter of a queue ever wraps; only slots and phases do.
class ring_size {
 public:
  constexpr ring_size() = default;
  FOREBAY_DEVICE constexpr explicit ring_size(std::uint32_t entries) : entries_(entries) {
    if ((entries & (entries - 1)) == 0) {
      while ((1u << shift_) < entries) ++shift_;
    } else {
      shift_ = not_a_power_of_two;
    }
  }
  FOREBAY_DEVICE constexpr std::uint32_t entries() const { return entries_; }
  FOREBAY_DEVICE constexpr std::uint32_t slot(std::uint64_t ticket) const {
    // A 64-bit division is some hundred instructions on a GPU; nearly every ring is a power of two.
    return static_cast<std::uint32_t>(shift_ != not_a_power_of_two ? ticket & (entries_ - 1) : ticket % entries_);
  }
  FOREBAY_DEVICE constexpr std::uint64_t lap(std::uint64_t ticket) const {
    return shift_ != not_a_power_of_two ? ticket >> shift_ : ticket / entries_;
  }

 private:
  static constexpr std::uint32_t not_a_power_of_two = 64;
  std::uint32_t entries_ = 1;
  std::uint32_t shift_ = 0;
};

}  // namespace forebay
