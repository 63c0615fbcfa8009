// SPDX-License-Identifier: Apache-2.0
//! \file
//! The example of docs/how-to/write-a-replacement-policy.md: the page that was used longest ago leaves.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"
#include "forebay/policy.hpp"

struct lru {
  static constexpr char const* name = "lru";
  static constexpr std::uint32_t mark_bits = 0;
  struct set_state {
    std::uint32_t now;                                      ///< counts the uses of the set's pages
    std::uint32_t used_at[forebay::replacement::max_ways];  ///< what `now` was when the way's page was last used
  };

  template <class M>
  FOREBAY_DEVICE static std::uint32_t hit(std::uint32_t marks, set_state* state, std::uint32_t way) {
    // Many hits in a row are of one page: it is the youngest already, and nothing is written.
    if (word<M>(state->used_at[way]) != word<M>(state->now)) touch<M>(state, way);
    return marks;
  }

  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t victim(Set const& set, set_state* state) {
    std::uint32_t const now = word<M>(state->now);
    std::uint32_t oldest = forebay::replacement::no_way;
    std::uint32_t oldest_age = 0;
    for (std::uint32_t left = set.look().evictable; left != 0; left &= left - 1) {
      std::uint32_t const way = forebay::simt::lowest_bit(left);
      std::uint32_t const age = now - word<M>(state->used_at[way]);
      if (oldest != forebay::replacement::no_way && age <= oldest_age) continue;
      oldest = way;
      oldest_age = age;
    }
    return oldest;
  }

  template <class M, class Set>
  FOREBAY_DEVICE static void evicted(Set const&, set_state*, std::uint32_t, std::uint32_t, std::uint32_t) {}

  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t filled(Set const&, set_state* state, std::uint32_t way, std::uint32_t) {
    touch<M>(state, way);
    return 0;
  }

 private:
  // Relaxed throughout: hits come at any time, and a victim that is a little too young harms nobody.
  template <class M>
  FOREBAY_DEVICE static std::uint32_t word(std::uint32_t& of_state) {
    return forebay::simt::atomic<M>(of_state).load(forebay::simt::order::relaxed);
  }
  template <class M>
  FOREBAY_DEVICE static void touch(set_state* state, std::uint32_t way) {
    std::uint32_t const now = forebay::simt::atomic<M>(state->now).fetch_add(1, forebay::simt::order::relaxed) + 1;
    forebay::simt::atomic<M>(state->used_at[way]).store(now, forebay::simt::order::relaxed);
  }
};
