// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a machine says of itself. Code above it asks these questions by name and never which machine it is, so a test
//! can give a machine of fibers the answers of a GPU, and the schedules then run what only a GPU ran.
#pragma once

#include <cstdint>

namespace forebay::simt {

/// The answers of a machine that does nothing special. A machine derives from this and changes what differs.
struct machine_traits {
  /// How often a poll of memory that is not the caller's own is worth repeating before other work is looked for.
  static constexpr std::uint32_t looks_per_poll = 1;
  /// Whether wait_until() calls its predicate again and again. If not, it calls the predicate again only after
  /// something that it read has changed, so each call that returns false must have read everything that could make it
  /// true.
  static constexpr bool asks_again_and_again = true;
  /// Lanes of a warp; 0: as many as its block has.
  static constexpr std::uint32_t full_warp_lanes = 0;
  /// Whether a warp is one lane, and so a service unit one thread: collectives are the identity, and nobody else writes
  /// what is the unit's.
  static constexpr bool lanes_are_alone = false;
  /// Whether `warp::reduce_add` and `reduce_max` are there: one instruction for all lanes.
  static constexpr bool reduces_warps = false;
  /// Whether the lanes of an idle dispatcher look at one thing each, all of which are then known to all.
  static constexpr bool lanes_share_looks = false;
  /// Whether a look at memory takes no time where other accesses are under way anyhow. A dispatcher then looks at
  /// doorbells while it posts, and at its mailbox while it polls, and reads that in order only where a look found mail.
  static constexpr bool looks_beside_work = false;
  /// Whether who holds a lock goes on whatever the others do, so that it is worth trying again at once.
  static constexpr bool lock_holders_go_on = false;
  /// Whether the scratch of a dispatcher lies in the shared memory of its block, which each launch brings anew.
  static constexpr bool blocks_bring_scratch = false;
  /// Whether it reaches files that are mapped into memory, whose pages can be lost.
  static constexpr bool reaches_mapped_files = false;
};

}  // namespace forebay::simt
