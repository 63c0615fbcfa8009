// SPDX-License-Identifier: Apache-2.0
//! \file
//! Convolutions and their gradients: products of matrices, where blocks stage tiles of weights and of image patches.
#pragma once

#include <algorithm>
#include <cmath>

#include "apps/transfer/networks/layer.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// The products of a convolution. Rows, columns and depth are
/// - output: pixels; output channels; taps times input channels
/// - input_gradient: pixels; input channels; taps times output channels
/// - weight_gradient: output channels; taps times input channels; pixels
enum class product_kind : std::uint8_t { output, input_gradient, weight_gradient };

/// A product's size and how it is cut. A block's item is a tile of `tile` times `tile` results, or the part of its
/// depth that is one of `splits`; it goes through that in `steps` steps.
struct product_shape {
  std::uint32_t rows, columns, depth;
  std::uint32_t tile, stages;
  std::uint32_t steps, splits;

  /// Cuts the depth where there are fewer tiles than `items`, so that a GPU has work for all multiprocessors.
  static product_shape of(std::uint32_t rows, std::uint32_t columns, std::uint32_t depth, std::uint32_t tile,
                          std::uint32_t stages, std::uint32_t items) {
    product_shape shape{rows, columns, depth, tile, stages, 0, 0};
    std::uint32_t const all = (depth + depth_step - 1) / depth_step;
    std::uint32_t const splits = std::clamp(items / (shape.row_tiles() * shape.column_tiles()), 1u, (all + 3) / 4);
    shape.steps = (all + splits - 1) / splits;
    shape.splits = (all + shape.steps - 1) / shape.steps;
    return shape;
  }
  FOREBAY_DEVICE constexpr std::uint32_t row_tiles() const { return (rows + tile - 1) / tile; }
  FOREBAY_DEVICE constexpr std::uint32_t column_tiles() const { return (columns + tile - 1) / tile; }
  FOREBAY_DEVICE constexpr std::uint32_t items() const { return row_tiles() * column_tiles() * splits; }
  /// Floats from one row of a staged part to the next, where a row is a step of depth. Four more than the step, so that
  /// neighbouring rows begin in different banks.
  static constexpr std::uint32_t row_pitch = depth_step + 4;
  FOREBAY_DEVICE constexpr static std::uint32_t part_floats(std::uint32_t tile) { return tile * row_pitch; }
};

/// What a product reads.
struct product_operands {
  float const* pixels;           ///< pixel 0 of what patches are taken from: the input, or the output's gradient
  std::uint32_t pixel_channels;  ///< of `pixels`
  float const* other;            ///< weights; for their gradient, the output's gradient
  std::uint32_t other_pitch;     ///< floats from one row of `other` to the next
  std::uint32_t tap_pitch;       ///< input_gradient: floats from the weights of one tap to the next
  tap_list taps;
};

/// Brings rows `first_row`, ... of the matrix of patches. Its row is a pixel, its column a tap and a channel.
template <class Stager>
FOREBAY_DEVICE void stage_patches(Stager& staged, product_operands const& from, float* to, std::uint32_t to_pitch,
                                  std::uint32_t first_row, std::uint32_t rows, std::uint32_t first_column,
                                  std::uint32_t end_column) {
  std::uint32_t tap = first_column / from.pixel_channels, channel = first_column % from.pixel_channels;
  for (std::uint32_t column = first_column; column < end_column; ++tap, channel = 0) {
    std::uint32_t const left = from.pixel_channels - channel;
    std::uint32_t const count = left < end_column - column ? left : end_column - column;
    std::int64_t const pixel = std::int64_t{first_row} + from.taps.offset[tap];
    staged.copy_rows(to, to_pitch, from.pixels + pixel * from.pixel_channels + channel, from.pixel_channels, rows,
                     count);
    to += count;
    column += count;
  }
}

/// Reads four items at four steps of depth from a part of a staged tile, as `to[depth][item]`. Item i of group g is
/// number g + i * groups where depth lies inside, so that neighbouring lanes read neighbouring rows; else 4g + i.
template <bool depth_inside>
FOREBAY_DEVICE void read_block(float (&to)[4][4], float const* part, std::uint32_t tile, std::uint32_t group,
                               std::uint32_t depth) {
  FOREBAY_UNROLL
  for (std::uint32_t i = 0; i < 4; ++i) {
    float const* const at = depth_inside ? part + (group + i * (tile / 4)) * product_shape::row_pitch + depth
                                         : part + (depth + i) * tile + 4 * group;
    quad const read = quad::at(at);
    FOREBAY_UNROLL
    for (std::uint32_t j = 0; j < 4; ++j) (depth_inside ? to[j][i] : to[i][j]) = read.of[j];
  }
}
template <bool depth_inside>
FOREBAY_DEVICE constexpr std::uint32_t item_of(std::uint32_t tile, std::uint32_t group, std::uint32_t i) {
  return depth_inside ? group + i * (tile / 4) : 4 * group + i;
}

/// A product whose results go to `finish(row, column, sum)`; or to `partials`, if its depth is cut. A thread has
/// `groups` times four rows, and four columns.
template <class M, class Policy, product_kind kind, std::uint32_t groups, class Finish>
struct product {
  /// So that each may use up to 255 registers.
  static constexpr unsigned max_threads_per_block = 256;
  static constexpr bool rows_inside = kind != product_kind::weight_gradient;
  static constexpr bool columns_inside = kind == product_kind::output;

  product_shape shape;
  product_operands from;
  Finish finish;
  float* partials;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const tile = shape.tile;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(),
                                          2 * product_shape::part_floats(tile), shape.stages);
    std::uint32_t const mine = shape.items() > block.rank ? (shape.items() - 1 - block.rank) / block_count<M>() + 1 : 0;
    std::uint32_t const row_group = block.thread_rank() / (tile / 4), column_group = block.thread_rank() % (tile / 4);
    std::uint32_t const row_groups = tile / 4 / groups;
    float sums[groups][4][4] = {};
    for_each_tile(
        staged, shape.stages, 0, 1, std::uint64_t{mine} * shape.steps,
        [&](std::uint64_t step) { stage(staged, place_of(static_cast<std::uint32_t>(step))); },
        [&](std::uint64_t step, float const* rows_part) {
          if (row_group >= row_groups) return;
          place const at = place_of(static_cast<std::uint32_t>(step));
          if (at.row + item_of<rows_inside>(tile, row_group, 0) >= shape.rows) return;
          if (at.column + item_of<columns_inside>(tile, column_group, 0) >= shape.columns) return;
          float const* const columns_part = rows_part + product_shape::part_floats(tile);
          for (std::uint32_t k = 0; k < at.count; k += 4)
            add(sums, rows_part, columns_part, row_group, column_group, k);
          if (at.is_last) store(sums, at, row_group, column_group);
        });
  }

 private:
  /// Where a step is: the first row and column of its tile, and its part of the depth.
  struct place {
    std::uint32_t row, column, split;
    std::uint32_t depth, count;  ///< count: 0 behind the end
    bool is_last;                ///< of the item
  };

  FOREBAY_DEVICE place place_of(std::uint32_t step) const {
    std::uint32_t const item = M::this_block().rank + step / shape.steps * block_count<M>();
    std::uint32_t const split = item % shape.splits, tile = item / shape.splits, within = step % shape.steps;
    std::uint32_t const depth = (split * shape.steps + within) * depth_step;
    std::uint32_t const left = depth < shape.depth ? shape.depth - depth : 0;
    return {tile / shape.column_tiles() * shape.tile,
            tile % shape.column_tiles() * shape.tile,
            split,
            depth,
            left < depth_step ? left : depth_step,
            within + 1 == shape.steps};
  }

  template <class Stager>
  FOREBAY_DEVICE void stage(Stager& staged, place const& at) const {
    constexpr std::uint32_t pitch = product_shape::row_pitch;
    std::uint32_t const tile = shape.tile;
    std::uint32_t const rows = shape.rows - at.row < tile ? shape.rows - at.row : tile;
    std::uint32_t const columns = shape.columns - at.column < tile ? shape.columns - at.column : tile;
    float* const rows_part = staged.acquire();
    float* const columns_part = rows_part + product_shape::part_floats(tile);
    if (at.count != 0) {
      if constexpr (kind == product_kind::weight_gradient) {
        staged.copy_rows(rows_part, tile, from.other + std::size_t{at.depth} * from.other_pitch + at.row,
                         from.other_pitch, at.count, rows);
        stage_patches(staged, from, columns_part, tile, at.depth, at.count, at.column, at.column + columns);
      } else {
        stage_patches(staged, from, rows_part, pitch, at.row, rows, at.depth, at.depth + at.count);
      }
      if constexpr (kind == product_kind::output) {
        staged.copy_rows(columns_part, pitch, from.other + std::size_t{at.column} * from.other_pitch + at.depth,
                         from.other_pitch, columns, at.count);
      }
      if constexpr (kind == product_kind::input_gradient) {
        for (std::uint32_t done = 0; done < at.count;) {
          std::uint32_t const tap = (at.depth + done) / from.pixel_channels;
          std::uint32_t const channel = (at.depth + done) % from.pixel_channels;
          std::uint32_t const left = from.pixel_channels - channel;
          std::uint32_t const count = left < at.count - done ? left : at.count - done;
          staged.copy_rows(
              columns_part + done * tile, tile,
              from.other + std::size_t{channel} * from.other_pitch + from.taps.tap[tap] * from.tap_pitch + at.column,
              from.other_pitch, count, columns);
          done += count;
        }
      }
    }
    staged.commit();
  }

  FOREBAY_DEVICE void add(float (&sums)[groups][4][4], float const* rows_part, float const* columns_part,
                          std::uint32_t row_group, std::uint32_t column_group, std::uint32_t depth) const {
    float a[4][4], b[4][4];
    read_block<columns_inside>(b, columns_part, shape.tile, column_group, depth);
    FOREBAY_UNROLL
    for (std::uint32_t g = 0; g < groups; ++g) {
      read_block<rows_inside>(a, rows_part, shape.tile, row_group + g * (shape.tile / 4 / groups), depth);
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < 4; ++k) {
        FOREBAY_UNROLL
        for (std::uint32_t i = 0; i < 4; ++i) {
          FOREBAY_UNROLL
          for (std::uint32_t j = 0; j < 4; ++j) sums[g][i][j] += a[k][i] * b[k][j];
        }
      }
    }
  }

  FOREBAY_DEVICE void store(float (&sums)[groups][4][4], place const& at, std::uint32_t row_group,
                            std::uint32_t column_group) const {
    FOREBAY_UNROLL
    for (std::uint32_t g = 0; g < groups; ++g) {
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) {
        std::uint32_t const group = row_group + g * (shape.tile / 4 / groups);
        std::uint32_t const row = at.row + item_of<rows_inside>(shape.tile, group, i);
        FOREBAY_UNROLL
        for (std::uint32_t j = 0; j < 4; ++j) {
          std::uint32_t const column = at.column + item_of<columns_inside>(shape.tile, column_group, j);
          float const sum = sums[g][i][j];
          sums[g][i][j] = 0;
          if (row >= shape.rows || column >= shape.columns) continue;
          if (shape.splits == 1) {
            finish(row, column, sum);
          } else {
            partials[(std::size_t{at.split} * shape.rows + row) * shape.columns + column] = sum;
          }
        }
      }
    }
  }
};

/// Adds the parts of a product whose depth was cut, always in the same order.
template <class Finish>
struct add_partials {
  product_shape shape;
  Finish finish;
  float const* partials;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    std::size_t const results = std::size_t{shape.rows} * shape.columns;
    float sum = 0;
    for (std::uint32_t split = 0; split < shape.splits; ++split) sum += partials[split * results + i];
    finish(i / shape.columns, i % shape.columns, sum);
  }
};

FOREBAY_DEVICE void put(float* to, float value, bool adds) {
  *to = adds ? *to + value : value;
}

/// What becomes of the sums of a convolution. Halos become zeros.
struct finish_output {
  tensor shape;
  float* values;
  float* sums;  ///< where training keeps the sums
  float const* scales;
  float const* shifts;
  float const* shortcut;
  float slope;
  bool adds_first;

  FOREBAY_DEVICE void operator()(std::uint32_t pixel, std::uint32_t channel, float sum) const {
    std::size_t const i = std::size_t{pixel} * shape.channels + channel;
    bool const inside = shape.at(pixel).inside;
    float value = 0;
    if (inside) {
      value = fmaf(scales[channel], sum, shifts[channel]);
      if (shortcut != nullptr && adds_first) value += shortcut[i];
      if (!(value > 0)) value *= slope;
      if (shortcut != nullptr && !adds_first) value += shortcut[i];
    }
    if (sums != nullptr) sums[i] = inside ? sum : 0;
    values[i] = value;
  }
};

struct finish_input_gradient {
  tensor shape;
  float* gradients;  ///< of a plane
  bool adds;

  FOREBAY_DEVICE void operator()(std::uint32_t pixel, std::uint32_t channel, float sum) const {
    put(gradients + std::size_t{pixel} * shape.channels + channel, shape.at(pixel).inside ? sum : 0, adds);
  }
};

/// A step down the gradient.
struct finish_weight_gradient {
  float* weights;
  std::uint32_t pitch;
  float rate;

  FOREBAY_DEVICE void operator()(std::uint32_t row, std::uint32_t column, float sum) const {
    weights[std::size_t{row} * pitch + column] -= rate * sum;
  }
};

}  // namespace forebay::transfer
