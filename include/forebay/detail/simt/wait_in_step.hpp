// SPDX-License-Identifier: Apache-2.0
//! \file
//! How the lanes of a warp wait together on a machine where a collective costs next to nothing.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

/// The rules of such a wait; tests derive from this to replace one by a wrong one.
struct in_step_rules {
  /// Whether a lane that is done goes on helping until all are done: the lanes meet in collectives.
  static constexpr bool stays_for_others = true;
};

/// Waits together with the other `lanes`, all of which call this, until `done()` holds for each of them or its deadline
/// has passed. Returns whether it holds for the caller. Meanwhile all of them call `help()`, also those that are done,
/// so that whatever it does together with other lanes, it does with all of them. `help` returns whether it did
/// anything; as long as it did, a deadline that has passed does not count yet (`late_helps_max`). Between looks in vain
/// the lanes rest by `M::pause`.
template <class M, class Rules = in_step_rules, class Done, class Help>
[[nodiscard]] FOREBAY_DEVICE bool wait_in_step(typename M::warp const& lanes, Done&& done, Help&& help,
                                               std::uint64_t deadline_ns) {
  bool holds = false;
  std::uint32_t late_helps = 0;
  for (unsigned pause_ns = 16;;) {
    // Read before the look: a thread that is held up in between looks once more before it gives up.
    bool const late = M::clock_ns() >= deadline_ns;
    holds = holds || done();
    if (Rules::stays_for_others ? lanes.all(holds) : holds) return true;
    bool const helped = lanes.any(help());
    if (!lanes.any(!holds && !late) && (!helped || ++late_helps == late_helps_max)) return holds || done();
    if (helped) continue;
    M::pause(pause_ns);
    if (pause_ns < 256) pause_ns *= 2;
  }
}

}  // namespace forebay::simt
