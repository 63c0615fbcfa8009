// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the directory knows of a frame, as one 64-bit word, and how that word may change.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// What a frame holds.
enum class page_state : std::uint32_t {
  invalid = 0,  ///< nothing
  busy = 1,     ///< a page that is being read
  failed = 2,   ///< a page whose read failed; the same as `invalid` once no thread has it pinned
  valid = 3,    ///< a page
};

/// Bit budget, from bit 0:
///
///     state 2 | dirty 1 | writing 1 | tag 28 || unused 1 | marks 3 | version 8 | pins 20
///
/// The first half tells in one comparison of 32 bits whether a frame holds a page. The names of the design: READY is
/// `valid`; MODIFIED is `valid` and dirty; WRITING is `valid` and writing, and dirty again if a thread has written
/// since. 20 bits of pins count to more than three times the threads of any GPU (270,336 on an H100). They lie at the
/// top, so that one pin too many cannot reach anything else. The version counts the pages that the frame has held. So a
/// reader that does not pin sees that the frame has changed hands, even if it holds the same page again. 28 bits of tag
/// are 2^28 pages of the drives for each set of the cache.
///
/// Transitions, each one atomic access:
///
///     invalid, failed, valid -> busy   under the set's lock, only unpinned, clean and not writing; the version grows.
///                                      Outside the sets by way of invalid, and from there pinned or not
///     busy -> valid, busy -> failed    by the completion of the read, whichever thread consumes it
///     busy -> invalid                  a prefetch that found no room in the queues gives its claim back
///     clean -> dirty                   by a thread that has pinned the frame, before it writes
///     dirty -> writing                 clean from then on, unless a thread has the frame pinned
///     writing -> not writing           by the completion of the write; dirty again if it failed
struct page_word {
  static constexpr std::uint64_t state_mask = 3;
  static constexpr std::uint64_t dirty = 1 << 2;
  static constexpr std::uint64_t writing = 1 << 3;
  static constexpr std::uint32_t tag_shift = 4;
  static constexpr std::uint32_t tag_bits = 28;
  static constexpr std::uint64_t unused = std::uint64_t{1} << 32;
  static constexpr std::uint32_t mark_shift = 33;
  static constexpr std::uint32_t mark_bits = 3;
  static constexpr std::uint64_t mark_mask = ((std::uint64_t{1} << mark_bits) - 1) << mark_shift;
  static constexpr std::uint32_t version_shift = mark_shift + mark_bits;
  static constexpr std::uint32_t version_bits = 8;
  static constexpr std::uint64_t version_mask = ((std::uint64_t{1} << version_bits) - 1) << version_shift;
  static constexpr std::uint32_t pin_shift = version_shift + version_bits;
  static constexpr std::uint64_t one_pin = std::uint64_t{1} << pin_shift;
  /// Added to a busy word to make it failed.
  static constexpr std::uint64_t busy_to_failed = 1;
  /// Set in a busy word to make it valid.
  static constexpr std::uint64_t busy_to_valid = 2;

  std::uint64_t bits = 0;

  FOREBAY_DEVICE constexpr page_state state() const { return static_cast<page_state>(bits & state_mask); }
  FOREBAY_DEVICE constexpr std::uint32_t tag() const { return static_cast<std::uint32_t>(bits) >> tag_shift; }
  FOREBAY_DEVICE constexpr bool is_dirty() const { return (bits & dirty) != 0; }
  FOREBAY_DEVICE constexpr bool is_writing() const { return (bits & writing) != 0; }
  /// Prefetched and not accessed yet.
  FOREBAY_DEVICE constexpr bool is_unused() const { return (bits & unused) != 0; }
  /// The replacement policy's.
  FOREBAY_DEVICE constexpr std::uint32_t marks() const {
    return static_cast<std::uint32_t>(bits >> mark_shift) & ((1u << mark_bits) - 1);
  }
  FOREBAY_DEVICE constexpr std::uint32_t pins() const { return static_cast<std::uint32_t>(bits >> pin_shift); }

  /// Whether the frame is for the page `wanted`, in any state.
  FOREBAY_DEVICE constexpr bool names(std::uint32_t wanted) const {
    return tag() == wanted && state() != page_state::invalid;
  }
  /// Whether the frame holds the page `wanted`.
  FOREBAY_DEVICE constexpr bool holds(std::uint32_t wanted) const {
    constexpr auto ignored = static_cast<std::uint32_t>(dirty | writing);
    return (static_cast<std::uint32_t>(bits) & ~ignored) ==
           (wanted << tag_shift | static_cast<std::uint32_t>(page_state::valid));
  }
  /// Whether the same page has been in the frame since `earlier` was read.
  FOREBAY_DEVICE constexpr bool same_page(page_word earlier) const {
    constexpr std::uint64_t identity = state_mask | version_mask | (((std::uint64_t{1} << tag_bits) - 1) << tag_shift);
    return ((bits ^ earlier.bits) & identity) == 0;
  }
  /// Whether the frame is free to take any page.
  FOREBAY_DEVICE constexpr bool is_free() const {
    return pins() == 0 && (state() == page_state::invalid || state() == page_state::failed);
  }
  /// Whether the page may make room for another one.
  FOREBAY_DEVICE constexpr bool is_evictable() const {
    return state() == page_state::valid && (bits & (dirty | writing)) == 0 && pins() == 0;
  }
  /// Whether writing the page back would make it evictable.
  FOREBAY_DEVICE constexpr bool is_cleanable() const {
    return state() == page_state::valid && (bits & (dirty | writing)) == dirty && pins() == 0;
  }

  /// The frame's next word, when it is claimed to read page `tag` into it; the page is then pinned `pins` times.
  FOREBAY_DEVICE constexpr page_word claimed_for(std::uint32_t tag, std::uint32_t pins, bool prefetched) const {
    std::uint64_t const version = (bits + (std::uint64_t{1} << version_shift)) & version_mask;
    return {static_cast<std::uint64_t>(page_state::busy) | std::uint64_t{tag} << tag_shift | (prefetched ? unused : 0) |
            version | std::uint64_t{pins} << pin_shift};
  }
  /// The word while the page is written back. If a thread has it pinned, that thread may be about to write: the page
  /// stays dirty.
  FOREBAY_DEVICE constexpr page_word written_back() const { return {(bits | writing) & ~(pins() == 0 ? dirty : 0)}; }
};

}  // namespace forebay
