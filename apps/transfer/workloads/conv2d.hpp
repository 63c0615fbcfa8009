// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stencil of 3 x 3 weights over a square image. Outside the image there are zeros.
#pragma once

#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

struct conv2d_weights {
  float of[9];  ///< row by row
};
inline constexpr conv2d_weights conv2d_stencil{{0.1f, -0.2f, 0.3f, -0.4f, 0.5f, 0.6f, -0.7f, 0.8f, -0.9f}};

/// The image with a border of zeros, and its tiles. The border is a row above and below, and as many columns at either
/// side as a copy of 16 bytes has.
struct conv2d_layout {
  static constexpr std::uint32_t border = 4;
  static constexpr std::uint32_t rows = 32;  ///< of outputs in a tile

  std::uint32_t side;
  std::uint32_t columns;  ///< of outputs in a tile

  FOREBAY_DEVICE std::uint32_t in_rows() const { return side + 2; }
  FOREBAY_DEVICE std::uint32_t in_columns() const { return side + 2 * border; }
  FOREBAY_DEVICE std::uint32_t tile_pitch() const { return columns + 2 * border; }
  FOREBAY_DEVICE std::uint32_t tile_floats() const { return (rows + 2) * tile_pitch(); }
  FOREBAY_DEVICE std::uint32_t tiles_across() const { return side / columns; }
  FOREBAY_DEVICE std::uint32_t tiles() const { return tiles_across() * (side / rows); }
};

template <class M, class Policy>
struct conv2d_kernel {
  static constexpr std::uint32_t rows_at_once = 4;  ///< that a thread computes from the same inputs

  float const* in;
  float* out;
  conv2d_weights weights;
  conv2d_layout layout;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const columns = layout.columns, pitch = layout.tile_pitch(), across = layout.tiles_across();
    std::uint64_t const in_pitch = layout.in_columns();
    constexpr std::uint32_t rows = conv2d_layout::rows;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), layout.tile_floats(), stages);
    // Neighbouring threads have neighbouring columns. If there are more threads than columns, they share the rows.
    std::uint32_t const sharers = block.size() > columns ? block.size() / columns : 1;
    std::uint32_t const share = (rows / rows_at_once + sharers - 1) / sharers * rows_at_once;
    std::uint32_t const first_column = block.thread_rank() % columns;
    std::uint32_t const first_row = block.thread_rank() / columns * share;
    std::uint32_t const end_row = first_row + share < rows ? first_row + share : rows;
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), layout.tiles(),
        [&](std::uint64_t t) {
          auto const tile = static_cast<std::uint32_t>(t);
          float const* const from = in + tile / across * rows * in_pitch + tile % across * columns;
          staged.copy_rows(staged.acquire(), pitch, from, in_pitch, rows + 2, pitch);
          staged.commit();
        },
        [&](std::uint64_t t, float const* inputs) {
          auto const tile = static_cast<std::uint32_t>(t);
          float* const to = out + std::uint64_t{tile / across * rows} * layout.side + tile % across * columns;
          for (std::uint32_t column = first_column; column < columns; column += block.size()) {
            for (std::uint32_t row = first_row; row < end_row; row += rows_at_once) {
              work(inputs + row * pitch + column + conv2d_layout::border - 1, pitch,
                   to + std::uint64_t{row} * layout.side + column);
            }
          }
        });
  }
  /// Computes outputs of a column. `from`: the input above the first one, and to the left.
  FOREBAY_DEVICE void work(float const* from, std::uint32_t pitch, float* to) const {
    float sums[rows_at_once] = {};
    FOREBAY_UNROLL
    for (std::uint32_t y = 0; y < rows_at_once + 2; ++y) {
      float const inputs[] = {from[y * pitch], from[y * pitch + 1], from[y * pitch + 2]};
      FOREBAY_UNROLL
      for (std::uint32_t tap = 0; tap < 9; ++tap) {
        std::uint32_t const row = y - tap / 3;  // too large if there is none
        if (row < rows_at_once) sums[row] += weights.of[tap] * inputs[tap % 3];
      }
    }
    FOREBAY_UNROLL
    for (std::uint32_t row = 0; row < rows_at_once; ++row) to[std::uint64_t{row} * layout.side] = sums[row];
  }
};

class conv2d {
 public:
  static constexpr workload_facts facts{"conv2d", workload_group::micro, "columns of 32 rows",
                                        "the weighted sum of nine neighbours for each pixel of an image"};

  conv2d(problem_size size, launch_shape given) {
    constexpr std::uint32_t sides[] = {512, 2048, 4096, 8192, 32768, 65536};
    if (given.tile == 0) given.tile = 128;
    layout_ = {sides[static_cast<int>(size)], given.tile};
    shape_ = completed(given, {std::min(layout_.tiles(), 8448u), 256, given.tile, 2});
    require_tile(shape_.tile, 4, layout_.side, layout_.side);
    require_shared_bytes(staged_bytes<float>(layout_.tile_floats(), shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const in_floats = std::uint64_t{layout_.in_rows()} * layout_.in_columns();
    return {{"in", in_floats * sizeof(float), buffer_use::in},
            {"out", std::uint64_t{layout_.side} * layout_.side * sizeof(float), buffer_use::out}};
  }
  workload_costs costs() const {
    double const n = std::pow(layout_.side, 2), tiles = layout_.tiles(),
                 at_once = conv2d_kernel<void, void>::rows_at_once;
    return {.operations = 18 * n,
            .staged_bytes = tiles * layout_.tile_floats() * sizeof(float),
            .shared_accesses = n * 3 * (at_once + 2) / at_once};
  }
  void init(std::uint64_t seed, views host) const {
    std::uint64_t const side = layout_.side, columns = layout_.in_columns(), border = layout_.border;
    in_parallel(layout_.in_rows(), 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t row = begin; row < end; ++row) {
        float* const to = host.at<float>(0) + row * columns;
        for (std::uint64_t i = 0; i < columns; ++i) {
          bool const inside = row >= 1 && row <= side && i >= border && i < border + side;
          to[i] = inside ? float_at(seed, 0, (row - 1) * side + i - border) : 0;
        }
      }
    });
  }

  std::string mismatch(std::uint64_t /*seed*/, views host) const {
    // The products are at most 1 times a weight, and round once; so do eight sums, which are at most the sum of all.
    double bound = 0;
    for (float const w : conv2d_stencil.of) bound += 10 * 0x1p-24 * std::abs(w);
    comparison results("out");
    std::uint64_t const side = layout_.side, columns = layout_.in_columns();
    in_parallel(side, 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t row = begin; row < end; ++row) {
        float const* const found = host.at<float>(1) + row * side;
        float const* const above = host.at<float>(0) + row * columns + layout_.border - 1;
        for (std::uint64_t i = 0; i < side; ++i) {
          double sum = 0;
          for (unsigned tap = 0; tap < 9; ++tap) {
            sum += double{conv2d_stencil.of[tap]} * above[tap / 3 * columns + i + tap % 3];
          }
          results.near(row * side + i, found[i], sum, bound);
        }
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    std::uint32_t const staged = simt::stager<M, Policy, float>::shared_bytes(layout_.tile_floats(), shape_.stages);
    run({shape_.blocks, shape_.threads, staged},
        conv2d_kernel<M, Policy>{device.at<float>(0), device.at<float>(1), conv2d_stencil, layout_, shape_.stages});
  }

 private:
  launch_shape shape_;
  conv2d_layout layout_;
};

}  // namespace forebay::transfer
