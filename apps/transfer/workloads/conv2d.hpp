// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stencil of 3 x 3 weights over a square image. Outside the image there are zeros.
#pragma once

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

class conv2d {
 public:
  static constexpr workload_facts facts{"conv2d", workload_group::micro, "columns of 32 rows",
                                        "the weighted sum of nine neighbours for each pixel of an image"};

  conv2d(problem_size size, launch_shape given) : shape_(completed(given, {1024, 256, 256, 2})) {
    constexpr std::uint32_t sides[] = {512, 2048, 4096, 8192, 32768, 65536};
    side_ = sides[static_cast<int>(size)];
    require_tile(shape_.tile, 4, side_, side_);
    require_shared_bytes(staged_bytes<float>(tile_floats(), shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    return {{"in", in_rows() * in_columns() * sizeof(float), buffer_use::in},
            {"out", std::uint64_t{side_} * side_ * sizeof(float), buffer_use::out}};
  }
  workload_costs costs() const {
    double const n = static_cast<double>(side_) * side_, tile = double{rows} * shape_.tile;
    return {.operations = 18 * n,
            .staged_bytes = n / tile * tile_floats() * sizeof(float),
            .shared_accesses = n * 3 * (rows_at_once + 2) / rows_at_once};
  }
  /// The image has a border of zeros: a row above and below, and as many columns as a copy needs at either side.
  void init(std::uint64_t seed, views host) const {
    in_parallel(in_rows(), 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t row = begin; row < end; ++row) {
        float* const to = host.at<float>(0) + row * in_columns();
        for (std::uint32_t i = 0; i < in_columns(); ++i) {
          bool const inside = row >= 1 && row <= side_ && i >= border && i < border + side_;
          to[i] = inside ? float_at(seed, 0, (row - 1) * side_ + i - border) : 0;
        }
      }
    });
  }

  std::string mismatch(std::uint64_t /*seed*/, views host) const {
    // The products are at most 1 times a weight, and round once; so do eight sums, which are at most the sum of all.
    double bound = 0;
    for (float const w : weights.of) bound += 10 * 0x1p-24 * std::abs(w);
    comparison results("out");
    float const* const found = host.at<float>(1);
    in_parallel(side_, 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t row = begin; row < end; ++row) {
        float const* const above = host.at<float>(0) + row * in_columns() + border - 1;
        for (std::uint32_t i = 0; i < side_; ++i) {
          double sum = 0;
          for (std::uint32_t tap = 0; tap < 9; ++tap) {
            sum += double{weights.of[tap]} * above[tap / 3 * in_columns() + i + tap % 3];
          }
          results.near(row * side_ + i, found[row * side_ + i], sum, bound);
        }
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    run({shape_.blocks, shape_.threads, simt::stager<M, Policy, float>::shared_bytes(tile_floats(), shape_.stages)},
        kernel<M, Policy>{device.at<float>(0), device.at<float>(1), weights, side_, shape_.tile, shape_.stages});
  }

 private:
  static constexpr std::uint32_t rows = 32;         ///< of a tile of outputs
  static constexpr std::uint32_t rows_at_once = 4;  ///< that a thread computes from the same inputs
  static constexpr std::uint32_t border = 4;        ///< columns: those of a copy of 16 bytes

  struct stencil {
    float of[9];  ///< row by row
  };
  static constexpr stencil weights{{0.1f, -0.2f, 0.3f, -0.4f, 0.5f, 0.6f, -0.7f, 0.8f, -0.9f}};

  std::uint64_t in_rows() const { return side_ + 2; }
  std::uint64_t in_columns() const { return side_ + 2 * border; }
  std::uint32_t tile_floats() const { return (rows + 2) * (shape_.tile + 2 * border); }

  template <class M, class Policy>
  struct kernel {
    float const* in;
    float* out;
    stencil weights;
    std::uint32_t side;
    std::uint32_t columns;  ///< of a tile of outputs
    std::uint32_t stages;

    FOREBAY_DEVICE void operator()() const {
      auto const block = M::this_block();
      std::uint32_t const pitch = columns + 2 * border, in_pitch = side + 2 * border, across = side / columns;
      simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), (rows + 2) * pitch, stages);
      // Neighbouring threads have neighbouring columns. If there are more threads than columns, they share the rows.
      std::uint32_t const sharers = block.size() > columns ? block.size() / columns : 1;
      std::uint32_t const share = (rows / rows_at_once + sharers - 1) / sharers * rows_at_once;
      std::uint32_t const first_column = block.thread_rank() % columns;
      std::uint32_t const first_row = block.thread_rank() / columns * share;
      std::uint32_t const end_row = first_row + share < rows ? first_row + share : rows;
      for_each_tile(
          staged, stages, block.rank, block_count<M>(), std::uint64_t{across} * (side / rows),
          [&](std::uint64_t t) {
            auto const tile = static_cast<std::uint32_t>(t);
            std::uint32_t const top = tile / across * rows, left = tile % across * columns;
            staged.copy_rows(staged.acquire(), pitch, in + std::uint64_t{top} * in_pitch + left, in_pitch, rows + 2,
                             pitch);
            staged.commit();
          },
          [&](std::uint64_t t, float const* inputs) {
            auto const tile = static_cast<std::uint32_t>(t);
            std::uint32_t const top = tile / across * rows, left = tile % across * columns;
            for (std::uint32_t column = first_column; column < columns; column += block.size()) {
              for (std::uint32_t row = first_row; row < end_row; row += rows_at_once) {
                work(inputs + row * pitch + column + border - 1, pitch,
                     out + std::uint64_t{top + row} * side + left + column);
              }
            }
          });
    }
    /// Computes outputs of a column. `from`: the input to the left of the first one, in the row above.
    FOREBAY_DEVICE void work(float const* from, std::uint32_t pitch, float* to) const {
      float sums[rows_at_once] = {};
      FOREBAY_UNROLL
      for (std::uint32_t y = 0; y < rows_at_once + 2; ++y) {
        float const inputs[] = {from[y * pitch], from[y * pitch + 1], from[y * pitch + 2]};
        FOREBAY_UNROLL
        for (std::uint32_t tap = 0; tap < 9; ++tap) {
          std::uint32_t const row = y - tap / 3;  // wraps if there is none
          if (row < rows_at_once) sums[row] += weights.of[tap] * inputs[tap % 3];
        }
      }
      FOREBAY_UNROLL
      for (std::uint32_t row = 0; row < rows_at_once; ++row) to[std::uint64_t{row} * side] = sums[row];
    }
  };

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
