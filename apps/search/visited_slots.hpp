// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which vectors a search has read.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"

namespace forebay::search {

/// A table of slots in the device's memory, of one full warp. It may forget slots once it is crowded: then a vector is
/// read twice.
template <class M>
class visited_slots {
 public:
  static constexpr std::uint32_t empty = ~std::uint32_t{0};

  /// `words`: 2^`bits` of them.
  FOREBAY_DEVICE visited_slots(std::uint32_t* words, std::uint32_t bits) : words_(words), bits_(bits) {}

  FOREBAY_DEVICE void clear(typename M::warp const& warp) {
    for (std::uint32_t i = warp.thread_rank(); i < 1u << bits_; i += 32) words_[i] = empty;
    warp.sync();
  }
  /// Adds a slot. Returns whether it was not there. Lanes may call it together, also with the same slot.
  FOREBAY_DEVICE bool add(std::uint32_t slot) {
    std::uint32_t at = slot * 0x9e3779b1u >> (32 - bits_);
    for (std::uint32_t probes = 0; probes < probes_max; ++probes) {
      std::uint32_t found = empty;
      // relaxed: the word is all that is shared.
      if (simt::atomic<M>(words_[at]).compare_exchange(found, slot, simt::order::relaxed)) return true;
      if (found == slot) return false;
      at = (at + 1) & ((1u << bits_) - 1);
    }
    return true;
  }

 private:
  static constexpr std::uint32_t probes_max = 32;

  std::uint32_t* words_;
  std::uint32_t bits_;
};

}  // namespace forebay::search
