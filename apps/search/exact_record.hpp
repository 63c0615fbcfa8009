// SPDX-License-Identifier: Apache-2.0
//! \file
//! What an index for searches by exact distances has on its drives for each vector: a list and a vector, apart.
#pragma once

#include <cstdint>

#include "apps/search/record.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {

/// A list in words of 4 bytes, little-endian: how many neighbours there are; their slots, with room for `degree_max`;
/// half a word for each of them, the `short_checksum` of its vector; zeros; and in the last word the checksum of the
/// list, as a record has it. A vector fills whole blocks, with zeros at its end, and may have no room for a checksum of
/// its own. python/forebay/search/exact_records.py has the same layout.
struct exact_layout {
  std::uint32_t list_words = 0;
  std::uint32_t vector_words = 0;  ///< of whole blocks
  std::uint32_t degree_max = 0;

  FOREBAY_DEVICE std::uint32_t checksums_at() const { return 1 + degree_max; }
  FOREBAY_DEVICE std::uint32_t checksum_at() const { return list_words - 1; }
  FOREBAY_DEVICE std::uint64_t list_bytes() const { return std::uint64_t{4} * list_words; }
  FOREBAY_DEVICE std::uint64_t vector_bytes() const { return std::uint64_t{4} * vector_words; }
};

/// Half of the checksum of a vector at a slot: `checksum` is the sum over its words, as in record.hpp.
FOREBAY_DEVICE std::uint32_t short_checksum(std::uint32_t slot, std::uint32_t checksum) {
  std::uint32_t const whole = checksum_of_slot(slot) + checksum;
  return (whole >> 16 ^ whole) & 0xffff;
}

}  // namespace forebay::search
