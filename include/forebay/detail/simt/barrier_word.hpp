// SPDX-License-Identifier: Apache-2.0
//! \file
//! The word of a barrier that counts arrivals and bytes, as the CPU executor keeps it. (A GPU's is opaque.)
#pragma once

#include <cstdint>

namespace forebay::simt::detail {

/// From the lowest bit: 32 bits for the bytes that are expected and have not arrived, modulo 2^32; 12 for the arrivals
/// that are missing; 12 for the arrivals of a phase; 1 for the phase's parity.
class barrier_word {
 public:
  static constexpr std::uint32_t arrivals_max = 4095;

  static constexpr std::uint64_t initial(std::uint32_t arrivals) {
    return std::uint64_t{arrivals} << missing_at | std::uint64_t{arrivals} << arrivals_at;
  }
  static constexpr std::uint32_t missing(std::uint64_t word) { return word >> missing_at & arrivals_max; }
  static constexpr std::uint32_t parity(std::uint64_t word) { return word >> parity_at & 1; }
  /// Also if more bytes have arrived than were expected: then it counts below 0.
  static constexpr std::uint32_t bytes(std::uint64_t word) { return static_cast<std::uint32_t>(word); }

  /// The word after `expected` more bytes (modulo 2^32: less, if they arrived) and `arrivals` more arrivals, of which
  /// at most `missing` are right.
  static constexpr std::uint64_t after(std::uint64_t word, std::uint32_t expected, std::uint32_t arrivals) {
    std::uint32_t const left = bytes(word) + expected;
    std::uint32_t const lacking = missing(word) - arrivals;
    std::uint64_t const of_a_phase = word >> arrivals_at & arrivals_max;
    if (left == 0 && lacking == 0) return initial(static_cast<std::uint32_t>(of_a_phase)) | flipped(word);
    return left | std::uint64_t{lacking} << missing_at | of_a_phase << arrivals_at |
           std::uint64_t{parity(word)} << parity_at;
  }

 private:
  static constexpr unsigned missing_at = 32;
  static constexpr unsigned arrivals_at = 44;
  static constexpr unsigned parity_at = 56;
  static constexpr std::uint64_t flipped(std::uint64_t word) { return std::uint64_t{parity(word) ^ 1} << parity_at; }
};

}  // namespace forebay::simt::detail
