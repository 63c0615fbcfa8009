// SPDX-License-Identifier: Apache-2.0
//! \file
//! Seeded randomness for workloads, the same on every machine.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"

namespace forebay::apps {

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a bijection that mixes every bit into every bit.
FOREBAY_DEVICE constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// SplitMix64. Streams with different `(seed, stream)` do not overlap within any run's length, with high probability.
class splitmix64 {
 public:
  FOREBAY_DEVICE constexpr splitmix64(std::uint64_t seed, std::uint64_t stream)
      : state_(mix64(seed + golden) ^ mix64(stream * golden + 1)) {}

  FOREBAY_DEVICE constexpr std::uint64_t next() { return mix64(state_ += golden); }

  /// Uniform below `bound` (Lemire's multiply-shift; its bias is below bound / 2^64).
  FOREBAY_DEVICE constexpr std::uint64_t below(std::uint64_t bound) {
    std::uint64_t const a = next();
    std::uint64_t const a_low = a & 0xffffffffu, a_high = a >> 32;
    std::uint64_t const b_low = bound & 0xffffffffu, b_high = bound >> 32;
    std::uint64_t const middle = a_high * b_low + (a_low * b_low >> 32);
    return a_high * b_high + (middle >> 32) + ((a_low * b_high + (middle & 0xffffffffu)) >> 32);
  }

 private:
  static constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
  std::uint64_t state_;
};

}  // namespace forebay::apps
