// SPDX-License-Identifier: Apache-2.0
//! \file
//! A block that stages tiles and sums elements of them, for each machine, each policy, and stagers that are wrong.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "forebay/detail/simt/stager.hpp"

namespace forebay::simt::testing {

/// What is summed: `tiles` tiles of words, followed by room for a sum for each of the `lanes` lanes.
struct staged_sums {
  static constexpr std::uint32_t tile = 96;              // of words
  static constexpr std::uint32_t columns = 24;           // of a row of a tile
  static constexpr std::uint32_t terms = 3;              // of each lane, in each tile
  static constexpr std::uint32_t not_here = 0xffffffff;  // the sum where the machine lacks the policy

  std::uint32_t lanes;
  std::uint32_t tiles;

  static std::uint32_t word(std::uint32_t tile_number, std::uint32_t at) { return tile_number * 1009 + at * 31 + 7; }
  /// Where lane `lane` reads its term `k`.
  FOREBAY_DEVICE static std::uint32_t place(std::uint32_t lane, std::uint32_t k) { return (lane * 5 + k * 37) % tile; }

  std::vector<std::uint32_t> words() const {
    std::vector<std::uint32_t> all(tiles * tile + lanes);
    for (std::uint32_t i = 0; i < tiles * tile; ++i) all[i] = word(i / tile, i % tile);
    return all;
  }
  std::vector<std::uint32_t> expected() const {
    std::vector<std::uint32_t> sums(lanes);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      for (std::uint32_t t = 0; t < tiles; ++t) {
        for (std::uint32_t k = 0; k < terms; ++k) sums[lane] += (k + 1) * word(t, place(lane, k));
      }
    }
    return sums;
  }
  std::vector<std::uint32_t> of(std::vector<std::uint32_t> const& words) const {
    return {words.end() - lanes, words.end()};
  }
};

/// Stages the tiles through `stages` buffers. Each lane sums words of each tile that other lanes may have brought, and
/// writes over one of them before it releases the tile.
template <class M, class Policy, class Rules = stager_rules>
struct staged_sums_kernel {
  std::uint32_t tiles = 1;
  std::uint32_t stages = 1;
  std::uint32_t* words = nullptr;
  staged_sums_kernel with(std::uint32_t* data) const { return {tiles, stages, data}; }

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t* const sums = words + tiles * staged_sums::tile;
    auto const block = M::this_block();
    std::uint32_t const me = block.thread_rank();
    if constexpr (std::is_same_v<Policy, stage_policy::bulk> && !M::has_bulk_copies) {
      sums[me] = staged_sums::not_here;
    } else {
      stager<M, Policy, std::uint32_t, Rules> staged(block, &block.template shared<std::byte>(), staged_sums::tile,
                                                     stages);
      std::uint32_t sum = 0;
      for (std::uint32_t t = 0; t < tiles + stages - 1; ++t) {
        if (t < tiles) fill(staged, t);
        if (t + 1 < stages) continue;
        std::uint32_t* const now = staged.wait();
        for (std::uint32_t k = 0; k < staged_sums::terms; ++k) sum += (k + 1) * M::ld(now + staged_sums::place(me, k));
        block.sync();
        if (me < staged_sums::tile) M::st(now + me, std::uint32_t{5});
        staged.release();
      }
      M::st(sums + me, sum);
    }
  }

 private:
  template <class Stager>
  FOREBAY_DEVICE void fill(Stager& staged, std::uint32_t t) const {
    constexpr std::uint32_t columns = staged_sums::columns, rows = staged_sums::tile / columns;
    std::uint32_t const* const from = words + t * staged_sums::tile;
    std::uint32_t* const to = staged.acquire();
    if (t % 2 == 0) {
      staged.copy(to, from, staged_sums::tile);
    } else {
      // In two parts, each of some columns.
      staged.copy_rows(to, columns, from, columns, rows, 8);
      staged.copy_rows(to + 8, columns, from + 8, columns, rows, columns - 8);
    }
    staged.commit();
  }
};

}  // namespace forebay::simt::testing
