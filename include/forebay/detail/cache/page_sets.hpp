// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which set of a cache a page belongs to, and what distinguishes it from the set's other pages.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

struct page_location {
  std::uint32_t set = 0;
  std::uint32_t tag = 0;
};

/// A bijection between page numbers and (set, tag), for any number of sets: the tag is the quotient by the number of
/// sets, and the remainder, turned by a hash of the tag, is the set. So consecutive pages lie in consecutive sets,
/// pages a multiple of the number of sets apart do not share one, and nothing but the tag has to be stored.
class page_sets {
 public:
  constexpr page_sets() = default;
  /// `sets`: 1 to 2^32 - 1.
  FOREBAY_DEVICE constexpr explicit page_sets(std::uint32_t sets)
      : sets_(sets), reciprocal_(~std::uint64_t{0} / sets) {}

  FOREBAY_DEVICE constexpr std::uint32_t sets() const { return sets_; }

  /// `page` is less than 2^32 * sets().
  FOREBAY_DEVICE constexpr page_location locate(std::uint64_t page) const {
    // A 64-bit division is some hundred instructions on a GPU. The reciprocal, rounded down, gives the quotient or one
    // less: page / sets - page * reciprocal / 2^64 < page / 2^64 + 1.
    std::uint64_t tag = simt::multiply_high(page, reciprocal_);
    std::uint64_t rest = page - tag * sets_;
    if (rest >= sets_) {
      ++tag;
      rest -= sets_;
    }
    auto const quotient = static_cast<std::uint32_t>(tag);
    std::uint64_t set = rest + turn(quotient);
    if (set >= sets_) set -= sets_;
    return {static_cast<std::uint32_t>(set), quotient};
  }
  FOREBAY_DEVICE constexpr std::uint64_t page_of(page_location at) const {
    std::uint32_t const by = turn(at.tag);
    std::uint32_t const rest = at.set >= by ? at.set - by : at.set + (sets_ - by);
    return std::uint64_t{at.tag} * sets_ + rest;
  }

 private:
  /// 0 to sets() - 1. The factor is 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4).
  FOREBAY_DEVICE constexpr std::uint32_t turn(std::uint32_t tag) const {
    return static_cast<std::uint32_t>(std::uint64_t{tag * 0x9e3779b1u} * sets_ >> 32);
  }

  std::uint32_t sets_ = 1;
  std::uint64_t reciprocal_ = ~std::uint64_t{0};
};

}  // namespace forebay
