// SPDX-License-Identifier: Apache-2.0
//! \file
//! Splits a matrix into a lower and an upper triangular one, in place and without pivoting.
#pragma once

#include <algorithm>
#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// For each block of rows and columns in turn: the block on the diagonal is eliminated, then the panels (the blocks
/// beside it and those below it), then the products of the panels are subtracted from all that lies behind them.
///
/// A has a constant on its diagonal, and random numbers in [-1, 1) elsewhere. The constant exceeds the norm of the rest
/// (1.15 sqrt(side)) so far that no pivot gets small and no element grows. A diagonal above the sum of a row would do
/// that too. But then an update would change its element by 1 / side at most, and at 16K a missing one would look like
/// rounding.
class lud {
 public:
  static constexpr workload_facts facts{"lud", workload_group::application, "rows and columns of a block",
                                        "the LU decomposition of a matrix, block by block, in place"};

  lud(problem_size size, launch_shape given) : shape_(completed(given, {1024, 256, 64, 3})) {
    constexpr std::uint32_t sides[] = {512, 2048, 8192, 12288, 16384, 65536};
    side_ = sides[static_cast<int>(size)];
    require_tile(shape_.tile, 16, side_, 128);
    if (shape_.threads % 64 != 0 || shape_.threads > threads_most) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be a multiple of 64, and at most 512");
    }
    depth_ = shape_.tile % 32 == 0 ? 32 : 16;
    require_shared_bytes(staged_bytes<float>(std::max(update_floats(), eliminate_floats()), shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    return {{"A", std::uint64_t{side_} * side_ * sizeof(float), buffer_use::in_out}};
  }
  /// An access to four floats in one go counts once.
  workload_costs costs() const {
    double const n = side_, width = shape_.tile;
    workload_costs all{.operations = 2 * n * n * n / 3};
    for (std::uint32_t behind = side_ - shape_.tile;; behind -= shape_.tile) {
      double const rest = behind;
      double const down = parts(behind, area_rows()), across = parts(behind, area_columns);
      all.staged_bytes += sizeof(float) * (width * width + 4 * rest * width);
      all.staged_bytes += sizeof(float) * (rest * rest + (down + across) * rest * width);
      all.shared_accesses += 3 * (width * width * width / 3 + rest * width * width);
      all.shared_accesses += rest * rest / 4 + rest * rest * width / 16;
      if (behind == 0) return all;
    }
  }
  void init(std::uint64_t seed, views host) const {
    float* const matrix = host.at<float>(0);
    fill_floats(matrix, std::uint64_t{side_} * side_, seed, 0);
    for (std::uint64_t i = 0; i < side_; ++i) matrix[i * side_ + i] = diagonal();
  }

  /// The rows of L U against those of A, by their products with a vector of random signs: all of them up to a side of
  /// 16K. The elements of L U against
  /// those of A: all at tiny, elsewhere samples.
  std::string mismatch(std::uint64_t seed, views host) const {
    float const* const found = host.at<float>(0);
    comparison results("L U at A");
    for (std::uint64_t j = 0; j < side_; ++j) results.equal(j, found[j], element(seed, 0, j));
    if (!results.result().empty()) return results.result();
    if (std::uint64_t const row = first_wrong_row(seed, found); row < side_) {
      compare(results, seed, found, row, 0, side_);
      if (!results.result().empty()) return results.result();
      return "L U at A[" + std::to_string(row * side_) + "]: the row does not add up";
    }
    std::uint64_t const width = side_ <= 512 ? side_ : 16, pieces = side_ / width;
    auto const places = sampled_places(side_ * pieces, 512, seed);
    in_parallel(places.size(), 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        compare(results, seed, found, places[k] / pieces, places[k] % pieces * width, width);
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    using stager = simt::stager<M, Policy, float>;
    float* const matrix = device.at<float>(0);
    std::uint32_t const width = shape_.tile, threads = shape_.threads, stages = shape_.stages;
    for (std::uint32_t first = 0;; first += width) {
      std::uint32_t const behind = side_ - first - width;
      std::uint32_t const panels = 2 * (behind / width);
      std::uint32_t const areas = parts(behind, area_rows()) * parts(behind, area_columns);
      std::uint32_t const shared = stager::shared_bytes(eliminate_floats(), stages);
      run({1, threads, shared}, eliminate<M, Policy>{matrix, side_, first, width, stages, 0});
      if (behind == 0) return;
      run({std::min(shape_.blocks, panels), threads, shared},
          eliminate<M, Policy>{matrix, side_, first, width, stages, panels});
      run({std::min(shape_.blocks, areas), threads, stager::shared_bytes(update_floats(), stages)},
          update<M, Policy>{matrix, side_, first, width, depth_, area_rows(), update_floats(), stages});
    }
  }

 private:
  static constexpr std::uint32_t threads_most = 512;
  /// A block updates an area of the matrix at a time, each thread 8 rows by 8 columns.
  static constexpr std::uint32_t reach = 8;
  static constexpr std::uint32_t area_columns = 128;
  FOREBAY_DEVICE static constexpr std::uint32_t parts(std::uint32_t whole, std::uint32_t part) {
    return (whole + part - 1) / part;
  }
  std::uint32_t area_rows() const { return shape_.threads / 2; }

  /// `depth` columns of the panel beside an area, with padded rows, and as many rows of that above it; or half of the
  /// area.
  std::uint32_t update_floats() const {
    return std::max(area_rows() * (depth_ + 4) + depth_ * area_columns, area_rows() / 2 * area_columns);
  }
  /// A block of the diagonal and a block of a panel.
  std::uint32_t eliminate_floats() const { return 2 * shape_.tile * shape_.tile; }

  float diagonal() const { return 2 * std::sqrt(static_cast<float>(side_)); }
  float element(std::uint64_t seed, std::uint64_t i, std::uint64_t j) const {
    return i == j ? diagonal() : float_at(seed, 0, i * side_ + j);
  }

  /// How far element (i, j) of L U may be from that of A. Each of min(i, j) subtractions, and the last multiplication
  /// by the pivot's inverse, round what is there by 2^-24 of it. It is less than 2, or about the constant on the
  /// diagonal. Rounding errors of random signs add like their root mean square, which is less than 2^-24 sqrt(count)
  /// times that. Eight times that is a hundredth of what one product of L and U comes to.
  double bound(std::uint64_t i, std::uint64_t j) const {
    return 8 * 0x1p-24 * std::sqrt(static_cast<double>(std::min(i, j) + 1)) * (i == j ? double{diagonal()} : 1.0);
  }

  /// Elements `first` to `first + count` of row `i` of L U, computed in double from the factors that were found.
  void compare(comparison& results, std::uint64_t seed, float const* found, std::uint64_t i, std::uint64_t first,
               std::uint64_t count) const {
    std::vector<double> row(count);
    for (std::uint64_t k = 0; k <= i && k < first + count; ++k) {
      double const factor = k < i ? found[i * side_ + k] : 1.0;
      for (std::uint64_t j = std::max(k, first); j < first + count; ++j) {
        row[j - first] += factor * found[k * side_ + j];
      }
    }
    for (std::uint64_t j = first; j < first + count; ++j) {
      results.near(i * side_ + j, row[j - first], element(seed, i, j), bound(i, j));
    }
  }

  /// The first row of those looked at for which L (U r) and A r differ, for a vector r of random signs; or `side_`.
  std::uint64_t first_wrong_row(std::uint64_t seed, float const* found) const {
    std::vector<double> r(side_), product(side_);
    for (std::uint64_t j = 0; j < side_; ++j) r[j] = bits_at(seed, 1, j) % 2 != 0 ? 1 : -1;
    in_parallel(side_, 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        for (std::uint64_t j = i; j < side_; ++j) product[i] += found[i * side_ + j] * r[j];
      }
    });
    auto const rows = sampled_places(side_, side_ <= 16384 ? side_ : 1024, seed);
    std::vector<char> wrong(rows.size());
    in_parallel(rows.size(), 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        std::uint64_t const i = rows[k];
        double sum = product[i];
        for (std::uint64_t j = 0; j < i; ++j) sum += found[i * side_ + j] * product[j];
        for (std::uint64_t j = 0; j < side_; ++j) sum -= element(seed, i, j) * r[j];
        // The errors of the elements of a row have random signs too.
        double const most = bound(i, i) + bound(i, side_) * std::sqrt(static_cast<double>(side_));
        wrong[k] = !(std::abs(sum) <= most);
      }
    });
    auto const first = std::find(wrong.begin(), wrong.end(), char{1});
    return first == wrong.end() ? side_ : rows[static_cast<std::size_t>(first - wrong.begin())];
  }

  /// Eliminates the block on the diagonal if there are no panels, else those: item 2k is the k-th block beside the
  /// diagonal's, item 2k + 1 the k-th below it. In a staged tile, a column after the other.
  template <class M, class Policy>
  struct eliminate {
    float* matrix;
    std::uint32_t side;
    std::uint32_t first;  ///< row and column of the diagonal's block
    std::uint32_t width;
    std::uint32_t stages;
    std::uint32_t panels;

    FOREBAY_DEVICE void operator()() const {
      auto const block = M::this_block();
      std::uint32_t const area = width * width;
      simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), 2 * area, stages);
      for_each_tile(
          staged, stages, block.rank, block_count<M>(), panels != 0 ? panels : 1,
          [&](std::uint64_t item) {
            float* const to = staged.acquire();
            staged.copy_rows(to, width, matrix + (std::size_t{first} * side + first), side, width, width);
            if (panels != 0) staged.copy_rows(to + area, width, target(item), side, width, width);
            staged.commit();
          },
          [&](std::uint64_t item, float* tile) { eliminate_tile(item, tile); });
    }
    FOREBAY_DEVICE float* target(std::uint64_t item) const {
      std::size_t const behind = first + (panels != 0 ? item / 2 + 1 : 0) * width;
      return item % 2 == 0 && panels != 0 ? matrix + first * std::size_t{side} + behind
                                          : matrix + behind * side + first;
    }
    FOREBAY_DEVICE void eliminate_tile(std::uint64_t item, float* tile) const {
      auto const block = M::this_block();
      std::uint32_t const lane = block.thread_rank() % 32, warp = block.thread_rank() / 32, warps = block.size() / 32;
      bool const beside = panels != 0 && item % 2 == 0, below = panels != 0 && item % 2 != 0;
      float* const mine = panels != 0 ? tile + width * width : tile;
      float const* const left = beside ? tile : mine;  // has the factors in its columns
      float const* const top = below ? tile : mine;    // has the rows that are subtracted
      for (std::uint32_t k = 0; k + 1 < width; ++k) {
        // Beside the diagonal the factors are final. Elsewhere they are still to be divided by the pivot, which also
        // happens where they are stored: in the tile that would take one more barrier for each column.
        float const scale = beside ? 1.0f : 1.0f / top[k * width + k];
        for (std::uint32_t i = (below ? 0 : k + 1) + warp; i < width; i += warps) {
          float const factor = left[i * width + k] * scale;
          for (std::uint32_t j = (beside ? 0 : k + 1) + lane; j < width; j += 32) {
            mine[i * width + j] -= factor * top[k * width + j];
          }
        }
        block.sync();
      }
      float* const to = target(item);
      for (std::uint32_t i = warp; i < width; i += warps) {
        for (std::uint32_t j = lane; j < width; j += 32) {
          bool const is_factor = below || (!beside && i > j);
          float const scale = is_factor ? 1.0f / top[j * width + j] : 1.0f;
          to[std::size_t{i} * side + j] = mine[i * width + j] * scale;
        }
      }
    }
  };

  /// Subtracts the product of the panels from what lies behind them. A block takes an area at a time: first its two
  /// halves, then `depth` columns and rows of the panels after the other.
  template <class M, class Policy>
  struct update {
    static constexpr unsigned max_threads_per_block = threads_most;
    float* matrix;
    std::uint32_t side;
    std::uint32_t first;  ///< row and column of the diagonal's block
    std::uint32_t width;  ///< of the panels
    std::uint32_t depth;
    std::uint32_t rows;  ///< of an area
    std::uint32_t tile;
    std::uint32_t stages;

    struct alignas(16) quad {
      float at[4];
    };
    struct area {
      std::uint32_t row, column, rows, columns;
    };

    FOREBAY_DEVICE void operator()() const {
      auto const block = M::this_block();
      std::uint32_t const lane = block.thread_rank() % 32, warp = block.thread_rank() / 32;
      // A thread has the rows y, y + spread, ... of an area, and two quads of columns. A warp is eight threads wide and
      // four high, so that what it reads at a time lies in 128 bytes, or in different banks.
      std::uint32_t const x = (lane % 8 + warp % 2 * 8) * 4, y = lane / 8 + warp / 2 * 4;
      std::uint32_t const spread = rows / reach, pitch = depth + 4;
      std::uint32_t const phases = 2 + width / depth;
      std::uint32_t const areas = parts(behind(), rows) * parts(behind(), area_columns);
      std::uint32_t const mine = areas > block.rank ? (areas - 1 - block.rank) / block_count<M>() + 1 : 0;
      simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), tile, stages);
      quad sums[reach][2];
      for_each_tile(
          staged, stages, 0, 1, std::uint64_t{mine} * phases,
          [&](std::uint64_t item) {
            area const here = area_of(static_cast<std::uint32_t>(item) / phases);
            std::uint32_t const phase = static_cast<std::uint32_t>(item) % phases, half = phase * (rows / 2);
            float* const to = staged.acquire();
            if (phase >= 2) {
              std::uint32_t const k = first + (phase - 2) * depth;
              staged.copy_rows(to, pitch, at(here.row, k), side, here.rows, depth);
              staged.copy_rows(to + rows * pitch, area_columns, at(k, here.column), side, depth, here.columns);
            } else if (here.rows > half) {
              staged.copy_rows(to, area_columns, at(here.row + half, here.column), side,
                               least(rows / 2, here.rows - half), here.columns);
            }
            staged.commit();
          },
          [&](std::uint64_t item, float const* from) {
            std::uint32_t const phase = static_cast<std::uint32_t>(item) % phases;
            if (phase < 2) {
              FOREBAY_UNROLL
              for (std::uint32_t i = 0; i < reach; ++i) {
                if (i / (reach / 2) != phase) continue;
                float const* const row = from + (y + i % (reach / 2) * spread) * area_columns + x;
                sums[i][0] = quad_at(row);
                sums[i][1] = quad_at(row + area_columns / 2);
              }
              return;
            }
            for (std::uint32_t k = 0; k < depth; k += 4) {
              quad left[reach];
              FOREBAY_UNROLL
              for (std::uint32_t i = 0; i < reach; ++i) {
                left[i] = quad_at(from + (y + i * spread) * pitch + k);
              }
              FOREBAY_UNROLL
              for (std::uint32_t d = 0; d < 4; ++d) {
                float const* const row = from + rows * pitch + (k + d) * area_columns + x;
                quad const above[2] = {quad_at(row), quad_at(row + area_columns / 2)};
                FOREBAY_UNROLL
                for (std::uint32_t i = 0; i < reach; ++i) {
                  FOREBAY_UNROLL
                  for (std::uint32_t j = 0; j < 8; ++j) {
                    sums[i][j / 4].at[j % 4] -= left[i].at[d] * above[j / 4].at[j % 4];
                  }
                }
              }
            }
            if (phase + 1 != phases) return;
            area const here = area_of(static_cast<std::uint32_t>(item) / phases);
            FOREBAY_UNROLL
            for (std::uint32_t i = 0; i < reach; ++i) {
              std::uint32_t const row = y + i * spread, other = x + area_columns / 2;
              if (row >= here.rows) continue;
              if (x < here.columns) store(here.row + row, here.column + x, sums[i][0]);
              if (other < here.columns) store(here.row + row, here.column + other, sums[i][1]);
            }
          });
    }
    FOREBAY_DEVICE std::uint32_t behind() const { return side - first - width; }
    /// The block's area number `count`. The last ones end where the matrix does.
    FOREBAY_DEVICE area area_of(std::uint32_t count) const {
      std::uint32_t const index = M::this_block().rank + count * block_count<M>();
      std::uint32_t const across = parts(behind(), area_columns);
      std::uint32_t const row = first + width + index / across * rows;
      std::uint32_t const column = first + width + index % across * area_columns;
      return {row, column, least(rows, side - row), least(area_columns, side - column)};
    }
    FOREBAY_DEVICE float* at(std::uint32_t row, std::uint32_t column) const {
      return matrix + (std::size_t{row} * side + column);
    }
    FOREBAY_DEVICE static quad quad_at(float const* from) { return *reinterpret_cast<quad const*>(from); }
    FOREBAY_DEVICE void store(std::uint32_t row, std::uint32_t column, quad const& values) const {
      M::st(reinterpret_cast<quad*>(at(row, column)), values);
    }
    FOREBAY_DEVICE static std::uint32_t least(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }
  };

  launch_shape shape_;
  std::uint32_t side_;
  std::uint32_t depth_;
};

}  // namespace forebay::transfer
