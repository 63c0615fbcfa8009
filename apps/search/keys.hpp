// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a candidate of a search is one number: its distance first, so that nearer candidates are less.
#pragma once

#include <cstdint>
#include <cstring>

#include "forebay/machine.hpp"

namespace forebay::search {

/// Bits 32-63: the distance. Bits 1-31: the slot, which is where a vector lies in its index. Bit 0: whether the
/// candidate's record was read, or is being read. Of two candidates at one distance, that with the smaller slot is
/// less.
using key = std::uint64_t;

inline constexpr key no_key = ~key{0};  ///< greater than all others
inline constexpr std::uint32_t slots_max = (1u << 31) - 1;

FOREBAY_DEVICE key make_key(std::uint32_t distance, std::uint32_t slot) {
  return std::uint64_t{distance} << 32 | std::uint64_t{slot} << 1;
}
FOREBAY_DEVICE std::uint32_t slot_of(key k) {
  return static_cast<std::uint32_t>(k) >> 1;
}
FOREBAY_DEVICE std::uint32_t distance_of(key k) {
  return static_cast<std::uint32_t>(k >> 32);
}
FOREBAY_DEVICE bool is_expanded(key k) {
  return (k & 1) != 0;
}
FOREBAY_DEVICE key expanded(key k) {
  return k | 1;
}
/// Whether both are of one slot at one distance.
FOREBAY_DEVICE bool are_same(key a, key b) {
  return a >> 1 == b >> 1;
}

/// A number that is less for a lesser distance. The distance is no NaN.
FOREBAY_DEVICE std::uint32_t ordered_bits(float distance) {
  std::uint32_t bits;
  std::memcpy(&bits, &distance, sizeof bits);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
FOREBAY_DEVICE float distance_from_ordered(std::uint32_t ordered) {
  std::uint32_t const bits = (ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered;
  float distance;
  std::memcpy(&distance, &bits, sizeof distance);
  return distance;
}

}  // namespace forebay::search
