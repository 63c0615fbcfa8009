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
  /// Which quads of a tile a lane has: every `step`-th from `first` on, of a tile that is `columns` quads wide and
  /// whose columns are `parts` pieces of `rows` rows each.
  struct lane_part {
    std::uint32_t first, step, columns, parts, rows;
  };
  FOREBAY_DEVICE static constexpr lane_part part_of(std::uint32_t tile, std::uint32_t lane, std::uint32_t threads) {
    std::uint32_t const columns = tile / 4, most = threads < columns ? 1 : threads / columns;
    std::uint32_t const rows = (tile + most - 1) / most;
    return {lane, threads, columns, (tile + rows - 1) / rows, rows};
  }
  /// Loads of shared memory by `for_each_quad`, for each place of the grid.
  static double loads_of_place(std::uint32_t tile, std::uint32_t threads) {
    return (3 + 2.0 / part_of(tile, 0, threads).rows) / 4;
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
  /// Of a tile's first value in the grid.
  struct corner {
    std::uint32_t x, y;
  };
  FOREBAY_DEVICE corner corner_of(std::uint64_t item) const {
    std::uint32_t const number = static_cast<std::uint32_t>(item), line = number / across();
    return {(number - line * across()) * tile, line * tile};
  }
  FOREBAY_DEVICE std::uint64_t offset(corner at) const { return std::uint64_t{at.y} * side + at.x; }
  /// What all staged tiles of all tiles hold together, without what lies beyond the grid.
  double staged_floats() const {
    double const borders = across() - 1;
    return (side + 2 * borders) * (side + 2 * halo * borders);
  }

  template <class Stager>
  FOREBAY_DEVICE void copy(Stager& staged, float* to, float const* grid, corner at) const {
    std::uint32_t const above = at.y == 0 ? 0 : 1, below = at.y + tile == side ? 0 : 1;
    std::uint32_t const left = at.x == 0 ? 0 : halo, right = at.x + tile == side ? 0 : halo;
    staged.copy_rows(to + (1 - above) * pitch() + halo - left, pitch(), grid + offset({at.x - left, at.y - above}),
                     side, above + tile + below, left + tile + right);
  }

  /// Calls `work(square_quad)` for a lane's values of a staged tile, down each of its columns.
  template <class Work>
  FOREBAY_DEVICE void for_each_quad(lane_part const& mine, corner at, float const* staged, Work&& work) const {
    for (std::uint32_t k = mine.first; k < mine.parts * mine.columns; k += mine.step) {
      std::uint32_t const part = k / mine.columns, column = (k - part * mine.columns) * 4, first = part * mine.rows;
      std::uint32_t const end = first + mine.rows < tile ? first + mine.rows : tile;
      std::uint32_t const west = at.x + column == 0 ? 0 : 1, east = at.x + column + 4 == side ? 3 : 4;
      float const* place = staged + (first + 1) * pitch() + halo + column;
      quad here = quad::at(place), north = at.y + first == 0 ? here : quad::at(place - pitch());
      for (std::uint32_t row = first; row < end; ++row, place += pitch()) {
        quad const south = at.y + row + 1 == side ? here : quad::at(place + pitch());
        work(square_quad{row, column, here, north, south, *(place - west), place[east]});
        north = here;
        here = south;
      }
    }
  }
};

}  // namespace forebay::transfer
