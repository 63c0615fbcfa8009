// SPDX-License-Identifier: Apache-2.0
//! \file
//! The numbers of `std::mt19937` (Matsumoto and Nishimura, 1998), computed by the lanes of a warp together.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"

namespace forebay::graph {

/// Lies in memory that the lanes of one warp share. Numbers come in batches; those of the last two stay readable.
struct mersenne_twister {
  static constexpr std::uint32_t batch = 624;  ///< numbers that `advance` makes

  std::uint32_t words[2 * batch];  ///< number `n` comes of `words[n % (2 * batch)]`

  /// Before the first number of a seed. All lanes call it together.
  template <class M>
  FOREBAY_DEVICE void seed(simt::team<M> const& team, std::uint32_t value) {
    team.sync();  // lanes that still read the numbers of another seed
    if (team.leader()) {
      // Batch 0 takes the first half. What it is computed of stands where the batch before it would.
      std::uint32_t* const state = words + batch;
      state[0] = value;
      for (std::uint32_t i = 1; i < batch; ++i) {
        state[i] = 1812433253u * (state[i - 1] ^ state[i - 1] >> 30) + i;
      }
    }
    team.sync();
  }

  /// Makes batch `which`, the one after the last. All lanes call it together.
  template <class M>
  FOREBAY_DEVICE void advance(simt::team<M> const& team, std::uint32_t which) {
    constexpr std::uint32_t apart = 397, rest = batch - apart;
    std::uint32_t* const now = words + which % 2 * batch;
    std::uint32_t const* const before = words + (which + 1) % 2 * batch;
    team.sync();  // lanes that still read the batch in whose place this one comes
    // A word needs the one `apart` after it in the batch before, or `rest` before it in its own: so three parts.
    for (std::uint32_t k = team.rank(); k < rest; k += team.count()) {
      now[k] = before[k + apart] ^ twisted(before[k], before[k + 1]);
    }
    team.sync();
    for (std::uint32_t k = rest + team.rank(); k < 2 * rest; k += team.count()) {
      now[k] = now[k - rest] ^ twisted(before[k], before[k + 1]);
    }
    team.sync();
    for (std::uint32_t k = 2 * rest + team.rank(); k < batch; k += team.count()) {
      now[k] = now[k - rest] ^ twisted(before[k], k + 1 < batch ? before[k + 1] : now[0]);
    }
    team.sync();
  }

  /// Number `n` of the seed, of one of the last two batches.
  FOREBAY_DEVICE std::uint32_t number(std::uint32_t n) const {
    std::uint32_t word = words[n % (2 * batch)];
    word ^= word >> 11;
    word ^= word << 7 & 0x9d2c5680u;
    word ^= word << 15 & 0xefc60000u;
    return word ^ word >> 18;
  }

 private:
  FOREBAY_DEVICE static std::uint32_t twisted(std::uint32_t word, std::uint32_t next) {
    std::uint32_t const both = (word & 0x80000000u) | (next & 0x7fffffffu);
    return both >> 1 ^ ((both & 1) != 0 ? 0x9908b0dfu : 0);
  }
};

}  // namespace forebay::graph
