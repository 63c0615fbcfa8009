// SPDX-License-Identifier: Apache-2.0
//! \file
//! The product of two square matrices. The tile chooses the kernel: 128 keeps sums in registers; 32 is that of the
//! study, where a thread computes one output at a time.
#pragma once

#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// A block goes through slices: those of a tile of C, which have `Depth` values of k each, then those of its next tile.
/// So the first slices of the next tile are on their way while a tile is finished.
template <class M, std::uint32_t Tile, std::uint32_t Depth>
struct gemm_slice {
  std::uint32_t side;
  std::uint32_t tile = M::this_block().rank;
  std::uint32_t row = 0, column = 0;  ///< of the tile's first element
  std::uint32_t k = 0;                ///< first of the slice

  FOREBAY_DEVICE explicit gemm_slice(std::uint32_t side_of_matrix) : side(side_of_matrix) { find_tile(); }
  FOREBAY_DEVICE bool is_last() const { return k + Depth == side; }
  FOREBAY_DEVICE void advance() {
    k += Depth;
    if (k != side) return;
    k = 0;
    tile += block_count<M>();
    find_tile();
  }
  FOREBAY_DEVICE void find_tile() {
    row = tile / (side / Tile) * Tile;
    column = tile % (side / Tile) * Tile;
  }
  /// How many slices the block has.
  FOREBAY_DEVICE std::uint64_t count() const {
    std::uint32_t const rank = M::this_block().rank, tiles = (side / Tile) * (side / Tile);
    return tiles > rank ? std::uint64_t{(tiles - 1 - rank) / block_count<M>() + 1} * (side / Depth) : 0;
  }
};

struct gemm_task {
  float const* a;
  float const* b;
  float* c;
  std::uint32_t side;
  std::uint32_t stages;

  /// Stages the slices of a block: `Tile` rows of A, `Pitch` apart, then `Depth` rows of B. Calls `work(slice, rows of
  /// A, rows of B)` for each.
  template <std::uint32_t Tile, std::uint32_t Depth, std::uint32_t Pitch, class M, class Policy, class Work>
  FOREBAY_DEVICE void for_each_slice(simt::stager<M, Policy, float>& staged, Work&& work) const {
    gemm_slice<M, Tile, Depth> ahead(side), now(side);
    for_each_tile(
        staged, stages, 0, 1, now.count(),
        [&](std::uint64_t) {
          float* const to = staged.acquire();
          staged.copy_rows(to, Pitch, a + std::uint64_t{ahead.row} * side + ahead.k, side, Tile, Depth);
          staged.copy_rows(to + Tile * Pitch, Tile, b + std::uint64_t{ahead.k} * side + ahead.column, side, Depth,
                           Tile);
          staged.commit();
          ahead.advance();
        },
        [&](std::uint64_t, float const* both) {
          work(now, both, both + Tile * Pitch);
          now.advance();
        });
  }
};

template <class M, class Policy>
struct gemm_narrow_kernel {
  static constexpr std::uint32_t tile = 32, staged_floats = 2 * tile * tile;
  static constexpr unsigned max_threads_per_block = threads_max;

  gemm_task task;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::byte* const shared = &block.template shared<std::byte>();
    simt::stager<M, Policy, float> staged(block, shared, staged_floats, task.stages);
    // A thread uses only its own sums.
    auto* const sums = reinterpret_cast<float*>(shared + staged.shared_bytes(staged_floats, task.stages));
    task.for_each_slice<tile, tile, tile>(staged, [&](auto const& now, float const* left, float const* right) {
      for (std::uint32_t i = block.thread_rank(); i < tile * tile; i += block.size()) {
        std::uint32_t const row = i / tile, column = i % tile;
        float sum = now.k == 0 ? 0 : sums[i];
        FOREBAY_UNROLL
        for (std::uint32_t k = 0; k < tile; ++k) sum += left[row * tile + k] * right[k * tile + column];
        if (now.is_last()) {
          task.c[std::uint64_t{now.row + row} * task.side + now.column + column] = sum;
        } else {
          sums[i] = sum;
        }
      }
    });
  }
};

/// A thread has `Rows` rows and 8 columns of a tile of C in registers.
template <class M, class Policy, std::uint32_t Rows>
struct gemm_wide_kernel {
  static constexpr std::uint32_t tile = 128, depth = 16;
  /// From a row of A to the next in shared memory. Quads of four rows in a row are then in different banks.
  static constexpr std::uint32_t pitch = depth + 4;
  static constexpr std::uint32_t staged_floats = tile * pitch + depth * tile;
  static constexpr std::uint32_t rows_apart = tile / Rows, columns_apart = tile / 2;
  /// Twice as many as a block has: a multiprocessor then has registers for two blocks, and one works while the other
  /// waits for its slice.
  static constexpr unsigned max_threads_per_block = 2 * tile * tile / (Rows * 8);

  gemm_task task;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), staged_floats, task.stages);
    // The lanes of a warp have four rows and eight quads of columns in a row. So they load four quads of A, which the
    // pitch keeps apart, and a line of B, and lanes with the same address share the load.
    std::uint32_t const lane = block.thread_rank() % 32, warp = block.thread_rank() / 32;
    std::uint32_t const row = warp / 2 * 4 + lane / 8, column = (warp % 2 * 8 + lane % 8) * 4;
    float sums[Rows][8] = {};
    task.for_each_slice<tile, depth, pitch>(staged, [&](auto const& now, float const* left, float const* right) {
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < depth; k += 4) add(sums, left + row * pitch + k, right + k * tile + column);
      if (!now.is_last()) return;
      float* const to = task.c + std::uint64_t{now.row + row} * task.side + now.column + column;
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < Rows; ++i) store(sums[i], to + std::uint64_t{i} * rows_apart * task.side);
    });
  }
  /// Adds the products for four values of k.
  FOREBAY_DEVICE static void add(float (&sums)[Rows][8], float const* left, float const* right) {
    quad a[Rows];
    FOREBAY_UNROLL
    for (std::uint32_t i = 0; i < Rows; ++i) a[i] = quad::at(left + i * rows_apart * pitch);
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < 4; ++k) {
      quad const b[] = {quad::at(right + k * tile), quad::at(right + k * tile + columns_apart)};
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < Rows; ++i) {
        FOREBAY_UNROLL
        for (std::uint32_t j = 0; j < 8; ++j) sums[i][j] += a[i].of[k] * b[j / 4].of[j % 4];
      }
    }
  }
  /// Stores the sums of a row, and begins new ones.
  FOREBAY_DEVICE static void store(float (&sums)[8], float* to) {
    FOREBAY_UNROLL
    for (std::uint32_t j = 0; j < 8; j += 4) {
      quad{sums[j], sums[j + 1], sums[j + 2], sums[j + 3]}.store(to + j / 4 * columns_apart);
      for (std::uint32_t i = 0; i < 4; ++i) sums[j + i] = 0;
    }
  }
};

class gemm {
 public:
  static constexpr workload_facts facts{"gemm", workload_group::micro, "rows and columns of C",
                                        "C = A B, where a block computes square tiles of C"};

  gemm(problem_size size, launch_shape given) {
    constexpr std::uint32_t sides[] = {384, 2048, 4096, 8192, 16384, 32768};
    side_ = sides[static_cast<int>(size)];
    if (given.tile == 0) given.tile = 128;
    if (given.tile != 128 && given.tile != 32) {
      throw refused_input("--tile", std::to_string(given.tile), "must be 32 or 128");
    }
    std::uint32_t const tiles = (side_ / given.tile) * (side_ / given.tile);
    shape_ = completed(given, {std::min(tiles, 1024u), 256, given.tile, 3});
    if (!is_narrow() && shape_.threads != 256 && shape_.threads != 128) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be 128 or 256, unless the tile is 32");
    }
    require_shared_bytes(staged_bytes<float>(staged_floats(), shape_.stages) + own_bytes());
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const bytes = elements() * sizeof(float);
    return {{"A", bytes, buffer_use::in}, {"B", bytes, buffer_use::in}, {"C", bytes, buffer_use::out}};
  }
  workload_costs costs() const {
    double const products = std::pow(side_, 3), tile = shape_.tile;
    // With tiles of 32 a thread loads two numbers for each product; it loads and stores its sum once a slice. Otherwise
    // it loads a quad for each of its rows and eight for its columns, for four products of each of its outputs.
    double const rows = 128 * 16.0 / shape_.threads;
    return {.operations = 2 * products,
            .staged_bytes = 2 * products / tile * sizeof(float),
            .shared_accesses = products * (is_narrow() ? 2 + 2 / tile : (rows + 8) / (32 * rows))};
  }
  void init(std::uint64_t seed, views host) const {
    for (unsigned i = 0; i < 2; ++i) fill_floats(host.at<float>(i), elements(), seed, i);
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    // A sum of k products of numbers in [-1, 1) is about sqrt(k) / 3, and the next addition rounds it by up to 2^-24 of
    // that. Rounding errors of random signs add like their root mean square: 2^-24 n / sqrt(18) after n additions.
    // Sixteen times that. A product is about 1/3.
    double const bound = 16 * 0x1p-24 * side_ / std::sqrt(18.0);
    std::string const wrong = wrong_sample(seed, host.at<float>(2), bound);
    return !wrong.empty() ? wrong : wrong_row(seed, host, bound * std::sqrt(side_));
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    std::uint32_t const staged = simt::stager<M, Policy, float>::shared_bytes(staged_floats(), shape_.stages);
    simt::grid const grid{shape_.blocks, shape_.threads, staged + own_bytes()};
    gemm_task const task{device.at<float>(0), device.at<float>(1), device.at<float>(2), side_, shape_.stages};
    if (is_narrow()) {
      run(grid, gemm_narrow_kernel<M, Policy>{task});
    } else if (shape_.threads == 256) {
      run(grid, gemm_wide_kernel<M, Policy, 8>{task});
    } else {
      run(grid, gemm_wide_kernel<M, Policy, 16>{task});
    }
  }

 private:
  using narrow = gemm_narrow_kernel<simt::fiber, simt::stage_policy::plain>;
  using wide = gemm_wide_kernel<simt::fiber, simt::stage_policy::plain, 8>;

  bool is_narrow() const { return shape_.tile == narrow::tile; }
  std::uint64_t elements() const { return std::uint64_t{side_} * side_; }
  std::uint32_t staged_floats() const { return is_narrow() ? narrow::staged_floats : wide::staged_floats; }
  /// Shared memory behind that of the stager.
  std::uint32_t own_bytes() const {
    return is_narrow() ? narrow::tile * narrow::tile * static_cast<std::uint32_t>(sizeof(float)) : 0;
  }

  std::string wrong_sample(std::uint64_t seed, float const* found, double bound) const {
    comparison results("C");
    auto const samples = sampled_places(elements(), 4096, seed);
    in_parallel(samples.size(), 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t s = begin; s < end; ++s) {
        std::uint64_t const row = samples[s] / side_, column = samples[s] % side_;
        double sum = 0;
        for (std::uint64_t k = 0; k < side_; ++k) {
          sum += double{float_at(seed, 0, row * side_ + k)} * float_at(seed, 1, k * side_ + column);
        }
        results.near(samples[s], found[samples[s]], sum, bound);
      }
    });
    return results.result();
  }

  /// Freivalds' check of all of C: C r = A (B r) for a random r. `bound`: for an element of C r. Elements of r are 1 or
  /// -1 at random, so the errors of a row of C add like their root mean square, whatever they are.
  std::string wrong_row(std::uint64_t seed, views host, double bound) const {
    std::vector<double> r(side_);
    for (std::uint32_t i = 0; i < side_; ++i) r[i] = bits_at(seed, 2, i) % 2 == 0 ? 1 : -1;
    auto const expected = times(host.at<float>(0), times(host.at<float>(1), r));
    auto const found = times(host.at<float>(2), r);
    comparison results("C r");
    for (std::uint32_t i = 0; i < side_; ++i) results.near(i, found[i], expected[i], bound);
    return results.result();
  }
  std::vector<double> times(float const* matrix, std::vector<double> const& vector) const {
    std::vector<double> product(side_);
    in_parallel(side_, 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t row = begin; row < end; ++row) {
        double sum = 0;
        for (std::uint32_t i = 0; i < side_; ++i) sum += double{matrix[row * side_ + i]} * vector[i];
        product[row] = sum;
      }
    });
    return product;
  }

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
