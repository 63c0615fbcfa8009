// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cheapest paths through a grid, from any cell of its first row to each cell of its last one.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// A launch advances by up to `height` rows. For its strip of columns a block then needs as many columns on both sides.
struct pathfinder_plan {
  static constexpr std::uint32_t rows = 100;
  static constexpr std::uint32_t height = 20;  ///< as in Rodinia
  static constexpr std::uint32_t launches = (rows - 1 + height - 1) / height;
  static constexpr std::uint32_t halo = height;  ///< whole quads
  /// A launch stages the row before its own ones, too. So three tiles hold all its rows.
  static constexpr std::uint32_t staged_rows = (height + 1) / 3;
  static constexpr int no_path = std::numeric_limits<int>::max();
  static_assert(halo % 4 == 0 && staged_rows * 3 == height + 1);
};

/// One launch. A block keeps two rows of paths behind the stager, each with a column more on both sides.
template <class M, class Policy>
struct pathfinder_kernel {
  using plan = pathfinder_plan;

  int const* before;  ///< the costs of the cheapest paths down to some row
  int const* grid;    ///< from the row after that
  int* after;         ///< the costs after `count` more rows
  std::uint32_t columns;
  std::uint32_t count;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    using stager = simt::stager<M, Policy, int>;
    auto const block = M::this_block();
    std::uint32_t const pitch = tile + 2 * plan::halo, strips = columns / tile;
    std::byte* const shared = &block.template shared<std::byte>();
    stager staged(block, shared, plan::staged_rows * pitch, stages);
    int* const lines = reinterpret_cast<int*>(shared + stager::shared_bytes(plan::staged_rows * pitch, stages)) + 1;
    // Item k is piece k % pieces of the block's (k / pieces)-th strip, and has `staged_rows` rows: `before`, then
    // those of the grid.
    std::uint32_t const pieces = (count + 1 + plan::staged_rows - 1) / plan::staged_rows;
    std::uint32_t const mine = strips > block.rank ? (strips - 1 - block.rank) / block_count<M>() + 1 : 0;
    for_each_tile(
        staged, stages, 0, 1, mine * pieces,
        [&](std::uint64_t item) {
          piece const p = piece_of(item, pieces);
          int* to = staged.acquire();
          std::uint32_t missing = p.rows;
          if (p.row == 0) {
            staged.copy(to, before + p.left, p.width);
            to += pitch;
            --missing;
          }
          std::uint64_t const row = p.row == 0 ? 0 : p.row - 1;
          staged.copy_rows(to, pitch, grid + row * columns + p.left, columns, missing, p.width);
          staged.commit();
        },
        [&](std::uint64_t item, int const* costs) {
          piece const p = piece_of(item, pieces);
          for (std::uint32_t i = 0; i < p.rows; ++i, costs += pitch) {
            std::uint32_t const row = p.row + i;
            // The row above is complete. That of an earlier piece is so since its tile was released.
            if (i != 0) block.sync();
            int* const here = lines + row % 2 * (pitch + 2);
            int const* const above = lines + (row + 1) % 2 * (pitch + 2);
            if (row == 0) {
              for (std::uint32_t c = block.thread_rank(); c < p.width; c += block.size()) here[c] = costs[c];
              if (block.thread_rank() == 0) {
                // No path comes from beyond the grid. Where the strip's columns end elsewhere, paths are missing,
                // which each row brings one column nearer to the strip, and does not reach it.
                lines[-1] = lines[p.width] = plan::no_path;
                lines[pitch + 2 - 1] = lines[pitch + 2 + p.width] = plan::no_path;
              }
            } else if (row < count) {
              for (std::uint32_t c = block.thread_rank(); c < p.width; c += block.size()) {
                here[c] = costs[c] + cheapest(above + c);
              }
            } else {
              std::uint32_t const skipped = p.x - p.left;
              for (std::uint32_t c = block.thread_rank(); c < tile; c += block.size()) {
                after[p.x + c] = costs[skipped + c] + cheapest(above + skipped + c);
              }
            }
          }
        });
  }

 private:
  struct piece {
    std::uint32_t x;      ///< the strip's first column
    std::uint32_t left;   ///< the first column that is staged
    std::uint32_t width;  ///< how many are
    std::uint32_t row;    ///< the first row, where `before` is row 0
    std::uint32_t rows;
  };
  FOREBAY_DEVICE piece piece_of(std::uint64_t item, std::uint32_t pieces) const {
    auto const i = static_cast<std::uint32_t>(item);
    std::uint32_t const x = (M::this_block().rank + i / pieces * block_count<M>()) * tile;
    std::uint32_t const left = x < plan::halo ? 0 : x - plan::halo;
    std::uint32_t const right = columns - x < tile + plan::halo ? columns : x + tile + plan::halo;
    std::uint32_t const row = i % pieces * plan::staged_rows;
    return {x, left, right - left, row, count + 1 - row < plan::staged_rows ? count + 1 - row : plan::staged_rows};
  }
  FOREBAY_DEVICE static int cheapest(int const* middle) {
    int const left = *(middle - 1), right = middle[1];
    int const side = left < right ? left : right;
    return side < *middle ? side : *middle;
  }
};

class pathfinder {
  using plan = pathfinder_plan;

 public:
  static constexpr workload_facts facts{"pathfinder", workload_group::application, "columns of a strip",
                                        "cheapest paths down a grid of 100 rows, by dynamic programming"};

  pathfinder(problem_size size, launch_shape given) : shape_(completed(given, {1024, 256, 1024, 2})) {
    constexpr std::uint32_t mebi = 1 << 20;
    constexpr std::uint32_t columns[] = {mebi / 64, mebi / 8, mebi / 2, 2 * mebi, 5 * mebi, 20 * mebi};
    columns_ = columns[static_cast<int>(size)];
    if (shape_.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps of 32");
    }
    require_tile(shape_.tile, 4, columns_, shared_bytes_max / sizeof(int));
    require_shared_bytes(std::uint64_t{staged_bytes<int>(tile_ints(), shape_.stages)} + line_bytes());
    if (given.blocks == 0) shape_.blocks = std::min(shape_.blocks, columns_ / shape_.tile);
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const row_bytes = std::uint64_t{columns_} * sizeof(int);
    return {{"grid", plan::rows * row_bytes, buffer_use::in},
            {"result", row_bytes, buffer_use::out},
            {"between", row_bytes, buffer_use::scratch}};
  }
  workload_costs costs() const {
    double const inner_borders = columns_ / shape_.tile - 1;
    double const with_halo = columns_ + 2 * plan::halo * inner_borders;
    // The first row of each launch is copied only, and the last one has no halo.
    double const inner = with_halo * (plan::rows - 1 - plan::launches), last = 1.0 * columns_ * plan::launches;
    return {.operations = 3 * (inner + last),
            .staged_bytes = with_halo * (plan::rows - 1 + plan::launches) * sizeof(int),
            .shared_accesses = 2 * with_halo * plan::launches + 5 * inner + 4 * last};
  }
  void init(std::uint64_t seed, views host) const {
    int* const grid = host.at<int>(0);
    in_parallel(std::uint64_t{plan::rows} * columns_, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) grid[i] = static_cast<int>(bits_at(seed, 0, i) >> 54);
    });
  }

  std::string mismatch(std::uint64_t /*seed*/, views host) const {
    // The whole grid, in strips. A strip begins with all columns from which a path reaches it. Paths from beyond them
    // are missing, which each row brings one column nearer to the strip.
    constexpr std::uint64_t width = 1 << 14;
    int const *const grid = host.at<int>(0), *const found = host.at<int>(1);
    comparison results("result");
    in_parallel((columns_ + width - 1) / width, 1, [&](std::uint64_t begin, std::uint64_t end) {
      std::vector<int> above, here;
      for (std::uint64_t strip = begin; strip < end; ++strip) {
        std::uint64_t const x = strip * width, x_end = std::min<std::uint64_t>(x + width, columns_);
        std::uint64_t const left = x - std::min<std::uint64_t>(x, plan::rows);
        std::uint64_t const columns = std::min<std::uint64_t>(x_end + plan::rows, columns_) - left;
        // With a column on each side that no path takes.
        above.assign(columns + 2, plan::no_path);
        here.assign(columns + 2, plan::no_path);
        std::copy_n(grid + left, columns, here.begin() + 1);
        for (std::uint64_t row = 1; row < plan::rows; ++row) {
          std::swap(above, here);
          int const* const costs = grid + row * columns_ + left;
          for (std::uint64_t i = 0; i < columns; ++i) {
            here[i + 1] = costs[i] + std::min(std::min(above[i], above[i + 1]), above[i + 2]);
          }
        }
        for (std::uint64_t i = x; i < x_end; ++i) results.equal(i, found[i], here[i - left + 1]);
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    int const *const grid = device.at<int>(0), *before = grid;
    for (std::uint32_t i = 0; i < plan::launches; ++i) {
      std::uint32_t const done = 1 + i * plan::height;
      // Alternates so that the last launch writes the result.
      int* const after = device.at<int>((plan::launches - i) % 2 != 0 ? 1 : 2);
      run({shape_.blocks, shape_.threads,
           simt::stager<M, Policy, int>::shared_bytes(tile_ints(), shape_.stages) + line_bytes()},
          pathfinder_kernel<M, Policy>{before, grid + std::uint64_t{done} * columns_, after, columns_,
                                       std::min(plan::height, plan::rows - done), shape_.tile, shape_.stages});
      before = after;
    }
  }

 private:
  std::uint32_t tile_ints() const { return plan::staged_rows * (shape_.tile + 2 * plan::halo); }
  /// The kernel's two rows of paths.
  std::uint32_t line_bytes() const {
    return 2 * (shape_.tile + 2 * plan::halo + 2) * static_cast<std::uint32_t>(sizeof(int));
  }

  launch_shape shape_;
  std::uint32_t columns_;
};

}  // namespace forebay::transfer
