// SPDX-License-Identifier: Apache-2.0
//! \file
//! The bits of a frame's word: that they do not overlap, and what each query makes of them.
#include "forebay/detail/cache/page_word.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace forebay {
namespace {

constexpr std::uint64_t tag_mask = ((std::uint64_t{1} << page_word::tag_bits) - 1) << page_word::tag_shift;
constexpr std::uint64_t pin_mask = ~std::uint64_t{0} << page_word::pin_shift;

constexpr page_word word(page_state state, std::uint32_t tag, std::uint64_t more = 0) {
  return {static_cast<std::uint64_t>(state) | std::uint64_t{tag} << page_word::tag_shift | more};
}

TEST(PageWord, EveryBitHasOneMeaning) {
  std::uint64_t const parts[] = {page_word::state_mask, page_word::dirty,     page_word::writing,      tag_mask,
                                 page_word::unused,     page_word::mark_mask, page_word::version_mask, pin_mask};
  std::uint64_t all = 0;
  for (std::uint64_t const part : parts) {
    EXPECT_EQ(all & part, 0u);
    all |= part;
  }
  EXPECT_EQ(all, ~std::uint64_t{0});
}

TEST(PageWord, PartsAreReadBack) {
  std::uint64_t const seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 10000; ++i) {
    page_word const w{random()};
    EXPECT_EQ(w.bits & page_word::state_mask, static_cast<std::uint64_t>(w.state()));
    EXPECT_EQ(std::uint64_t{w.tag()} << page_word::tag_shift, w.bits & tag_mask);
    EXPECT_EQ(std::uint64_t{w.marks()} << page_word::mark_shift, w.bits & page_word::mark_mask);
    EXPECT_EQ(std::uint64_t{w.pins()} << page_word::pin_shift, w.bits & pin_mask);
    EXPECT_EQ(w.names(w.tag()), w.state() != page_state::invalid);
    EXPECT_EQ(w.holds(w.tag()), w.state() == page_state::valid);
    EXPECT_FALSE(w.names(w.tag() ^ 1));
    EXPECT_FALSE(w.holds(w.tag() ^ 1));
    EXPECT_LE(w.is_free() + w.is_evictable() + w.is_cleanable(), 1);
    EXPECT_TRUE(w.pins() == 0 || !(w.is_free() || w.is_evictable() || w.is_cleanable()));
  }
}

TEST(PageWord, APinNeverLeavesItsBits) {
  page_word const before = word(page_state::valid, 77, page_word::dirty | page_word::version_mask);
  page_word w = before;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << (64 - page_word::pin_shift); ++i) w.bits += page_word::one_pin;
  EXPECT_EQ(w.bits, before.bits);
  // More than any GPU has threads, each with three.
  EXPECT_GT(std::uint64_t{1} << (64 - page_word::pin_shift), 3u * 2048 * 160);
}

TEST(PageWord, AReadEndsInOneOfTwoWays) {
  page_word const busy = word(page_state::busy, 5, 3 * page_word::one_pin);
  EXPECT_EQ(page_word{busy.bits | page_word::busy_to_valid}.state(), page_state::valid);
  EXPECT_EQ(page_word{busy.bits + page_word::busy_to_failed}.state(), page_state::failed);
  EXPECT_EQ(page_word{busy.bits & ~page_word::state_mask}.state(), page_state::invalid);
  EXPECT_EQ((busy.bits + page_word::busy_to_failed) >> 2, busy.bits >> 2);
}

TEST(PageWord, AClaimMakesAnotherPageOfIt) {
  page_word old = word(page_state::valid, 9, page_word::mark_mask | page_word::unused);
  for (std::uint32_t n = 0; n < 600; ++n) {
    page_word const now = old.claimed_for((1u << 28) - 1, 1, n % 2 == 0);
    EXPECT_EQ(now.state(), page_state::busy);
    EXPECT_EQ(now.tag(), (1u << 28) - 1);
    EXPECT_EQ(now.pins(), 1u);
    EXPECT_EQ(now.marks(), 0u);
    EXPECT_EQ(now.is_unused(), n % 2 == 0);
    EXPECT_FALSE(now.is_dirty() || now.is_writing());
    EXPECT_FALSE(now.same_page(old));
    // The same page again, read again: a reader that did not pin must see that.
    EXPECT_FALSE(now.claimed_for(now.tag(), 1, n % 2 == 0).same_page(now));
    old = {now.bits | page_word::busy_to_valid};
  }
}

TEST(PageWord, HintsPinsAndWritesLeaveThePageTheSame) {
  page_word const w = word(page_state::valid, 1234, 5 * (std::uint64_t{1} << page_word::version_shift));
  for (std::uint64_t const change : {page_word::dirty, page_word::writing, page_word::unused, page_word::one_pin,
                                     std::uint64_t{1} << page_word::mark_shift}) {
    EXPECT_TRUE(page_word{w.bits ^ change}.same_page(w));
    EXPECT_TRUE(page_word{w.bits ^ change}.holds(1234));
  }
  EXPECT_FALSE(page_word{w.bits + (std::uint64_t{1} << page_word::version_shift)}.same_page(w));
  EXPECT_FALSE((page_word{w.bits & ~page_word::state_mask}.same_page(w)));
}

TEST(PageWord, AWriteBackLeavesAPinnedPageDirty) {
  page_word const free = word(page_state::valid, 3, page_word::dirty);
  EXPECT_TRUE(free.is_cleanable());
  EXPECT_FALSE(free.written_back().is_dirty());
  EXPECT_TRUE(free.written_back().is_writing());
  EXPECT_FALSE(free.written_back().is_evictable());
  page_word const pinned = word(page_state::valid, 3, page_word::dirty | page_word::one_pin);
  EXPECT_FALSE(pinned.is_cleanable());
  EXPECT_TRUE(pinned.written_back().is_dirty());
  EXPECT_TRUE(page_word{free.written_back().bits & ~page_word::writing}.is_evictable());
}

TEST(PageWord, OnlyUnpinnedFailuresAreFree) {
  EXPECT_TRUE(word(page_state::failed, 3).is_free());
  EXPECT_TRUE(word(page_state::invalid, 3).is_free());
  EXPECT_FALSE(word(page_state::failed, 3, page_word::one_pin).is_free());
  EXPECT_FALSE(word(page_state::busy, 3).is_free());
  EXPECT_FALSE(word(page_state::busy, 3).is_evictable());
}

}  // namespace
}  // namespace forebay
