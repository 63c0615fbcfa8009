// SPDX-License-Identifier: Apache-2.0
//! \file
//! The scores of the best global alignments of two sequences (Needleman and Wunsch), from tile to tile.
#pragma once

#include <array>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// What a residue costs that is aligned with none.
inline constexpr std::int32_t nw_gap = 10;

FOREBAY_DEVICE constexpr std::int32_t nw_larger(std::int32_t a, std::int32_t b) {
  return a > b ? a : b;
}

/// Computes a diagonal of tiles, from the upper right to the lower left, once the diagonals before it are there. A tile
/// is the similarities of its cells, then the row of scores above it, then the last four scores of each row to its
/// left, beginning with the row above. The scores take the place of the similarities.
template <class M, class Policy>
struct nw_kernel {
  static constexpr unsigned max_threads_per_block = threads_max;

  std::int32_t const* similarity;
  std::int32_t* scores;
  std::uint32_t side;
  std::uint32_t diagonal;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE static constexpr std::uint32_t tile_ints(std::uint32_t tile) { return tile * tile + 5 * tile + 4; }
  FOREBAY_DEVICE static constexpr std::uint32_t shared_bytes(std::uint32_t tile, std::uint32_t stages) {
    return simt::stager<M, Policy, std::int32_t>::shared_bytes(tile_ints(tile), stages);
  }

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const tiles = side / tile;
    std::uint32_t const first = diagonal < tiles ? 0 : diagonal - tiles + 1;  // row of tiles
    std::uint32_t const end = diagonal < tiles ? diagonal + 1 : tiles;
    simt::stager<M, Policy, std::int32_t> staged(block, &block.template shared<std::byte>(), tile_ints(tile), stages);
    for_each_tile(
        staged, stages, first + block.rank, block_count<M>(), end,
        [&](std::uint64_t tile_row) {
          std::uint32_t const row = static_cast<std::uint32_t>(tile_row) * tile, column = diagonal * tile - row;
          std::size_t const corner = std::size_t{row} * side + column;
          std::int32_t* const to = staged.acquire();
          std::int32_t *const above = to + tile * tile, *const left = above + tile;
          staged.copy_rows(to, tile, similarity + corner, side, tile, tile);
          if (row != 0) staged.copy(above, scores + corner - side, tile);
          if (column != 0) {
            std::uint32_t const rows_above = row == 0 ? 0 : 1;
            staged.copy_rows(left + 4 * (1 - rows_above), 4, scores + corner - rows_above * std::size_t{side} - 4, side,
                             rows_above + tile, 4);
          }
          staged.commit();
        },
        [&](std::uint64_t tile_row, std::int32_t* cells) {
          std::uint32_t const row = static_cast<std::uint32_t>(tile_row) * tile, column = diagonal * tile - row;
          add_border(cells, row, column);
          block.sync();
          for (std::uint32_t at = 0; at < tile; at += block.size()) fill_columns(cells, at);
          std::int32_t* const to = scores + std::size_t{row} * side + column;
          for (std::uint32_t r = block.thread_rank() / 32; r < tile; r += block.size() / 32) {
            for (std::uint32_t c = block.thread_rank() % 32; c < tile; c += 32) {
              to[std::size_t{r} * side + c] = cells[r * tile + c];
            }
          }
        });
  }

 private:
  /// Row and column 0 of the matrix are known, and not stored: `row` and `column` count from what follows them.
  FOREBAY_DEVICE void add_border(std::int32_t* cells, std::uint32_t row, std::uint32_t column) const {
    auto const block = M::this_block();
    std::int32_t *const above = cells + tile * tile, *const left = above + tile;
    for (std::uint32_t i = block.thread_rank(); i < tile; i += block.size()) {
      if (row == 0) above[i] = border(column + 1 + i);
      if (column == 0) left[4 * (1 + i) + 3] = border(row + 1 + i);
    }
    if (block.thread_rank() == 0 && (row == 0 || column == 0)) left[3] = border(row + column);
  }
  FOREBAY_DEVICE static std::int32_t border(std::uint32_t place) { return -nw_gap * static_cast<std::int32_t>(place); }

  /// Fills as many columns of a tile as the block has lanes, from `at` on. Each lane goes down its column, one row
  /// behind the lane to its left. So lanes access ints that lie `tile - 1` apart, in different banks. A warp is `lag`
  /// rows further behind the warp to its left, so that they meet only once in so many steps.
  FOREBAY_DEVICE void fill_columns(std::int32_t* cells, std::uint32_t at) const {
    constexpr std::uint32_t lag = 8;
    auto const block = M::this_block();
    auto const lanes = M::this_warp();
    std::uint32_t const rank = block.thread_rank(), lane = rank % 32;
    std::uint32_t const width = block.size() < tile - at ? block.size() : tile - at;
    std::uint32_t const steps = tile + width - 1 + (lag - 1) * ((width - 1) / 32);
    std::uint32_t const start = rank + (lag - 1) * (rank / 32);
    std::uint32_t const column = at + rank;
    std::int32_t const* const left = cells + tile * tile + tile;
    std::int32_t const* const before = column == 0 ? left + 7 : cells + column - 1;
    std::uint32_t const before_pitch = column == 0 ? 4 : tile;
    std::int32_t score = 0, diagonal_score = 0;
    if (rank < width) {
      score = cells[tile * tile + column];
      diagonal_score = column == 0 ? left[3] : cells[tile * tile + column - 1];
    }
    for (std::uint32_t step = 0; step < steps; ++step) {
      if (rank - lane < width) {
        std::uint32_t const row = step - start;
        bool const has_cell = row < tile && rank < width;
        // Both loads are under way before the lanes wait for each other.
        std::int32_t const similar = has_cell ? cells[row * tile + column] : 0;
        std::int32_t const from_warp_before = has_cell && lane == 0 ? before[row * before_pitch] : 0;
        std::int32_t const from_lane_before = lanes.shfl(score, lane == 0 ? 0 : lane - 1);
        if (has_cell) {
          std::int32_t const left_score = lane == 0 ? from_warp_before : from_lane_before;
          score = nw_larger(diagonal_score + similar, nw_larger(score, left_score) - nw_gap);
          diagonal_score = left_score;
          cells[row * tile + column] = score;
        }
      }
      if (step % lag == lag - 1) block.sync();
    }
    block.sync();
  }
};

class nw {
 public:
  static constexpr workload_facts facts{"nw", workload_group::application, "cells of a side",
                                        "scores of the best global alignments of all beginnings of two sequences"};

  nw(problem_size size, launch_shape given) : shape_(completed(given, {0, 128, 64, 2})) {
    constexpr std::uint32_t sides[] = {512, 2048, 6144, 10240, 20480, 40960};
    side_ = sides[static_cast<int>(size)];
    require_tile(shape_.tile, 4, side_, 1024);
    if (shape_.blocks == 0) shape_.blocks = side_ / shape_.tile;
    if (shape_.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps");
    }
    using any_kernel = nw_kernel<simt::fiber, simt::stage_policy::bulk>;
    require_shared_bytes(any_kernel::shared_bytes(shape_.tile, shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const bytes = std::uint64_t{side_} * side_ * sizeof(std::int32_t);
    return {{"similarity", bytes, buffer_use::in}, {"scores", bytes, buffer_use::out}};
  }
  workload_costs costs() const {
    double const side = side_, cells = side * side, tile = shape_.tile, tiles = side / tile;
    // The tiles of the first row and column lack a neighbour.
    double const around = tiles * (tiles - 1) * 5 * tile + 4 * (tiles - 1) * (tiles - 1);
    return {
        .operations = 4 * cells, .staged_bytes = (cells + around) * sizeof(std::int32_t), .shared_accesses = 3 * cells};
  }

  void init(std::uint64_t seed, views host) const {
    std::int32_t* const similarity = host.at<std::int32_t>(0);
    alignment const given(seed, side_);
    in_parallel(side_, 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        for (std::uint64_t j = 0; j < side_; ++j) similarity[i * side_ + j] = given.similarity(i, j);
      }
    });
  }

  /// Looks whether each score follows from the three before it, as they were found, or from the border. Then all are
  /// right: the first wrong one would have right ones before it.
  std::string mismatch(std::uint64_t seed, views host) const {
    comparison results("scores");
    std::int32_t const* const found = host.at<std::int32_t>(1);
    alignment const given(seed, side_);
    in_parallel(side_, 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        std::int32_t const* const row = found + i * side_;
        auto const above_row = [&](std::uint64_t j) { return i == 0 ? border(j + 1) : (row - side_)[j]; };
        std::int32_t left = border(i + 1), diagonal = border(i);
        for (std::uint64_t j = 0; j < side_; ++j) {
          std::int32_t const above = above_row(j);
          std::int32_t const expected = std::max(diagonal + given.similarity(i, j), std::max(above, left) - nw_gap);
          results.equal(i * side_ + j, row[j], expected);
          left = row[j];
          diagonal = above;
        }
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using kernel = nw_kernel<typename Run::machine, Policy>;
    std::uint32_t const tiles = side_ / shape_.tile;
    for (std::uint32_t diagonal = 0; diagonal < 2 * tiles - 1; ++diagonal) {
      std::uint32_t const length = std::min(diagonal + 1, 2 * tiles - 1 - diagonal);
      run({std::min(shape_.blocks, length), shape_.threads, kernel::shared_bytes(shape_.tile, shape_.stages)},
          kernel{device.at<std::int32_t>(0), device.at<std::int32_t>(1), side_, diagonal, shape_.tile, shape_.stages});
    }
  }

 private:
  /// Two random sequences of 24 kinds of residues, and how similar the kinds are: -4 to 11, symmetric.
  class alignment {
   public:
    alignment(std::uint64_t seed, std::uint32_t length) : down_(length), across_(length) {
      for (std::uint32_t i = 0; i < length; ++i) {
        down_[i] = static_cast<std::uint8_t>(bits_at(seed, 0, i) % kinds);
        across_[i] = static_cast<std::uint8_t>(bits_at(seed, 1, i) % kinds);
      }
      for (std::uint32_t a = 0; a < kinds; ++a) {
        for (std::uint32_t b = 0; b <= a; ++b) {
          table_[a][b] = table_[b][a] = static_cast<std::int32_t>(bits_at(seed, 2, a * kinds + b) % 16) - 4;
        }
      }
    }
    std::int32_t similarity(std::uint64_t i, std::uint64_t j) const { return table_[down_[i]][across_[j]]; }

   private:
    static constexpr std::uint32_t kinds = 24;
    std::vector<std::uint8_t> down_, across_;
    std::array<std::array<std::int32_t, kinds>, kinds> table_;
  };

  static std::int32_t border(std::uint64_t place) { return -nw_gap * static_cast<std::int32_t>(place); }

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
