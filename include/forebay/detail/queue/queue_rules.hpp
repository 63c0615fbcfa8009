// SPDX-License-Identifier: Apache-2.0
//! \file
//! The decisions that the queue's invariants rest on.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// The default: each thread that waits, or finds a queue full, consumes completions for all threads.
///
/// The decisions are gathered in one type, so that a test can replace one of them by a wrong one and show that the
/// suite catches it.
struct queue_rules {
  /// Whether waiting threads consume completions.
  static constexpr bool waiters_help = true;
  /// Whether all drives have the same number of queue pairs.
  static constexpr bool even_pairs = true;

  /// Q3: an entry is published with this order, after it was written.
  static constexpr simt::order publish = simt::order::release;
  static constexpr bool entry_before_publish = true;

  /// Q2: a command uses the free id that it was given, never its slot number.
  FOREBAY_DEVICE static constexpr std::uint32_t command_id(std::uint32_t free_id, std::uint32_t /*slot*/) {
    return free_id;
  }

  /// Q6: the phase that an entry of completion-ring lap `lap` carries.
  FOREBAY_DEVICE static constexpr std::uint32_t phase(std::uint32_t lap) { return (lap & 1) ^ 1; }

  /// Q7: whether recovery is asked for a command only once it is old enough.
  static constexpr bool asks_by_age = true;
  /// Q7: whether a request whose caller cannot wait again is detached when its time is up.
  static constexpr bool detaches_for_good = true;
  /// Whether a thread that wants buffers back waits for commands that no other thread waits for.
  static constexpr bool settles_all = true;
  /// Whether a thread that consumes completions for others goes on to the next pair after a lap of a ring.
  static constexpr bool goes_round = true;

  /// Q1: how many of `ready` entries that are consumed together reach their targets.
  FOREBAY_DEVICE static constexpr std::uint32_t delivered(std::uint32_t ready) { return ready; }
};

}  // namespace forebay
