// SPDX-License-Identifier: Apache-2.0
//! \file
//! Lanes of a warp that reach a place together, and do one thing there for all of them.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// The calling lane's view of its group. All members call the same function together, and none waits in between, so
/// that no lane can hang in a collective (docs/internals/queue.md). If a warp has one lane, every function is the
/// identity.
template <class M>
class together {
 public:
  /// The lanes of `here` with the same `key`. `here` must be `M::converged()`, called at the very place.
  FOREBAY_DEVICE together(typename M::warp const& here, std::uint32_t key) : lanes_(here.subset(here.match_any(key))) {}

  FOREBAY_DEVICE std::uint32_t size() const { return alone ? 1 : simt::team<M>::ones(lanes_.mask()); }
  /// 0 for the leading lane, 1 for the next, and so on.
  FOREBAY_DEVICE std::uint32_t rank() const { return alone ? 0 : among(lanes_.mask()); }
  FOREBAY_DEVICE bool leads() const { return rank() == 0; }
  /// How many lanes of `mask` come before the calling one.
  FOREBAY_DEVICE std::uint32_t among(std::uint32_t mask) const {
    return alone ? 0 : simt::team<M>::ones(mask & ((1u << lanes_.thread_rank()) - 1));
  }
  /// Those of `mask`, which must hold the caller.
  FOREBAY_DEVICE together subset(std::uint32_t mask) const { return together(lanes_.subset(mask)); }

  /// Orders the members' accesses to memory.
  FOREBAY_DEVICE void sync() const { lanes_.sync(); }
  FOREBAY_DEVICE std::uint32_t ballot(bool p) const { return lanes_.ballot(p); }
  FOREBAY_DEVICE bool any(bool p) const { return lanes_.any(p); }
  /// The value that the leader passed.
  template <class T>
  FOREBAY_DEVICE T from_leader(T value) const {
    return from(value, simt::team<M>::lowest(lanes_.mask()));
  }
  /// The value that the member passed that is lane `lane` of its warp.
  template <class T>
  FOREBAY_DEVICE T from(T value, std::uint32_t lane) const {
    return lanes_.shfl(value, lane);
  }
  /// How many members come before the first one whose `p` is false.
  FOREBAY_DEVICE std::uint32_t leading(bool p) const {
    if constexpr (alone) return p ? 1 : 0;
    std::uint32_t const fails = lanes_.mask() & ~lanes_.ballot(p);
    return simt::team<M>::ones(lanes_.mask() & (fails == 0 ? ~0u : (fails & (~fails + 1)) - 1));
  }

 private:
  static constexpr bool alone = M::lanes_are_alone;
  FOREBAY_DEVICE explicit together(typename M::warp const& lanes) : lanes_(lanes) {}

  typename M::warp lanes_;
};

}  // namespace forebay
