// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stand-in policy for code that works on a cache's frames and never replaces a page, whatever policy the cache has.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"

namespace forebay::replacement {

/// Not a policy for a cache: it finds no victim.
struct no_policy {
  static constexpr char const* name = "none";
  static constexpr std::uint32_t mark_bits = 0;
  struct set_state {};

  template <class M>
  FOREBAY_DEVICE static std::uint32_t hit(std::uint32_t marks, set_state*, std::uint32_t) {
    return marks;
  }
  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t victim(Set const&, set_state*) {
    return no_way;
  }
  template <class M, class Set>
  FOREBAY_DEVICE static void evicted(Set const&, set_state*, std::uint32_t, std::uint32_t, std::uint32_t) {}
  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t filled(Set const&, set_state*, std::uint32_t, std::uint32_t) {
    return 0;
  }
};

}  // namespace forebay::replacement
