// SPDX-License-Identifier: Apache-2.0
//! \file
//! Splits a matrix into a lower and an upper triangular one, in place and without pivoting.
#pragma once

#include <algorithm>
#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// A step of the decomposition.
struct lud_step {
  float* matrix;
  std::uint32_t side;
  std::uint32_t first;  ///< row and column where the step's block of the diagonal begins
  std::uint32_t width;  ///< of the block, and so of the panels
  std::uint32_t stages;

  FOREBAY_DEVICE float* at(std::uint32_t row, std::uint32_t column) const {
    return matrix + (std::size_t{row} * side + column);
  }
  /// How many rows and columns come after the block.
  FOREBAY_DEVICE std::uint32_t behind() const { return side - first - width; }
};

/// Eliminates the block of the diagonal if there are no panels, else those: item 2k is the k-th block beside it, item
/// 2k + 1 the k-th block below it. That happens in the staged tile, a column after the other.
template <class M, class Policy>
struct lud_eliminate_kernel {
  lud_step step;
  std::uint32_t panels;  ///< blocks of both

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const width = step.width;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), 2 * width * width, step.stages);
    for_each_tile(
        staged, step.stages, block.rank, block_count<M>(), panels != 0 ? panels : 1,
        [&](std::uint64_t item) {
          float* const to = staged.acquire();
          staged.copy_rows(to, width, step.at(step.first, step.first), step.side, width, width);
          if (panels != 0) staged.copy_rows(to + width * width, width, target(item), step.side, width, width);
          staged.commit();
        },
        [&](std::uint64_t item, float* tile) { eliminate(item, tile); });
  }
  FOREBAY_DEVICE float* target(std::uint64_t item) const {
    if (panels == 0) return step.at(step.first, step.first);
    std::uint32_t const behind = step.first + (static_cast<std::uint32_t>(item) / 2 + 1) * step.width;
    return item % 2 == 0 ? step.at(step.first, behind) : step.at(behind, step.first);
  }
  FOREBAY_DEVICE void eliminate(std::uint64_t item, float* tile) const {
    auto const block = M::this_block();
    std::uint32_t const lane = block.thread_rank() % 32, warp = block.thread_rank() / 32, warps = block.size() / 32;
    std::uint32_t const width = step.width;
    bool const beside = panels != 0 && item % 2 == 0, below = panels != 0 && item % 2 != 0;
    float* const mine = panels != 0 ? tile + width * width : tile;
    float const* const left = beside ? tile : mine;  // has the factors, a column for each elimination
    float const* const top = below ? tile : mine;    // has the rows that are subtracted
    for (std::uint32_t k = 0; k + 1 < width; ++k) {
      // Beside the diagonal the factors are final. Elsewhere they lack the division by the pivot. It is done again
      // where they are stored: doing it in the tile takes one more barrier for each column.
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
        to[std::size_t{i} * step.side + j] = mine[i * width + j] * scale;
      }
    }
  }
};

/// Subtracts the product of the panels from what lies behind them. A block does so for an area at a time. It stages
/// slabs of rows of the area, then slices of the panels: `Depth` columns of that on the left, and as many rows of
/// that above. A warp has 32 rows and 64 columns, and a lane the rows y, y + 4, ..., and two quads of columns.
template <class M, class Policy, std::uint32_t Depth>
struct lud_update_kernel {
  static constexpr unsigned max_threads_per_block = 512;
  static constexpr std::uint32_t slab = 2 * Depth, columns = 128;
  /// From a row of the left panel to the next one in a slice. Those that a warp loads at a time are in different banks.
  static constexpr std::uint32_t pitch = Depth + 4;
  /// A slab or a slice of an area.
  struct place {
    std::uint32_t area;
    std::uint32_t row, column;  ///< of the area
    std::uint32_t phase;
  };

  lud_step step;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const lane = block.thread_rank() % 32, warp = block.thread_rank() / 32;
    std::uint32_t const y = warp / 2 * 32 + lane / 8, x = warp % 2 * (columns / 2) + lane % 8 * 4;
    std::uint32_t const rows = area_rows(block.size()), slabs = (rows + slab - 1) / slab;
    std::uint32_t const phases = slabs + step.width / Depth;
    std::uint32_t const all = areas(step.behind(), block.size());
    std::uint32_t const mine = all > block.rank ? (all - 1 - block.rank) / block_count<M>() + 1 : 0;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), tile_floats(block.size()),
                                          step.stages);
    place ahead = first_of(block.rank), now = ahead;
    quad sums[8][2];
    for_each_tile(
        staged, step.stages, 0, 1, std::uint64_t{mine} * phases,
        [&](std::uint64_t) {
          // Areas, and so slabs, are smaller where the matrix ends.
          std::uint32_t const height = least(rows, step.side - ahead.row);
          std::uint32_t const across = least(columns, step.side - ahead.column);
          float* const to = staged.acquire();
          if (ahead.phase >= slabs) {
            std::uint32_t const k = step.first + (ahead.phase - slabs) * Depth;
            staged.copy_rows(to, pitch, step.at(ahead.row, k), step.side, height, Depth);
            staged.copy_rows(to + rows * pitch, columns, step.at(k, ahead.column), step.side, Depth, across);
          } else if (std::uint32_t const skipped = ahead.phase * slab; height > skipped) {
            staged.copy_rows(to, columns, step.at(ahead.row + skipped, ahead.column), step.side,
                             least(slab, height - skipped), across);
          }
          staged.commit();
          advance(ahead, phases);
        },
        [&](std::uint64_t, float const* from) {
          if (now.phase >= slabs) {
            for (std::uint32_t k = 0; k < Depth; k += 4) {
              subtract(sums, from + y * pitch + k, from + rows * pitch + k * columns + x);
            }
          } else if (now.phase == y / slab) {
            load(sums, from + y % slab * columns + x);
          }
          if (now.phase + 1 == phases) store(sums, now.row + y, now.column + x);
          advance(now, phases);
        });
  }

  FOREBAY_DEVICE static constexpr std::uint32_t area_rows(std::uint32_t threads) { return threads / 2; }
  FOREBAY_DEVICE static constexpr std::uint32_t areas(std::uint32_t behind, std::uint32_t threads) {
    return ((behind + area_rows(threads) - 1) / area_rows(threads)) * ((behind + columns - 1) / columns);
  }
  FOREBAY_DEVICE static constexpr std::uint32_t tile_floats(std::uint32_t threads) {
    std::uint32_t const slice = area_rows(threads) * pitch + Depth * columns;
    return slice > slab * columns ? slice : slab * columns;
  }
  FOREBAY_DEVICE place first_of(std::uint32_t area) const {
    std::uint32_t const begin = step.first + step.width, across = (step.behind() + columns - 1) / columns;
    return {area, begin + area / across * area_rows(M::this_block().size()), begin + area % across * columns, 0};
  }
  FOREBAY_DEVICE void advance(place& now, std::uint32_t phases) const {
    if (++now.phase == phases) now = first_of(now.area + block_count<M>());
  }
  FOREBAY_DEVICE static std::uint32_t least(std::uint32_t a, std::uint32_t b) { return a < b ? a : b; }

  FOREBAY_DEVICE static void load(quad (&sums)[8][2], float const* from) {
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      for (std::uint32_t j = 0; j < 2; ++j) sums[i][j] = quad::at(from + i * 4 * columns + j * 32);
    }
  }
  /// Subtracts the products of four columns on the left with four rows above.
  FOREBAY_DEVICE static void subtract(quad (&sums)[8][2], float const* left, float const* above) {
    quad a[8];
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) a[i] = quad::at(left + i * 4 * pitch);
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < 4; ++k) {
      quad const b[] = {quad::at(above + k * columns), quad::at(above + k * columns + 32)};
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < 8; ++i) {
        FOREBAY_UNROLL
        for (std::uint32_t j = 0; j < 8; ++j) sums[i][j / 4].of[j % 4] -= a[i].of[k] * b[j / 4].of[j % 4];
      }
    }
  }
  FOREBAY_DEVICE void store(quad const (&sums)[8][2], std::uint32_t row, std::uint32_t column) const {
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < 2; ++j) {
        if (row + 4 * i >= step.side || column + 32 * j >= step.side) continue;
        sums[i][j].store(step.at(row + 4 * i, column + 32 * j));
      }
    }
  }
};

/// For each block of rows and columns in turn: the block on the diagonal is eliminated, then the panels (the blocks
/// beside it and those below it), then the products of the panels are subtracted from all that lies behind them.
///
/// A has 2 sqrt(side) on its diagonal, and random numbers in [-1, 1) elsewhere, whose norm is 1.15 sqrt(side). So it is
/// positive definite, no pivot gets small and no element grows. A diagonal above the sum of its row would do that too.
/// But the products of L and U would then be 1 / side at most, and at 16K a missing one would look like rounding.
class lud {
 public:
  static constexpr workload_facts facts{"lud", workload_group::application, "rows and columns of a block",
                                        "the LU decomposition of a matrix, block by block, in place"};

  lud(problem_size size, launch_shape given) : shape_(completed(given, {1024, 256, 64, 3})) {
    constexpr std::uint32_t sides[] = {512, 2048, 8192, 12288, 16384, 65536};
    side_ = sides[static_cast<int>(size)];
    require_tile(shape_.tile, 16, side_, 128);
    if (shape_.threads % 64 != 0 || shape_.threads > deep::max_threads_per_block) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be a multiple of 64, and at most 512");
    }
    require_shared_bytes(staged_bytes<float>(std::max(update_floats(), eliminate_floats()), shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    return {{"A", std::uint64_t{side_} * side_ * sizeof(float), buffer_use::in_out}};
  }
  workload_costs costs() const {
    double const n = side_, width = shape_.tile, rows = deep::area_rows(shape_.threads), columns = deep::columns;
    double staged = 0, accesses = 0;
    for (std::uint32_t behind = side_; behind != 0;) {
      behind -= shape_.tile;
      double const rest = behind;
      // The block of the diagonal and the panels: an elimination of an element takes three accesses.
      staged += width * width + 4 * rest * width;
      accesses += 3 * (width * width * width / 3 + rest * width * width);
      // The update: an access brings four floats. It takes 16 for 4 products of each of 64 elements.
      staged += rest * rest + (std::ceil(rest / rows) + std::ceil(rest / columns)) * rest * width;
      accesses += rest * rest / 4 + rest * rest * width / 16;
    }
    return {.operations = 2 * n * n * n / 3, .staged_bytes = staged * sizeof(float), .shared_accesses = accesses};
  }
  void init(std::uint64_t seed, views host) const {
    float* const matrix = host.at<float>(0);
    fill_floats(matrix, std::uint64_t{side_} * side_, seed, 0);
    for (std::uint64_t i = 0; i < side_; ++i) matrix[i * side_ + i] = diagonal();
  }

  /// Compares the rows of L U with those of A by their products with a vector of random signs, all of them up to a side
  /// of 16K; and the elements of L U with those of A, all of them at tiny, else samples.
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
    lud_step step{device.at<float>(0), side_, 0, shape_.tile, shape_.stages};
    simt::grid one{1, shape_.threads, stager::shared_bytes(eliminate_floats(), shape_.stages)}, several = one;
    simt::grid all{1, shape_.threads, stager::shared_bytes(update_floats(), shape_.stages)};
    for (;; step.first += step.width) {
      run(one, lud_eliminate_kernel<M, Policy>{step, 0});
      if (step.behind() == 0) return;
      std::uint32_t const panels = 2 * (step.behind() / step.width);
      several.blocks = std::min(shape_.blocks, panels);
      run(several, lud_eliminate_kernel<M, Policy>{step, panels});
      all.blocks = std::min(shape_.blocks, deep::areas(step.behind(), shape_.threads));
      if (is_deep()) {
        run(all, lud_update_kernel<M, Policy, 32>{step});
      } else {
        run(all, lud_update_kernel<M, Policy, 16>{step});
      }
    }
  }

 private:
  using deep = lud_update_kernel<simt::fiber, simt::stage_policy::plain, 32>;
  using shallow = lud_update_kernel<simt::fiber, simt::stage_policy::plain, 16>;

  bool is_deep() const { return shape_.tile % 32 == 0; }
  std::uint32_t update_floats() const {
    return is_deep() ? deep::tile_floats(shape_.threads) : shallow::tile_floats(shape_.threads);
  }
  /// A block of the diagonal and a block of a panel.
  std::uint32_t eliminate_floats() const { return 2 * shape_.tile * shape_.tile; }

  float diagonal() const { return 2 * std::sqrt(static_cast<float>(side_)); }
  float element(std::uint64_t seed, std::uint64_t i, std::uint64_t j) const {
    return i == j ? diagonal() : float_at(seed, 0, i * side_ + j);
  }

  /// How far element (i, j) of L U may be from that of A. Each of min(i, j) subtractions, and the multiplication by a
  /// pivot's inverse, round what is there by up to 2^-24 of it. That is less than 2, or about the constant on the
  /// diagonal. Rounding errors of random signs add like their root mean square: less than 2^-24 sqrt(count) times that.
  /// Eight times as much. A product of L and U is about 1 / (6 sqrt(side)): 600 times the bound at tiny, five at mega.
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

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
