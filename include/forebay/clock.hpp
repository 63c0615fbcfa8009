// SPDX-License-Identifier: Apache-2.0
//! \file
//! The replacement policy `clock`: second chance.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"

namespace forebay::replacement {

/// Second chance. For pages that many threads use shortly after each other.
///
/// A hand goes around the ways of a set. A page that was used since the hand last passed it loses its mark and stays;
/// the first page without a mark is evicted (Corbato, "A paging experiment with the Multics system", 1968). The hand
/// skips ways that may not be evicted, and leaves their marks.
struct clock {
  static constexpr char const* name = "clock";
  static constexpr std::uint32_t mark_bits = 1;
  struct set_state {
    std::uint32_t hand;  ///< the way where the next round starts
  };

  template <class M>
  FOREBAY_DEVICE static std::uint32_t hit(std::uint32_t marks, set_state*, std::uint32_t) {
    return marks | 1;
  }

  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t victim(Set const& set, set_state* state) {
    set_view const view = set.look();
    if (view.evictable == 0) return no_way;
    circle const ways{set.ways(), M::ld(&state->hand)};
    std::uint32_t const used = ways.from_hand(view.evictable & view.marked[0]);
    std::uint32_t const unused = ways.from_hand(view.evictable & ~view.marked[0]);
    // If all pages were used, the hand goes around once, clears every mark, and then finds the way at which it started.
    std::uint32_t const steps = simt::lowest_bit(unused != 0 ? unused : used);
    std::uint32_t const passed = unused != 0 ? used & ((1u << steps) - 1) : used;
    if (passed != 0) set.unmark(ways.from_zero(passed), 1);
    std::uint32_t const way = simt::lowest_bit(ways.from_zero(1u << steps));
    // The hand stays here. If the page is in use by now, `victim` is asked again, and must not begin at the pages that
    // have just lost their mark.
    M::st(&state->hand, way);
    return way;
  }

  template <class M, class Set>
  FOREBAY_DEVICE static void evicted(Set const& set, set_state* state, std::uint32_t way, std::uint32_t,
                                     std::uint32_t) {
    M::st(&state->hand, way + 1 == set.ways() ? 0 : way + 1);
  }

  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t filled(Set const&, set_state*, std::uint32_t, std::uint32_t) {
    return 0;
  }

 private:
  /// Rotates masks of ways so that bit 0 is the way at the hand, and back.
  struct circle {
    std::uint32_t ways;
    std::uint32_t hand;
    FOREBAY_DEVICE std::uint32_t from_hand(std::uint32_t mask) const {
      return (mask >> hand | mask << (ways - hand)) & ((1u << ways) - 1);
    }
    FOREBAY_DEVICE std::uint32_t from_zero(std::uint32_t mask) const {
      return (mask << hand | mask >> (ways - hand)) & ((1u << ways) - 1);
    }
  };
};

}  // namespace forebay::replacement
