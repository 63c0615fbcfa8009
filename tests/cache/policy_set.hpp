// SPDX-License-Identifier: Apache-2.0
//! \file
//! One set of the page directory, with only what a test of a replacement policy needs.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"

namespace forebay::test {

/// A set of up to 16 ways with a policy. A way's word: bits 0 to 2 marks, 3 page, 4 evictable, from 8 the tag.
template <class M, class Policy>
class policy_set {
 public:
  static_assert(replacement::policy<Policy, M>);
  static constexpr std::uint32_t no_way = replacement::no_way;

  FOREBAY_DEVICE explicit policy_set(std::uint32_t ways) : ways_(ways) {}

  FOREBAY_DEVICE std::uint32_t ways() const { return ways_; }
  FOREBAY_DEVICE replacement::set_view look() const {
    replacement::set_view view;
    for (std::uint32_t way = 0; way < ways_; ++way) {
      std::uint32_t const word = read(way);
      view.pages |= (word >> 3 & 1) << way;
      view.evictable |= (word >> 4 & 1) << way;
      for (std::uint32_t mark = 0; mark < 3; ++mark) view.marked[mark] |= (word >> mark & 1) << way;
    }
    return view;
  }
  FOREBAY_DEVICE void unmark(std::uint32_t ways, std::uint32_t marks) const {
    simt::atomic<M>(unmarks_).fetch_add(1, simt::order::relaxed);
    for (std::uint32_t way = 0; way < ways_; ++way) {
      // Relaxed: marks are hints.
      if ((ways >> way & 1) != 0) simt::atomic<M>(words_[way]).fetch_and(~marks, simt::order::relaxed);
      if (storm_) simt::atomic<M>(words_[way]).fetch_or((1u << Policy::mark_bits) - 1, simt::order::relaxed);
    }
  }

  FOREBAY_DEVICE std::uint32_t find(std::uint32_t tag) const {
    for (std::uint32_t way = 0; way < ways_; ++way) {
      std::uint32_t const word = read(way);
      if ((word & page) != 0 && word >> 8 == tag) return way;
    }
    return no_way;
  }
  FOREBAY_DEVICE std::uint32_t free_way() const {
    for (std::uint32_t way = 0; way < ways_; ++way) {
      if ((read(way) & page) == 0) return way;
    }
    return no_way;
  }
  FOREBAY_DEVICE std::uint32_t tag(std::uint32_t way) const { return read(way) >> 8; }
  FOREBAY_DEVICE std::uint32_t marks(std::uint32_t way) const { return read(way) & 7; }
  /// How often marks were cleared.
  FOREBAY_DEVICE std::uint32_t unmarks() const { return unmarks_; }
  /// From now on every page gets all its marks back as soon as any is cleared.
  FOREBAY_DEVICE void begin_storm_of_hits() { storm_ = true; }

  FOREBAY_DEVICE void set_evictable(std::uint32_t way, bool may) {
    std::uint32_t const word = read(way) & ~evictable;
    simt::atomic<M>(words_[way]).store(word | (may ? evictable : 0), simt::order::relaxed);
  }
  FOREBAY_DEVICE void hit(std::uint32_t way) {
    std::uint32_t const before = marks(way);
    std::uint32_t const after = Policy::template hit<M>(before, &state_, way);
    M::check((before & ~after) == 0 && after >> Policy::mark_bits == 0, "a hit clears marks, or sets more than it has");
    if (after != before) simt::atomic<M>(words_[way]).fetch_or(after & ~before, simt::order::relaxed);
  }
  FOREBAY_DEVICE std::uint32_t victim() { return Policy::template victim<M>(*this, &state_); }
  FOREBAY_DEVICE void evict(std::uint32_t way) {
    std::uint32_t const word = read(way);
    erase(way);
    Policy::template evicted<M>(*this, &state_, way, word >> 8, word & 7);
  }
  FOREBAY_DEVICE void erase(std::uint32_t way) { simt::atomic<M>(words_[way]).store(0, simt::order::relaxed); }
  FOREBAY_DEVICE void fill(std::uint32_t way, std::uint32_t tag) {
    std::uint32_t const first = Policy::template filled<M>(*this, &state_, way, tag);
    M::check(first >> Policy::mark_bits == 0, "a new page has marks that the policy has not");
    simt::atomic<M>(words_[way]).store(tag << 8 | evictable | page | first, simt::order::relaxed);
  }

  /// Uses the page `tag`, which comes in if it is not here and a page may leave for it. Returns whether it was here.
  FOREBAY_DEVICE bool use(std::uint32_t tag) {
    if (std::uint32_t const way = find(tag); way != no_way) {
      hit(way);
      return true;
    }
    std::uint32_t way = free_way();
    if (way == no_way) {
      way = victim();
      if (way == no_way) return false;
      evict(way);
    }
    fill(way, tag);
    return false;
  }

 private:
  static constexpr std::uint32_t page = 1u << 3;
  static constexpr std::uint32_t evictable = 1u << 4;
  // Relaxed, here as above: under the lock of a test, or a hint.
  FOREBAY_DEVICE std::uint32_t read(std::uint32_t way) const {
    return simt::atomic<M>(words_[way]).load(simt::order::relaxed);
  }

  std::uint32_t ways_;
  mutable std::uint32_t words_[replacement::max_ways] = {};
  mutable std::uint32_t unmarks_ = 0;
  bool storm_ = false;
  typename Policy::set_state state_{};
};

}  // namespace forebay::test
