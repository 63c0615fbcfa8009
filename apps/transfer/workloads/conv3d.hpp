// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stencil of 11 of the 27 neighbours in a cube. Outside the cube there are zeros.
//!
//! A block computes cubes of outputs, and stages one plane of inputs after the other. Each plane is staged once for the
//! three planes of outputs that need it, whose sums wait in shared memory. The tile of the study, 12 inputs along each
//! edge, is one of 10 outputs here.
#pragma once

#include <cmath>

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

  std::uint32_t side = 0;
  std::uint32_t edge = 1;  ///< of a tile of outputs
  std::uint32_t tiles_along = (side + edge - 1) / edge;

  FOREBAY_DEVICE std::uint32_t tiles() const { return tiles_along * tiles_along * tiles_along; }
  FOREBAY_DEVICE std::uint32_t in_rows() const { return tiles_along * edge + 2; }
  FOREBAY_DEVICE std::uint32_t in_columns() const { return (tiles_along * edge + 2 * border + 3) / 4 * 4; }
  /// A row of a tile begins up to three inputs early, and ends late: at multiples of four.
  FOREBAY_DEVICE std::uint32_t plane_pitch() const { return (edge + 2 + 3 + 3) / 4 * 4; }
  FOREBAY_DEVICE std::uint32_t plane_floats() const { return (edge + 2) * plane_pitch(); }
};

template <class M, class Policy>
struct conv3d_kernel {
  /// Keeps registers for blocks of any size, and for several blocks to a multiprocessor.
  static constexpr unsigned max_threads_per_block = threads_max;
  static constexpr std::uint32_t rows_at_once = 2;

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
    std::uint32_t column;  ///< and each block.size()-th after it
    std::uint32_t row, end_row;
  };
  /// Three inputs in a row.
  struct triple {
    float left, middle, right;
    FOREBAY_DEVICE explicit triple(float const* p) : left(p[0]), middle(p[1]), right(p[2]) {}
  };
  /// The sums of outputs above a plane of inputs, beside it and below it.
  struct output_sums {
    float above, beside, below;
  };

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::byte* const shared = &block.template shared<std::byte>();
    std::uint32_t const rows = layout.edge + 2, pitch = layout.plane_pitch(), tiles = layout.tiles();
    std::uint64_t const in_rows = layout.in_rows(), in_columns = layout.in_columns();
    simt::stager<M, Policy, float> staged(block, shared, layout.plane_floats(), stages);
    auto* const sums = reinterpret_cast<float*>(shared + staged.shared_bytes(layout.plane_floats(), stages));
    part const mine = part_of(block);
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
          work(now, mine, plane + (now.x + layout.border - 1) % 4, pitch, sums);
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
  FOREBAY_DEVICE part part_of(typename M::block block) const {
    std::uint32_t const edge = layout.edge, sharers = block.size() > edge ? block.size() / edge : 1;
    std::uint32_t const share = (edge / rows_at_once + sharers - 1) / sharers * rows_at_once;
    std::uint32_t const row = block.thread_rank() / edge * share;
    return {block.thread_rank() % edge, row, row + share < edge ? row + share : edge};
  }

  /// Adds what a plane gives to the sums around it. Those below are then complete. A sum is always the same thread's.
  /// What the first two planes of a tile find in `sums` reaches no output.
  FOREBAY_DEVICE void work(step const& now, part const& mine, float const* inputs, std::uint32_t pitch,
                           float* sums) const {
    std::uint32_t const edge = layout.edge, side = layout.side;
    bool const completes = now.plane >= 2 && now.z + now.plane - 2 < side;
    std::uint32_t const z = completes ? now.z + now.plane - 2 : 0;
    for (std::uint32_t x = mine.column; x < edge; x += M::this_block().size()) {
      std::uint32_t const rows_stored = completes && now.x + x < side ? side - now.y : 0;
      float const* row = inputs + mine.row * pitch + x;
      float* sum = sums + mine.row * edge + x;
      float* to = out + (std::uint64_t{z} * side + now.y + mine.row) * side + now.x + x;
      triple before(row), here(row + pitch);
      for (std::uint32_t y = mine.row; y < mine.end_row; y += rows_at_once) {
        triple const rows[] = {before, here, triple(row + 2 * pitch), triple(row + 3 * pitch)};
        output_sums const first = added(rows, {0, sum[0], sum[edge * edge]});
        output_sums const second = added(rows + 1, {0, sum[edge], sum[edge * edge + edge]});
        sum[0] = first.above;
        sum[edge] = second.above;
        sum[edge * edge] = first.beside;
        sum[edge * edge + edge] = second.beside;
        if (y < rows_stored) to[0] = first.below;
        if (y + 1 < rows_stored) to[side] = second.below;
        before = rows[2];
        here = rows[3];
        row += rows_at_once * pitch;
        sum += rows_at_once * edge;
        to += rows_at_once * side;
      }
    }
  }
  FOREBAY_DEVICE output_sums added(triple const* rows, output_sums s) const {
    s.above += weights.of[0] * rows[0].left;
    s.above += weights.of[1] * rows[1].middle;
    s.above += weights.of[2] * rows[2].right;
    s.beside += weights.of[3] * rows[0].middle;
    s.beside += weights.of[4] * rows[1].left;
    s.beside += weights.of[5] * rows[1].middle;
    s.beside += weights.of[6] * rows[1].right;
    s.beside += weights.of[7] * rows[2].middle;
    s.below += weights.of[8] * rows[0].right;
    s.below += weights.of[9] * rows[1].middle;
    s.below += weights.of[10] * rows[2].left;
    return s;
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
    require_shared_bytes(staged_bytes<float>(layout_.plane_floats(), shape_.stages) + own_bytes());
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const side = layout_.side, in_rows = layout_.in_rows();
    return {{"in", in_rows * in_rows * layout_.in_columns() * sizeof(float), buffer_use::in},
            {"out", side * side * side * sizeof(float), buffer_use::out}};
  }
  workload_costs costs() const {
    double const edge = layout_.edge, planes = layout_.tiles() * (edge + 2);
    double const sharers = std::min(edge / 2, std::max(1.0, std::floor(shape_.threads / edge)));
    return {.operations = 22 * std::pow(layout_.side, 3),
            .staged_bytes = planes * layout_.plane_floats() * sizeof(float),
            // For each output three inputs, and two sums that are loaded and stored. Those that share a column load six
            // inputs first.
            .shared_accesses = planes * edge * (7 * edge + 6 * sharers)};
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
    run({shape_.blocks, shape_.threads, staged + own_bytes()},
        conv3d_kernel<M, Policy>{device.at<float>(0), device.at<float>(1), conv3d_stencil, layout_, shape_.stages});
  }

 private:
  /// Shared memory behind that of the stager, for the sums.
  std::uint32_t own_bytes() const {
    return 2 * layout_.edge * layout_.edge * static_cast<std::uint32_t>(sizeof(float));
  }

  launch_shape shape_;
  conv3d_layout layout_;
};

}  // namespace forebay::transfer
