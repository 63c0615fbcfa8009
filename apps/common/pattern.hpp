// SPDX-License-Identifier: Apache-2.0
//! \file
//! Data that tells its own place: every 8-byte word is a function of a seed, a generation and its own address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/common/random.hpp"
#include "forebay/machine.hpp"

namespace forebay::apps {

/// The pass that wrote a block. A block that still carries `laid_down` after a write of `rewritten` is a lost write.
enum class generation : std::uint64_t { laid_down = 0, rewritten = 1 };

/// The word at byte `address` (a multiple of 8) of the storage. A word at the wrong address, of another seed or of
/// another generation differs, but for one case in 2^64.
FOREBAY_DEVICE constexpr std::uint64_t pattern_word(std::uint64_t seed, generation g, std::uint64_t address) {
  return mix64(mix64(seed + static_cast<std::uint64_t>(g)) ^ address);
}

template <class M>
FOREBAY_DEVICE void fill_pattern(std::byte* to, std::uint64_t bytes, std::uint64_t address, std::uint64_t seed,
                                 generation g) {
  std::uint64_t const key = mix64(seed + static_cast<std::uint64_t>(g));
  for (std::uint64_t i = 0; i < bytes; i += sizeof(simt::vec16)) {
    M::st(reinterpret_cast<simt::vec16*>(to + i),
          simt::vec16{mix64(key ^ (address + i)), mix64(key ^ (address + i + 8))});
  }
}

namespace detail {
FOREBAY_DEVICE constexpr std::uint64_t differing(simt::vec16 found, std::uint64_t key, std::uint64_t address) {
  return (found.low ^ mix64(key ^ address)) | (found.high ^ mix64(key ^ (address + 8)));
}
}  // namespace detail

/// Whether all `bytes` bytes (a multiple of 64, 16-byte aligned) are those of `fill_pattern`.
template <class M>
FOREBAY_DEVICE bool matches_pattern(std::byte const* from, std::uint64_t bytes, std::uint64_t address,
                                    std::uint64_t seed, generation g) {
  std::uint64_t const key = mix64(seed + static_cast<std::uint64_t>(g));
  std::uint64_t differing_bits = 0;
  for (std::uint64_t i = 0; i < bytes; i += 4 * sizeof(simt::vec16)) {
    // Four loads before the first use: a GPU that reads host memory waits once for all.
    auto const* const at = reinterpret_cast<simt::vec16 const*>(from + i);
    simt::vec16 const a = M::ld(at), b = M::ld(at + 1), c = M::ld(at + 2), d = M::ld(at + 3);
    differing_bits |= detail::differing(a, key, address + i) | detail::differing(b, key, address + i + 16) |
                      detail::differing(c, key, address + i + 32) | detail::differing(d, key, address + i + 48);
  }
  return differing_bits == 0;
}

/// Whether each word is that of either generation: a read may find both if a write of the same block overtakes it.
template <class M>
FOREBAY_DEVICE bool matches_either_pattern(std::byte const* from, std::uint64_t bytes, std::uint64_t address,
                                           std::uint64_t seed) {
  for (std::uint64_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    std::uint64_t const found = M::ld(reinterpret_cast<std::uint64_t const*>(from + i));
    if (found != pattern_word(seed, generation::laid_down, address + i) &&
        found != pattern_word(seed, generation::rewritten, address + i)) {
      return false;
    }
  }
  return true;
}

}  // namespace forebay::apps
