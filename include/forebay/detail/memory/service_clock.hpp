// SPDX-License-Identifier: Apache-2.0
//! \file
//! When something that serves one after the other is next free: a channel of a drive, or a link. Wait-free.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::memory {

/// Occupies, for `charge_ps`, a resource that is free from `next_free_ps` on, not before `not_before_ps`. Returns when
/// that begins. The clock lies in global memory, since threads of many blocks share it.
template <class M>
FOREBAY_DEVICE std::uint64_t advance(std::uint64_t& next_free_ps, std::uint64_t not_before_ps,
                                     std::uint64_t charge_ps) {
  // Relaxed: the clocks order nothing but themselves. Another thread may come between the two accesses: then this one
  // starts after that thread's, and still not before `not_before_ps`.
  auto const clock = simt::global_atomic<M>(next_free_ps);
  clock.raise(not_before_ps, simt::order::relaxed);
  return clock.fetch_add(charge_ps, simt::order::relaxed);
}

}  // namespace forebay::memory
