// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stencil of 11 of the 27 neighbours in a cube. Outside the cube there are zeros.
//!
//! A block computes cubes of outputs, and stages one plane of inputs after the other. Each plane is staged once for the
//! three planes of outputs that need it, whose sums wait in shared memory. The tile of the study, 12 inputs along each
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
  static constexpr std::uint32_t rows_at_once = 2;  ///< that a thread computes

  std::uint32_t side = 0;
  std::uint32_t edge = 1;  ///< of a tile of outputs
  std::uint32_t tiles_along = (side + edge - 1) / edge;

  FOREBAY_DEVICE std::uint32_t tiles() const { return tiles_along * tiles_along * tiles_along; }
  FOREBAY_DEVICE std::uint32_t in_rows() const { return tiles_along * edge + 2; }
  FOREBAY_DEVICE std::uint32_t in_columns() const { return (tiles_along * edge + 2 * border + 3) / 4 * 4; }
  /// A row of a tile begins up to three inputs early, and ends late: at multiples of four.
  FOREBAY_DEVICE std::uint32_t plane_pitch() const { return (edge + 2 + 3 + 3) / 4 * 4; }
  FOREBAY_DEVICE std::uint32_t plane_floats() const { return (edge + 2) * plane_pitch(); }
  /// Where the sums lie in shared memory: behind the stager's part, at whole quads.
  FOREBAY_DEVICE static std::uint32_t sums_offset(std::uint32_t staged_bytes) { return (staged_bytes + 15) / 16 * 16; }
  FOREBAY_DEVICE std::uint32_t shared_bytes(std::uint32_t staged_bytes) const {
    return sums_offset(staged_bytes) + 2 * edge * edge * static_cast<std::uint32_t>(sizeof(float));
  }
  /// Columns that a thread computes at once: four if they are whole quads in all tiles.
  FOREBAY_DEVICE std::uint32_t columns_at_once() const { return edge % 4 == 0 ? 4 : 1; }
  /// Rows of a column that a thread computes.
  FOREBAY_DEVICE std::uint32_t rows_of_thread(std::uint32_t threads) const {
    std::uint32_t const across = edge / columns_at_once(), sharers = threads > across ? threads / across : 1;
    return (edge / rows_at_once + sharers - 1) / sharers * rows_at_once;
  }
};

template <class M, class Policy>
struct conv3d_kernel {
  /// Keeps registers for blocks of any size, and for several blocks to a multiprocessor.
  static constexpr unsigned max_threads_per_block = threads_max;
  static constexpr std::uint32_t rows_at_once = conv3d_layout::rows_at_once;

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
  /// What a thread computes of each plane.
  struct part {
    std::uint32_t column;  ///< the first
    std::uint32_t row, end_row;
  };
  struct single {
    float of[1];

    FOREBAY_DEVICE static single at(float const* from) { return {*from}; }
    FOREBAY_DEVICE void store(float* to) const { *to = of[0]; }
  };
  /// What a thread's columns have.
  template <std::uint32_t Columns>
  using values = std::conditional_t<Columns == 4, quad, single>;
  /// Inputs of a row, with one to the left and one to the right of a thread's columns.
  template <std::uint32_t Columns>
  struct input_row {
    float of[Columns + 2];

    FOREBAY_DEVICE explicit input_row(float const* p) : of{*p} {
      values<Columns> const middle = values<Columns>::at(p + 1);
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < Columns; ++i) of[i + 1] = middle.of[i];
      of[Columns + 1] = p[Columns + 1];
    }
  };
  /// The sums of outputs above a plane of inputs, beside it and below it.
  template <std::uint32_t Columns>
  struct output_sums {
    values<Columns> above, beside, below;
  };

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::byte* const shared = &block.template shared<std::byte>();
    std::uint32_t const rows = layout.edge + 2, pitch = layout.plane_pitch(), tiles = layout.tiles();
    std::uint64_t const in_rows = layout.in_rows(), in_columns = layout.in_columns();
    simt::stager<M, Policy, float> staged(block, shared, layout.plane_floats(), stages);
    auto* const sums =
        reinterpret_cast<float*>(shared + layout.sums_offset(staged.shared_bytes(layout.plane_floats(), stages)));
    std::uint32_t const columns = layout.columns_at_once();
    part const mine = part_of(block, columns);
    std::uint64_t const my_tiles = tiles > block.rank ? (tiles - 1 - block.rank) / block_count<M>() + 1 : 0;
    step ahead = first_of(block.rank), now = ahead;
    for_each_tile(
        staged, stages, 0, 1, my_tiles * (layout.edge + 2),
        [&](std::uint64_t) {
          std::uint64_t const line = (ahead.z + ahead.plane) * in_rows + ahead.y;
          float const* const from = in + line * in_columns + (ahead.x + layout.border - 1) / 4 * 4;
          staged.copy_rows(staged.acquire(), pitch, from, in_columns, rows, pitch);
          staged.commit();
          advance(ahead);
        },
        [&](std::uint64_t, float const* plane) {
          float const* const inputs = plane + (now.x + layout.border - 1) % 4;
          if (columns == 4) {
            work<4>(now, mine, inputs, pitch, sums);
          } else {
            work<1>(now, mine, inputs, pitch, sums);
          }
          advance(now);
        });
  }
  FOREBAY_DEVICE step first_of(std::uint32_t tile) const {
    std::uint32_t const along = layout.tiles_along, line = tile / along, edge = layout.edge;
    return {tile, 0, tile % along * edge, line % along * edge, line / along * edge};
  }
  FOREBAY_DEVICE void advance(step& s) const {
    if (++s.plane == layout.edge + 2) s = first_of(s.tile + block_count<M>());
  }
  /// Neighbouring threads have neighbouring columns. If there are more threads than columns, they share the rows.
  FOREBAY_DEVICE part part_of(typename M::block block, std::uint32_t columns) const {
    std::uint32_t const edge = layout.edge, across = edge / columns;
    std::uint32_t const share = layout.rows_of_thread(block.size()), row = block.thread_rank() / across * share;
    return {block.thread_rank() % across * columns, row, row + share < edge ? row + share : edge};
  }

  /// Adds what a plane gives to the sums around it. Those below are then complete. A sum is always the same thread's.
  /// What the first two planes of a tile find in `sums` reaches no output.
  template <std::uint32_t Columns>
  FOREBAY_DEVICE void work(step const& now, part const& mine, float const* inputs, std::uint32_t pitch,
                           float* sums) const {
    using of_columns = values<Columns>;
    using sums_of_row = output_sums<Columns>;
    std::uint32_t const edge = layout.edge, side = layout.side;
    bool const completes = now.plane >= 2 && now.z + now.plane - 2 < side;
    std::uint32_t const z = completes ? now.z + now.plane - 2 : 0;
    if (mine.row >= edge) return;  // its rows would begin beyond the plane, perhaps beyond the block's shared memory
    for (std::uint32_t x = mine.column; x < edge; x += M::this_block().size() * Columns) {
      std::uint32_t const rows_stored = completes && now.x + x < side ? side - now.y : 0;
      float const* row = inputs + mine.row * pitch + x;
      float* sum = sums + mine.row * edge + x;
      float* to = out + (std::uint64_t{z} * side + now.y + mine.row) * side + now.x + x;
      input_row<Columns> before(row), here(row + pitch);
      for (std::uint32_t y = mine.row; y < mine.end_row; y += rows_at_once) {
        input_row<Columns> const rows[] = {before, here, input_row<Columns>(row + 2 * pitch),
                                           input_row<Columns>(row + 3 * pitch)};
        sums_of_row first{{}, of_columns::at(sum), of_columns::at(sum + edge * edge)};
        sums_of_row second{{}, of_columns::at(sum + edge), of_columns::at(sum + edge * edge + edge)};
        add(rows, first);
        add(rows + 1, second);
        first.above.store(sum);
        second.above.store(sum + edge);
        first.beside.store(sum + edge * edge);
        second.beside.store(sum + edge * edge + edge);
        if (y < rows_stored) first.below.store(to);
        if (y + 1 < rows_stored) second.below.store(to + side);
        before = rows[2];
        here = rows[3];
        row += rows_at_once * pitch;
        sum += rows_at_once * edge;
        to += rows_at_once * side;
      }
    }
  }
  template <std::uint32_t Columns>
  FOREBAY_DEVICE void add(input_row<Columns> const* rows, output_sums<Columns>& sums) const {
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < Columns; ++i) {
      float const *const north = rows[0].of + i, *const here = rows[1].of + i, *const south = rows[2].of + i;
      float &above = sums.above.of[i], &beside = sums.beside.of[i], &below = sums.below.of[i];
      above += weights.of[0] * north[0];
      above += weights.of[1] * here[1];
      above += weights.of[2] * south[2];
      beside += weights.of[3] * north[1];
      beside += weights.of[4] * here[0];
      beside += weights.of[5] * here[1];
      beside += weights.of[6] * here[2];
      beside += weights.of[7] * south[1];
      below += weights.of[8] * north[2];
      below += weights.of[9] * here[1];
      below += weights.of[10] * south[0];
    }
  }
};

class conv3d {
 public:
  static constexpr workload_facts facts{"conv3d", workload_group::micro, "outputs along each edge of a cube",
                                        "the weighted sum of eleven neighbours for each point of a cube"};

  conv3d(problem_size size, launch_shape given) {
    constexpr std::uint32_t sides[] = {96, 192, 384, 448, 768, 1536};
    std::uint32_t const side = sides[static_cast<int>(size)];
    // Larger tiles reload fewer inputs, but small cubes have too few of them for all multiprocessors.
    if (given.tile == 0) given.tile = size >= problem_size::large ? 64 : 32;
    require_tile(given.tile, 2, given.tile, side);  // the last tiles may go beyond the cube
    layout_ = {.side = side, .edge = given.tile};
    shape_ = completed(given, {std::min(layout_.tiles(), 4224u), 256, given.tile, given.tile == 64 ? 2u : 3u});
    require_shared_bytes(layout_.shared_bytes(staged_bytes<float>(layout_.plane_floats(), shape_.stages)));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const side = layout_.side, in_rows = layout_.in_rows();
    return {{"in", in_rows * in_rows * layout_.in_columns() * sizeof(float), buffer_use::in},
            {"out", side * side * side * sizeof(float), buffer_use::out}};
  }
  workload_costs costs() const {
    double const edge = layout_.edge, planes = layout_.tiles() * (edge + 2);
    double const rows = layout_.rows_of_thread(shape_.threads);
    return {.operations = 22 * std::pow(layout_.side, 3),
            .staged_bytes = planes * layout_.plane_floats() * sizeof(float),
            // For all columns that it computes at once a thread takes three loads for a row of inputs, of which there
            // are two more than of outputs, and two loads and two stores of sums.
            .shared_accesses = planes * edge * edge / layout_.columns_at_once() * (3 * (rows + 2) / rows + 4)};
  }
  void init(std::uint64_t seed, views host) const {
    std::uint64_t const side = layout_.side, rows = layout_.in_rows(), columns = layout_.in_columns();
    in_parallel(rows * rows, 64, [&](std::uint64_t begin, std::uint64_t end) {
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
    using M = typename Run::machine;
    std::uint32_t const staged = simt::stager<M, Policy, float>::shared_bytes(layout_.plane_floats(), shape_.stages);
    run({shape_.blocks, shape_.threads, layout_.shared_bytes(staged)},
        conv3d_kernel<M, Policy>{device.at<float>(0), device.at<float>(1), conv3d_stencil, layout_, shape_.stages});
  }

 private:
  launch_shape shape_;
  conv3d_layout layout_;
};

}  // namespace forebay::transfer
