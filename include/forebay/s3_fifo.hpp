// SPDX-License-Identifier: Apache-2.0
//! \file
//! The replacement policy `s3_fifo`: three FIFO queues in each set.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"

namespace forebay::replacement {

/// S3-FIFO (Yang, Zhang, Qiu, Yue and Vigfusson, "FIFO queues are all you need for cache eviction", SOSP 2023). It
/// evicts early the pages that are used only once, such as those of a scan. For data with a hot part, and for scans in
/// between.
///
/// A new page enters the queue *small*. If it reaches the end of *small* with fewer than two hits, it leaves, and the
/// queue *ghost* remembers its tag; else it moves to *main*. A page whose tag is in *ghost* enters *main* at once. A
/// page that reaches the end of *main* with hits goes around again with one hit less, else it leaves. At most three
/// hits are counted.
///
/// The small sets change this:
/// - In the paper *small* has a tenth of the room. A tenth of 16 ways is one, so *small* has one way of every set. A
///   page leaves from *small* while one there may leave, else from *main*. More than one page is in *small* while the
///   pages that came first may not leave, for instance since they are still being read.
/// - *ghost* remembers the last departures from *small*, as many as the set has ways, as 16-bit fingerprints. Two of
///   the 2^28 tags have the same fingerprint once in 2^16.
/// - A page that may not leave now keeps its place in *small*. In *main* it is passed over and keeps its hits.
/// - A page's hits are its marks. The number of marks counts, so that a hit only sets one and needs no
///   compare-and-swap.
struct s3_fifo {
  static constexpr char const* name = "s3_fifo";
  static constexpr std::uint32_t mark_bits = 3;
  struct set_state {
    std::uint64_t order;  ///< all ways, the oldest first, 4 bits each; small and main are subsets of it; XOR `in_order`
    std::uint64_t fingerprints[4];  ///< the queue ghost: a ring of 16-bit fingerprints
    std::uint32_t main;             ///< ways whose page is in main
    std::uint32_t ghosts;           ///< which fingerprints are in use, as a mask
    std::uint32_t next_ghost;       ///< the oldest fingerprint, which the next one replaces
  };

  template <class M>
  FOREBAY_DEVICE static std::uint32_t hit(std::uint32_t marks, set_state*, std::uint32_t) {
    return (marks | (marks + 1)) & 7;
  }

  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t victim(Set const& set, set_state* state) {
    set_view const view = set.look();
    if (view.evictable == 0) return no_way;
    queues const before{M::ld(&state->order) ^ in_order, M::ld(&state->main)};
    queues now = before;
    hit_counts hits(view);
    std::uint32_t small = view.evictable & ~now.main;
    std::uint32_t way = no_way;
    while (way == no_way && small != 0) {
      std::uint32_t const oldest = now.oldest_of(small);
      small &= ~(1u << oldest);
      if ((hits.at_least(2) >> oldest & 1) != 0) {
        now.to_end(1u << oldest);
        now.main |= 1u << oldest;
        hits.forget(1u << oldest);
        set.unmark(1u << oldest, 7);
      } else {
        way = oldest;
      }
    }
    if (way == no_way) way = from_main(set, view, now, hits);
    if (now.order != before.order) M::st(&state->order, now.order ^ in_order);
    if (now.main != before.main) M::st(&state->main, now.main);
    return way;
  }

  template <class M, class Set>
  FOREBAY_DEVICE static void evicted(Set const& set, set_state* state, std::uint32_t way, std::uint32_t tag,
                                     std::uint32_t) {
    if ((M::ld(&state->main) >> way & 1) != 0) return;
    std::uint32_t const at = M::ld(&state->next_ghost);
    std::uint32_t const shift = at % 4 * 16;
    std::uint64_t const others = M::ld(&state->fingerprints[at / 4]) & ~(std::uint64_t{0xffff} << shift);
    M::st(&state->fingerprints[at / 4], others | std::uint64_t{fingerprint(tag)} << shift);
    M::st(&state->ghosts, M::ld(&state->ghosts) | 1u << at);
    M::st(&state->next_ghost, at + 1 == set.ways() ? 0 : at + 1);
  }

  template <class M, class Set>
  FOREBAY_DEVICE static std::uint32_t filled(Set const&, set_state* state, std::uint32_t way, std::uint32_t tag) {
    std::uint32_t const ghosts = M::ld(&state->ghosts);
    std::uint32_t const known = ghosts & places_of<M>(state, fingerprint(tag));
    queues now{M::ld(&state->order) ^ in_order, M::ld(&state->main) & ~(1u << way)};
    now.to_end(1u << way);
    if (known != 0) {
      now.main |= 1u << way;
      M::st(&state->ghosts, ghosts & ~known);
    }
    M::st(&state->order, now.order ^ in_order);
    M::st(&state->main, now.main);
    return 0;
  }

  /// The upper half of the product with 2^32 divided by the golden ratio: tags that lie close together get different
  /// fingerprints.
  FOREBAY_DEVICE static constexpr std::uint32_t fingerprint(std::uint32_t tag) { return tag * 0x9e3779b1u >> 16; }

 private:
  static constexpr std::uint64_t in_order = 0xfedc'ba98'7654'3210u;

  /// Both queues: `order` has the pages of small and of main, and ways without a page, in any mixture.
  struct queues {
    std::uint64_t order;
    std::uint32_t main;

    FOREBAY_DEVICE std::uint32_t oldest_of(std::uint32_t ways) const {
      std::uint64_t rest = order;
      while ((ways >> (rest & 15) & 1) == 0) rest >>= 4;
      return static_cast<std::uint32_t>(rest & 15);
    }
    FOREBAY_DEVICE std::uint32_t older_than(std::uint32_t way) const {
      std::uint32_t ways = 0;
      for (std::uint64_t rest = order; (rest & 15) != way; rest >>= 4) ways |= 1u << (rest & 15);
      return ways;
    }
    /// Makes `ways` the youngest, and keeps the order among them.
    FOREBAY_DEVICE void to_end(std::uint32_t ways) {
      std::uint64_t stay = 0;
      std::uint64_t go = 0;
      std::uint32_t stay_bits = 0;
      std::uint32_t go_bits = 0;
      for (std::uint32_t k = 0; k < max_ways; ++k) {
        std::uint64_t const way = order >> 4 * k & 15;
        if ((ways >> way & 1) != 0) {
          go |= way << go_bits;
          go_bits += 4;
        } else {
          stay |= way << stay_bits;
          stay_bits += 4;
        }
      }
      order = go_bits == 0 ? stay : stay | go << stay_bits;
    }
  };

  /// Ways by the number of hits of their pages. That is the number of their marks, whichever marks they are.
  struct hit_counts {
    std::uint32_t one, two, three;  ///< ways with at least that many

    FOREBAY_DEVICE explicit hit_counts(set_view const& view)
        : one(view.marked[0] | view.marked[1] | view.marked[2]),
          two((view.marked[0] & view.marked[1]) | (view.marked[2] & (view.marked[0] | view.marked[1]))),
          three(view.marked[0] & view.marked[1] & view.marked[2]) {}
    FOREBAY_DEVICE std::uint32_t at_least(std::uint32_t hits) const {
      return hits == 1 ? one : hits == 2 ? two : hits == 3 ? three : 0;
    }
    FOREBAY_DEVICE void forget(std::uint32_t ways) {
      one &= ~ways;
      two &= ~ways;
      three &= ~ways;
    }
  };

  /// Chooses the page that leaves main. Moves around the queue until a page without hits is at its end, all rounds at
  /// once.
  template <class Set>
  FOREBAY_DEVICE static std::uint32_t from_main(Set const& set, set_view const& view, queues& now,
                                                hit_counts const& hits) {
    std::uint32_t const main = view.evictable & now.main;
    // A whole round leaves the order as it is and takes one hit from every page.
    std::uint32_t rounds = 0;
    while (rounds < 3 && (main & ~hits.at_least(rounds + 1)) == 0) ++rounds;
    std::uint32_t const way = now.oldest_of(main & ~hits.at_least(rounds + 1));
    std::uint32_t const passed = now.older_than(way) & view.pages & now.main;
    std::uint32_t const loses_hits = rounds != 0 ? main : main & passed;
    for (std::uint32_t mark = 0; loses_hits != 0 && mark < mark_bits; ++mark) {
      std::uint32_t const stays =
          (passed & hits.at_least(mark + rounds + 2)) | (~passed & hits.at_least(mark + rounds + 1));
      std::uint32_t const less = loses_hits & view.marked[mark] & ~stays;
      if (less != 0) set.unmark(less, 1u << mark);
    }
    if (passed != 0) now.to_end(passed);
    return way;
  }

  template <class M>
  FOREBAY_DEVICE static std::uint32_t places_of(set_state* state, std::uint32_t wanted) {
    std::uint32_t places = 0;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < 4; ++k) {
      std::uint64_t const four = M::ld(&state->fingerprints[k]);
      for (std::uint32_t j = 0; j < 4; ++j) {
        places |= static_cast<std::uint32_t>((four >> 16 * j & 0xffff) == wanted) << (4 * k + j);
      }
    }
    return places;
  }
};

}  // namespace forebay::replacement
