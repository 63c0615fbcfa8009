// SPDX-License-Identifier: Apache-2.0
//! \file
//! The properties of a machine. Code above it asks for them by name, and never asks which machine it is. So a test can
//! give a machine of fibers the properties of a GPU, and deterministic schedules then run code that otherwise runs only
//! on a GPU.
#pragma once

#include <cstdint>

namespace forebay::simt {

/// The properties of a machine that does nothing special. A machine derives from this and changes what differs.
struct machine_traits {
  /// How often to repeat a poll of memory that is not the caller's own before looking for other work.
  static constexpr std::uint32_t looks_per_poll = 1;
  /// Whether wait_until() calls its predicate again and again. If not, it calls it again only after something that the
  /// predicate read has changed. Each call that returns false must then have read everything that could make it true.
  static constexpr bool asks_again_and_again = true;
  /// Lanes of a full warp; 0: as many as its block has.
  static constexpr std::uint32_t full_warp_lanes = 0;
  /// Whether a warp is one lane, and so a service unit is one thread: collectives are the identity, and no other lane
  /// writes what belongs to the unit.
  static constexpr bool lanes_are_alone = false;
  /// Whether `warp::reduce_add` and `reduce_max` exist: one instruction for all lanes.
  static constexpr bool reduces_warps = false;
  /// Whether the lanes of an idle dispatcher look at one thing each and then share what they saw.
  static constexpr bool lanes_share_looks = false;
  /// Whether a look at memory takes no extra time while other accesses are under way. A dispatcher then looks at
  /// doorbells while it posts, and at its mailbox while it polls; it reads the mailbox in full order only if a look
  /// found mail.
  static constexpr bool looks_beside_work = false;
  /// Whether there is `cycles()`, a clock that is finer than `clock_ns()`: each multiprocessor has its own, of a rate
  /// that changes. Then `rest_unless_near()` exists too.
  static constexpr bool counts_cycles = false;
  /// Whether the holder of a lock makes progress whatever other threads do, so that it is worth trying again at once.
  static constexpr bool lock_holders_go_on = false;
  /// Whether the scratch of a dispatcher lies in the shared memory of its block, which is new in each launch.
  static constexpr bool blocks_bring_scratch = false;
  /// Whether the machine reaches files: mapped into memory, where pages can be lost, or through a medium. Its service
  /// units are single threads.
  static constexpr bool reaches_files = false;
};

}  // namespace forebay::simt
