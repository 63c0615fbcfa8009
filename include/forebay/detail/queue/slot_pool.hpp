// SPDX-License-Identifier: Apache-2.0
//! \file
//! A pool of small integers. Any thread takes from it and gives back to it without waiting.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// One bit for each index, set while the index is free. To take or to give is one atomic access if there is no
/// contention, so a pool has neither a lock nor the reuse hazard of a linked free list. Trivially copyable;
/// thread-safe.
struct slot_pool {
  std::uint32_t* words = nullptr;
  std::uint32_t word_count = 0;

  static constexpr std::uint32_t none = ~0u;

  /// Words that a pool of `capacity` indices needs.
  static constexpr std::uint32_t words_for(std::uint32_t capacity) { return (capacity + 31) / 32; }
  /// What word `word` of a pool of `capacity` indices holds while all are free.
  static constexpr std::uint32_t all_free(std::uint32_t capacity, std::uint32_t word) {
    std::uint32_t const first = word * 32;
    return capacity >= first + 32 ? ~0u : (1u << (capacity - first)) - 1;
  }

  /// An index that was free, or `none` if a pass over the pool found none. Callers with different `hint`s look in
  /// different places first.
  template <class M>
  FOREBAY_DEVICE std::uint32_t try_take(std::uint32_t hint) const {
    if (word_count == 0) return none;
    std::uint32_t const start = (hint >> 5) % word_count;
    for (std::uint32_t k = 0; k < word_count; ++k) {
      std::uint32_t const index = start + k < word_count ? start + k : start + k - word_count;
      auto word = simt::atomic<M>(words[index]);
      // The first word is tried before it is read: in a pool with room, the caller's own bit is likely free. Relaxed: a
      // hint only; the fetch_and decides.
      std::uint32_t free = k == 0 ? ~0u : word.load(simt::order::relaxed);
      while (free != 0) {
        std::uint32_t const bit = pick_bit<M>(free, hint & 31);
        // Acquire pairs with the release in give(): the previous holder no longer uses what the index stands for.
        std::uint32_t const before = word.fetch_and(~(1u << bit), simt::order::acquire);
        if ((before >> bit & 1) != 0) return index * 32 + bit;
        free = before & ~(1u << bit);
      }
    }
    return none;
  }

  /// Whether an index is free at the moment of the look.
  template <class M>
  FOREBAY_DEVICE bool seems_free() const {
    for (std::uint32_t k = 0; k < word_count; ++k) {
      // Relaxed: only a look.
      if (simt::atomic<M>(words[k]).load(simt::order::relaxed) != 0) return true;
    }
    return false;
  }

  template <class M>
  FOREBAY_DEVICE void give(std::uint32_t index) const {
    // Release pairs with the acquire in try_take().
    simt::atomic<M>(words[index / 32]).fetch_or(1u << (index % 32), simt::order::release);
  }

 private:
  /// A set bit of `bits`, the first at or after `from`, so that the lanes of a warp do not all try the same one.
  template <class M>
  FOREBAY_DEVICE static std::uint32_t pick_bit(std::uint32_t bits, std::uint32_t from) {
    std::uint32_t const upper = bits >> from << from;
    return simt::team<M>::lowest(upper != 0 ? upper : bits);
  }
};

}  // namespace forebay
