// SPDX-License-Identifier: Apache-2.0
//! \file
//! What an index has on its drives for each vector.
#pragma once

#include <cstdint>

#include "apps/search/distance.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {

/// A record in words of 4 bytes, little-endian: the vector, with zeros up to a whole word; how many neighbours it has;
/// their slots; zeros; and in the last word a checksum. python/forebay/search/records.py has the same layout.
struct record_layout {
  std::uint32_t words = 0;  ///< of a whole record
  std::uint32_t vector_words = 0;
  std::uint32_t degree_max = 0;

  FOREBAY_DEVICE std::uint32_t degree_at() const { return vector_words; }
  FOREBAY_DEVICE std::uint32_t neighbours_at() const { return vector_words + 1; }
  FOREBAY_DEVICE std::uint32_t checksum_at() const { return words - 1; }
  FOREBAY_DEVICE std::uint64_t bytes() const { return std::uint64_t{4} * words; }
};

/// The checksum of a record is the sum, modulo 2^32, of `checksum_of_slot` and of `checksum_of_word` of all words
/// before it. Each word has an odd factor of its own, so any change of one word shows. The slot counts, so that a
/// record in the wrong place shows, and so does a block that was never written.
FOREBAY_DEVICE std::uint32_t checksum_of_slot(std::uint32_t slot) {
  return 0x46424e31u + slot * 0x9e3779b1u;
}
FOREBAY_DEVICE std::uint32_t checksum_of_word(std::uint32_t i, std::uint32_t word) {
  return word * ((2 * i + 1) * 0x85ebca6bu);
}

}  // namespace forebay::search
