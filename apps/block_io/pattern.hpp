// SPDX-License-Identifier: Apache-2.0
//! \file
//! Data that says where it belongs: every 8-byte word is a function of a seed, a generation and its own address.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apps/common/random.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::block_io {

/// Which pass wrote a block. A block that still carries `laid_down` after a write of `rewritten` is a lost write.
enum class generation : std::uint64_t { laid_down = 0, rewritten = 1 };

/// The word at byte `address` (a multiple of 8) of the storage. A word at the wrong address, of another seed or of
/// another generation differs, but for one case in 2^64.
FOREBAY_DEVICE constexpr std::uint64_t pattern_word(std::uint64_t seed, generation g, std::uint64_t address) {
  return apps::mix64(apps::mix64(seed + static_cast<std::uint64_t>(g)) ^ address);
}

template <class M>
FOREBAY_DEVICE void fill_pattern(std::byte* to, std::uint64_t bytes, std::uint64_t address, std::uint64_t seed,
                                 generation g) {
  std::uint64_t const key = apps::mix64(seed + static_cast<std::uint64_t>(g));
  for (std::uint64_t i = 0; i < bytes; i += sizeof(simt::vec16)) {
    M::st(reinterpret_cast<simt::vec16*>(to + i),
          simt::vec16{apps::mix64(key ^ (address + i)), apps::mix64(key ^ (address + i + 8))});
  }
}

/// Whether all `bytes` bytes (a multiple of 16, 16-byte aligned) are those of `fill_pattern`.
template <class M>
FOREBAY_DEVICE bool matches_pattern(std::byte const* from, std::uint64_t bytes, std::uint64_t address,
                                    std::uint64_t seed, generation g) {
  std::uint64_t const key = apps::mix64(seed + static_cast<std::uint64_t>(g));
  std::uint64_t differing_bits = 0;
  // No early exit: on a GPU the loads of an unrolled loop overlap.
#pragma GCC unroll 8
  for (std::uint64_t i = 0; i < bytes; i += sizeof(simt::vec16)) {
    simt::vec16 const found = M::ld(reinterpret_cast<simt::vec16 const*>(from + i));
    differing_bits |= found.low ^ apps::mix64(key ^ (address + i));
    differing_bits |= found.high ^ apps::mix64(key ^ (address + i + 8));
  }
  return differing_bits == 0;
}

/// Whether each word is that of either generation: what a read may find that a write of the same block overtakes.
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

}  // namespace forebay::block_io
