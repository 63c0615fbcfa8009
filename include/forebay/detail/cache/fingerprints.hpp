// SPDX-License-Identifier: Apache-2.0
//! \file
//! One byte for each way of a set, by which a lookup finds the ways that are worth a look.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"

namespace forebay {

/// The fingerprints of a set: way `w` has byte `w % 8` of word `w / 8`. They are a hint that lags behind the frames'
/// words: they may name a way that has another page by now. If they do not name a way, the way has no page that the
/// calling thread can know to be there, since a thread learns of a page from the fingerprint, or under the lock under
/// which the fingerprint is written. While no thread holds the lock, each way has the fingerprint of the tag in its
/// frame's word; the tag stays there when the frame is freed.
struct fingerprints {
  static constexpr std::uint32_t words_per_set = replacement::max_ways / 8;

  /// Neighbouring tags have different ones (multiplicative hashing; Knuth, TAOCP 3, section 6.4).
  FOREBAY_DEVICE static constexpr std::uint32_t of(std::uint32_t tag) { return tag * 0x9e3779b1u >> 24; }

  /// The ways whose byte is that of `tag`.
  FOREBAY_DEVICE static constexpr std::uint32_t ways_of(std::uint64_t low, std::uint64_t high, std::uint32_t tag) {
    std::uint32_t const wanted = of(tag) * 0x01010101u;
    return equal_bytes(static_cast<std::uint32_t>(low) ^ wanted) |
           equal_bytes(static_cast<std::uint32_t>(low >> 32) ^ wanted) << 4 |
           equal_bytes(static_cast<std::uint32_t>(high) ^ wanted) << 8 |
           equal_bytes(static_cast<std::uint32_t>(high >> 32) ^ wanted) << 12;
  }

  /// The bits of `value` at the byte of way `way` in its word.
  FOREBAY_DEVICE static constexpr std::uint64_t byte_of(std::uint32_t way, std::uint32_t value) {
    return std::uint64_t{value} << way % 8 * 8;
  }

 private:
  /// Bit `b` says whether byte `b` of `difference` is 0.
  FOREBAY_DEVICE static constexpr std::uint32_t equal_bytes(std::uint32_t difference) {
    constexpr std::uint32_t low_bits = 0x7f7f7f7f;
    // Sets the highest bit of each byte that is 0; no carry goes from one byte to the next.
    std::uint32_t const zero = ~((((difference & low_bits) + low_bits) | difference) | low_bits);
    // Moves bits 7, 15, 23 and 31 to bits 24 to 27.
    return (zero >> 7) * 0x01020408u >> 24 & 0xf;
  }
};
static_assert(replacement::max_ways == 16);

}  // namespace forebay
