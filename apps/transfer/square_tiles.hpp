// SPDX-License-Identifier: Apache-2.0
//! \file
//! Square tiles of a square grid for stencils of five points: each tile is staged with the values around it.
#pragma once

#include <string>

#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// Four places in a row, with their values and those around them. Beyond an edge of the grid is what is at the edge.
struct square_quad {
  std::uint32_t row, column;  ///< of the first place, in its tile
  quad here, north, south;
  float before, behind;  ///< the values in the west of the first place, and in the east of the last one

  FOREBAY_DEVICE float west(std::uint32_t i) const { return i == 0 ? before : here.of[i - 1]; }
  FOREBAY_DEVICE float east(std::uint32_t i) const { return i == 3 ? behind : here.of[i + 1]; }
};

/// The tiles of a grid, row by row. A staged tile has a row more on both sides, and `halo` columns. Nothing is copied
/// beyond the grid.
struct square_tiles {
  /// Columns that a tile has on a side beside its own: one would do, but copies are whole quads.
  static constexpr std::uint32_t halo = 4;

  std::uint32_t side;  ///< of the grid, a multiple of `tile`
  std::uint32_t tile;  ///< side of a tile, a multiple of 4

  /// The length of a staged tile.
  FOREBAY_DEVICE static constexpr std::uint32_t floats(std::uint32_t tile) { return (tile + 2) * (tile + 2 * halo); }
  /// A lane has so many rows of four columns, from top to bottom.
  FOREBAY_DEVICE static constexpr std::uint32_t rows_of_lane(std::uint32_t tile, std::uint32_t threads) {
    std::uint32_t const parts = threads < tile / 4 ? 1 : threads / (tile / 4);
    return (tile + parts - 1) / parts;
  }
  /// Loads of shared memory by `for_each_quad`, for each place of the grid.
  static double loads_of_place(std::uint32_t tile, std::uint32_t threads) {
    return (3 + 2.0 / rows_of_lane(tile, threads)) / 4;
  }
  /// Refuses a shape that these tiles cannot have.
  static void require(launch_shape const& shape, std::uint32_t side) {
    if (shape.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape.threads), "must be whole warps of 32");
    }
    require_tile(shape.tile, 4, side, 128);
  }

  FOREBAY_DEVICE std::uint32_t across() const { return side / tile; }
  FOREBAY_DEVICE std::uint32_t count() const { return across() * across(); }
  FOREBAY_DEVICE std::uint32_t pitch() const { return tile + 2 * halo; }
  FOREBAY_DEVICE std::uint32_t x_of(std::uint64_t item) const {
    return static_cast<std::uint32_t>(item) % across() * tile;
  }
  FOREBAY_DEVICE std::uint32_t y_of(std::uint64_t item) const {
    return static_cast<std::uint32_t>(item) / across() * tile;
  }
  /// Of a tile's first place in the grid.
  FOREBAY_DEVICE std::uint64_t offset(std::uint64_t item) const {
    return std::uint64_t{y_of(item)} * side + x_of(item);
  }
  /// What all staged tiles of all tiles hold together, without what lies beyond the grid.
  double staged_floats() const {
    double const borders = across() - 1;
    return (side + 2 * borders) * (side + 2 * halo * borders);
  }

  template <class Stager>
  FOREBAY_DEVICE void copy(Stager& staged, float* to, float const* grid, std::uint64_t item) const {
    std::uint32_t const x = x_of(item), y = y_of(item);
    std::uint32_t const above = y == 0 ? 0 : 1, below = y + tile == side ? 0 : 1;
    std::uint32_t const left = x == 0 ? 0 : halo, right = x + tile == side ? 0 : halo;
    staged.copy_rows(to + (1 - above) * pitch() + halo - left, pitch(),
                     grid + std::uint64_t{y - above} * side + x - left, side, above + tile + below,
                     left + tile + right);
  }

  /// Calls `work(square_quad)` for the lane's places of a staged tile, down each of its columns.
  template <class Block, class Work>
  FOREBAY_DEVICE void for_each_quad(Block const& block, std::uint64_t item, float const* staged, Work&& work) const {
    std::uint32_t const rows = rows_of_lane(tile, block.size()), parts = (tile + rows - 1) / rows;
    std::uint32_t const quads = tile / 4, x = x_of(item), y = y_of(item);
    for (std::uint32_t k = block.thread_rank(); k < parts * quads; k += block.size()) {
      std::uint32_t const column = k % quads * 4, first = k / quads * rows;
      std::uint32_t const end = first + rows < tile ? first + rows : tile;
      std::uint32_t const west = x + column == 0 ? 0 : 1, east = x + column + 4 == side ? 3 : 4;
      float const* place = staged + (first + 1) * pitch() + halo + column;
      quad here = quad::at(place), north = y + first == 0 ? here : quad::at(place - pitch());
      for (std::uint32_t row = first; row < end; ++row, place += pitch()) {
        quad const south = y + row + 1 == side ? here : quad::at(place + pitch());
        work(square_quad{row, column, here, north, south, *(place - west), place[east]});
        north = here;
        here = south;
      }
    }
  }
};

}  // namespace forebay::transfer
