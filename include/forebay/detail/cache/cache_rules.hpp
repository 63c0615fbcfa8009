// SPDX-License-Identifier: Apache-2.0
//! \file
//! The decisions that the cache's invariants rest on.
#pragma once

#include <cstdint>

#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// The decisions that the cache's invariants rest on. They are gathered here so that a test can replace one of them by
/// a wrong one. Programs use this struct.
struct cache_rules {
  /// C3, C6: a frame counts as pinned only if the word that the pin was added to still named the page.
  FOREBAY_DEVICE static constexpr bool pin_holds(page_word seen, std::uint32_t tag) { return seen.names(tag); }
  /// C2: how the word changes when a page is about to be written back.
  FOREBAY_DEVICE static constexpr page_word written_back(page_word before) { return before.written_back(); }
  /// C1: whether the set is looked through again under its lock.
  static constexpr bool look_again = true;
  /// C2: whether a frame may take another page.
  FOREBAY_DEVICE static constexpr bool evictable(page_word word) { return word.is_evictable(); }
  /// C6: how a reader that does not pin looks at the word the first time.
  static constexpr simt::order first_look = simt::order::acquire;
  /// Whether a thread that waits for an unpinned frame also looks at frames outside the set.
  static constexpr bool waits_outside_the_set = true;
  /// Whether a waiter that looks at a few of those frames at a time goes on where it stopped.
  static constexpr bool looks_go_on = true;
  /// Q7: whether a thread that finds no room in a drive's queues asks for recovery of the commands that take the room.
  static constexpr bool asks_for_room = true;
  /// C2: whether writing back goes on for as long as the drive completes anything.
  static constexpr bool patient = true;
  /// C3: whether a thread that lets go of a shared buffer removes its owner's pin; `was_owner`: no thread has let go of
  /// the buffer before.
  FOREBAY_DEVICE static constexpr bool takes_owners_pin(bool was_owner) { return was_owner; }
};

}  // namespace forebay
