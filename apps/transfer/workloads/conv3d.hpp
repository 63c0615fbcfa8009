// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stencil of 11 of the 27 neighbours in a cube. Outside the cube there are zeros.
//!
//! A block computes cubes of outputs, and stages one plane of inputs after the other. Each plane is staged once for the
//! three planes of outputs that need it, whose sums wait in registers. The tile of the study, 12 inputs along each
//! edge, is one of 10 outputs here.
#pragma once

#include <cmath>
#include <type_traits>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

struct conv3d_weights {
  float of[11];
};
inline constexpr conv3d_weights conv3d_stencil{{0.1f, -0.2f, 0.3f, -0.4f, 0.5f, 0.6f, -0.7f, 0.8f, -0.9f, 1.0f, -1.1f}};

/// The cube with a border of zeros, and its tiles. The border is a plane and a row at either side, and as many columns
/// as a copy of 16 bytes has. Behind the cube it goes on to the end of the last tiles.
struct conv3d_layout {
  static constexpr std::uint32_t border = 4;
  /// A thread may then have 80 registers: its sums are 32 of them.
  static constexpr std::uint32_t threads_max = 768;

  std::uint32_t side = 0;
  std::uint32_t edge = 1;   ///< of a plane of a tile, in outputs
  std::uint32_t depth = 1;  ///< planes of outputs in a tile
  std::uint32_t tiles_along = (side + edge - 1) / edge;
  std::uint32_t tiles_deep = (side + depth - 1) / depth;

  FOREBAY_DEVICE std::uint32_t tiles() const { return tiles_along * tiles_along * tiles_deep; }
  FOREBAY_DEVICE std::uint32_t in_planes() const { return tiles_deep * depth + 2; }
  FOREBAY_DEVICE std::uint32_t in_rows() const { return tiles_along * edge + 2; }
  FOREBAY_DEVICE std::uint32_t in_columns() const { return (tiles_along * edge + 2 * border + 3) / 4 * 4; }
  /// A row of a tile begins up to three inputs early, and ends late: at multiples of four.
  FOREBAY_DEVICE std::uint32_t plane_pitch() const { return (edge + 2 + 3 + 3) / 4 * 4; }
  FOREBAY_DEVICE std::uint32_t plane_floats() const { return (edge + 2) * plane_pitch(); }
  /// Columns of a thread: four if they are whole quads in all tiles.
  FOREBAY_DEVICE std::uint32_t columns_of_thread() const { return edge % 4 == 0 ? 4 : 1; }
  FOREBAY_DEVICE static constexpr std::uint32_t rows_of_thread(std::uint32_t columns) { return columns == 4 ? 4 : 2; }
  /// Threads that have outputs.
  FOREBAY_DEVICE std::uint32_t threads() const {
    std::uint32_t const columns = columns_of_thread();
    return edge / columns * (edge / rows_of_thread(columns));
  }
};

/// A thread has the same `Columns` columns of the same rows in all planes of a tile.
template <class M, class Policy, std::uint32_t Columns>
struct conv3d_kernel {
  static constexpr unsigned max_threads_per_block = conv3d_layout::threads_max;
  static constexpr std::uint32_t rows = conv3d_layout::rows_of_thread(Columns);

  float const* in;
  float* out;
  conv3d_weights weights;
  conv3d_layout layout;
  std::uint32_t stages;

  /// A plane of inputs for a tile. Those of a tile come one after the other, then those of the block's next tile.
  struct step {
    std::uint32_t tile;
    std::uint32_t plane;
    std::uint32_t x, y, z;  ///< of the tile's first output
  };
  /// Of a thread's first output in its tile.
  struct place {
    std::uint32_t column, row;
  };
  struct single {
    float of[1];

    FOREBAY_DEVICE static single at(float const* from) { return {*from}; }
    FOREBAY_DEVICE void store(float* to) const { *to = of[0]; }
  };
  /// What a thread has of a row.
  using values = std::conditional_t<Columns == 4, quad, single>;
  /// Inputs of a row, with one to the left and one to the right of a thread's columns.
  struct input_row {
    float of[Columns + 2];

    FOREBAY_DEVICE static input_row at(float const* from) {
      input_row result;
      values const middle = values::at(from + 1);
      result.of[0] = from[0];
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < Columns; ++i) result.of[i + 1] = middle.of[i];
      result.of[Columns + 1] = from[Columns + 1];
      return result;
    }
  };
  /// Sums that wait for planes of inputs: those that lack one more, and those that lack two.
  struct waiting_sums {
    values one[rows], two[rows];
  };

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const rows_staged = layout.edge + 2, pitch = layout.plane_pitch(), tiles = layout.tiles();
    std::uint64_t const in_rows = layout.in_rows(), in_columns = layout.in_columns();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), layout.plane_floats(), stages);
    // Neighbouring threads have neighbouring columns.
    std::uint32_t const across = layout.edge / Columns;
    place const mine{block.thread_rank() % across * Columns, block.thread_rank() / across * rows};
    waiting_sums sums{};
    std::uint64_t const my_tiles = tiles > block.rank ? (tiles - 1 - block.rank) / block_count<M>() + 1 : 0;
    step ahead = first_of(block.rank), now = ahead;
    for_each_tile(
        staged, stages, 0, 1, my_tiles * (layout.depth + 2),
        [&](std::uint64_t) {
          std::uint64_t const line = (ahead.z + ahead.plane) * in_rows + ahead.y;
          float const* const from = in + line * in_columns + (ahead.x + layout.border - 1) / 4 * 4;
          staged.copy_rows(staged.acquire(), pitch, from, in_columns, rows_staged, pitch);
          staged.commit();
          advance(ahead);
        },
        [&](std::uint64_t, float const* plane) {
          if (mine.row < layout.edge) work(now, mine, plane + (now.x + layout.border - 1) % 4, pitch, sums);
          advance(now);
        });
  }
  FOREBAY_DEVICE step first_of(std::uint32_t tile) const {
    std::uint32_t const along = layout.tiles_along, line = tile / along, edge = layout.edge;
    return {tile, 0, tile % along * edge, line % along * edge, line / along * layout.depth};
  }
  FOREBAY_DEVICE void advance(step& s) const {
    if (++s.plane == layout.depth + 2) s = first_of(s.tile + block_count<M>());
  }

  /// Adds what a plane gives to the sums around it. Those below are then complete. What the first two planes of a tile
  /// find in `sums` reaches no output.
  FOREBAY_DEVICE void work(step const& now, place const& mine, float const* inputs, std::uint32_t pitch,
                           waiting_sums& sums) const {
    std::uint32_t const side = layout.side, x = now.x + mine.column, y = now.y + mine.row;
    std::uint32_t const z = now.z + now.plane - 2;
    bool const completes = now.plane >= 2 && z < side && x < side && y < side;
    std::uint32_t const rows_stored = completes ? side - y : 0;
    float* const to = out + (std::uint64_t{completes ? z : 0} * side + y) * side + x;
    float const* const from = inputs + mine.row * pitch + mine.column;
    input_row north = input_row::at(from), here = input_row::at(from + pitch);
    FOREBAY_UNROLL
    for (std::uint32_t row = 0; row < rows; ++row) {
      input_row const south = input_row::at(from + (row + 2) * pitch);
      values above, beside, below;
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < Columns; ++i) {
        above.of[i] = weights.of[0] * north.of[i];
        above.of[i] += weights.of[1] * here.of[i + 1];
        above.of[i] += weights.of[2] * south.of[i + 2];
        beside.of[i] = sums.two[row].of[i] + weights.of[3] * north.of[i + 1];
        beside.of[i] += weights.of[4] * here.of[i];
        beside.of[i] += weights.of[5] * here.of[i + 1];
        beside.of[i] += weights.of[6] * here.of[i + 2];
        beside.of[i] += weights.of[7] * south.of[i + 1];
        below.of[i] = sums.one[row].of[i] + weights.of[8] * north.of[i + 2];
        below.of[i] += weights.of[9] * here.of[i + 1];
        below.of[i] += weights.of[10] * south.of[i];
      }
      sums.two[row] = above;
      sums.one[row] = beside;
      if (row < rows_stored) below.store(to + std::uint64_t{row} * side);
      north = here;
      here = south;
    }
  }
};

class conv3d {
 public:
  static constexpr workload_facts facts{"conv3d", workload_group::micro,
                                        "outputs along each edge of a cube, or of one less deep",
                                        "the weighted sum of eleven neighbours for each point of a cube"};

  conv3d(problem_size size, launch_shape given) {
    constexpr std::uint32_t sides[] = {96, 192, 384, 448, 768, 1536};
    std::uint32_t const side = sides[static_cast<int>(size)];
    // Larger tiles reload fewer inputs, but small cubes have too few of them for all multiprocessors.
    if (given.tile == 0) given.tile = size < problem_size::large ? 32 : 64;
    require_tile(given.tile, 2, given.tile, side);  // the last tiles may go beyond the cube
    layout_ = {.side = side, .edge = given.tile, .depth = depth_of_tiles(side, given.tile)};
    std::uint32_t const least = layout_.threads(), most = conv3d_layout::threads_max;
    if (least > most) {
      throw refused_input("--tile", std::to_string(given.tile), "use at most 108 if it is a multiple of 4, else 38");
    }
    shape_ = completed(given, {std::min(layout_.tiles(), 4224u), (least + 31) / 32 * 32, given.tile, 3});
    if (shape_.threads < least || shape_.threads > most) {
      throw refused_input(
          "--threads", std::to_string(shape_.threads),
          "with this tile use " + std::to_string(least) + " to " + std::to_string(most) + ", or take another tile");
    }
    require_shared_bytes(staged_bytes<float>(layout_.plane_floats(), shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const side = layout_.side, plane = std::uint64_t{layout_.in_rows()} * layout_.in_columns();
    return {{"in", layout_.in_planes() * plane * sizeof(float), buffer_use::in},
            {"out", side * side * side * sizeof(float), buffer_use::out}};
  }
  workload_costs costs() const {
    double const planes = (layout_.depth + 2.0) * layout_.tiles();
    double const rows = conv3d_layout::rows_of_thread(layout_.columns_of_thread());
    return {.operations = 22 * std::pow(layout_.side, 3),
            .staged_bytes = planes * layout_.plane_floats() * sizeof(float),
            // A thread takes three loads for a row of inputs, of which there are two more than of outputs.
            .shared_accesses = planes * layout_.threads() * 3 * (rows + 2)};
  }
  void init(std::uint64_t seed, views host) const {
    std::uint64_t const side = layout_.side, rows = layout_.in_rows(), columns = layout_.in_columns();
    in_parallel(layout_.in_planes() * rows, 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t line = begin; line < end; ++line) {
        std::uint64_t const z = line / rows - 1, y = line % rows - 1;  // large in front of the cube
        float* const to = host.at<float>(0) + line * columns;
        for (std::uint64_t i = 0; i < columns; ++i) {
          std::uint64_t const x = i - layout_.border;
          to[i] = x < side && y < side && z < side ? float_at(seed, 0, (z * side + y) * side + x) : 0;
        }
      }
    });
  }

  std::string mismatch(std::uint64_t /*seed*/, views host) const {
    // Where the weights stand, counted from the corner of a neighbourhood.
    struct place {
      unsigned z, y, x;
    };
    constexpr place taps[] = {{0, 0, 0}, {0, 1, 1}, {0, 2, 2}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1},
                              {1, 1, 2}, {1, 2, 1}, {2, 0, 2}, {2, 1, 1}, {2, 2, 0}};
    // The products are at most 1 times a weight, and round once; so do ten sums, which are at most the sum of all.
    double bound = 0;
    for (float const w : conv3d_stencil.of) bound += 12 * 0x1p-24 * std::abs(w);
    comparison results("out");
    std::uint64_t const side = layout_.side, rows = layout_.in_rows(), columns = layout_.in_columns();
    in_parallel(side * side, 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t line = begin; line < end; ++line) {
        float const* const found = host.at<float>(1) + line * side;
        std::uint64_t const in_line = line / side * rows + line % side;
        float const* const corner = host.at<float>(0) + in_line * columns + layout_.border - 1;
        for (std::uint64_t i = 0; i < side; ++i) {
          double sum = 0;
          for (unsigned k = 0; k < 11; ++k) {
            place const at = taps[k];
            sum += double{conv3d_stencil.of[k]} * corner[(at.z * rows + at.y) * columns + at.x + i];
          }
          results.near(line * side + i, found[i], sum, bound);
        }
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    if (layout_.columns_of_thread() == 4) {
      launch_columns<Policy, 4>(run, device);
    } else {
      launch_columns<Policy, 1>(run, device);
    }
  }

 private:
  /// Tiles are cubes, or less deep if as many cover the cube, or if that fills the last round: a GPU with 132
  /// multiprocessors runs three blocks on each at once, and a round of few blocks would leave most of it idle.
  static std::uint32_t depth_of_tiles(std::uint32_t side, std::uint32_t edge) {
    constexpr std::uint32_t at_once = 3 * 132;
    std::uint32_t const along = (side + edge - 1) / edge;
    for (std::uint32_t deep = along; deep <= along + along / 4; ++deep) {
      std::uint32_t const tiles = along * along * deep, rounds = (tiles + at_once - 1) / at_once;
      if (tiles >= 0.95 * rounds * at_once) return (side + deep - 1) / deep;
    }
    return (side + along - 1) / along;
  }

  template <class Policy, std::uint32_t Columns, class Run>
  void launch_columns(Run const& run, views device) const {
    using M = typename Run::machine;
    run({shape_.blocks, shape_.threads,
         simt::stager<M, Policy, float>::shared_bytes(layout_.plane_floats(), shape_.stages)},
        conv3d_kernel<M, Policy, Columns>{device.at<float>(0), device.at<float>(1), conv3d_stencil, layout_,
                                          shape_.stages});
  }

  launch_shape shape_;
  conv3d_layout layout_;
};

}  // namespace forebay::transfer
