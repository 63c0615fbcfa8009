// SPDX-License-Identifier: Apache-2.0
//! \file
//! A matrix times a vector.
#pragma once

#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// A block takes as many rows as it has warps, and `tile` columns at a time. The tile is a piece of x, then pieces of
/// the rows.
template <class M, class Policy>
struct gemv_kernel {
  float const* matrix;
  float const* x;
  float* y;
  std::uint32_t side;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    auto const lanes = M::this_warp();
    std::uint32_t const warp = block.thread_rank() / 32, rows = block.size() / 32;
    std::uint32_t const pieces = side / tile;
    std::uint32_t const groups = side / rows;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), (rows + 1) * tile, stages);
    // Item k is piece k % pieces of the block's (k / pieces)-th group of rows.
    std::uint64_t const mine = groups > block.rank ? (groups - 1 - block.rank) / block_count<M>() + 1 : 0;
    float sum = 0;
    for_each_tile(
        staged, stages, 0, 1, mine * pieces,
        [&](std::uint64_t item) {
          std::uint64_t const row = first_row(item / pieces, rows);
          std::uint32_t const column = static_cast<std::uint32_t>(item % pieces) * tile;
          float* const to = staged.acquire();
          staged.copy(to, x + column, tile);
          staged.copy_rows(to + tile, tile, matrix + row * side + column, side, rows, tile);
          staged.commit();
        },
        [&](std::uint64_t item, float const* piece) {
          float const* const row = piece + (1 + warp) * tile;
          for (std::uint32_t i = lanes.thread_rank(); i < tile; i += 32) sum += row[i] * piece[i];
          if (item % pieces + 1 != pieces) return;
          for (std::uint32_t d = 16; d != 0; d /= 2) sum += lanes.shfl(sum, lanes.thread_rank() ^ d);
          if (lanes.thread_rank() == 0) y[first_row(item / pieces, rows) + warp] = sum;
          sum = 0;
        });
  }
  FOREBAY_DEVICE static std::uint64_t first_row(std::uint64_t group, std::uint32_t rows) {
    return (M::this_block().rank + group * block_count<M>()) * rows;
  }
};

class gemv {
 public:
  static constexpr workload_facts facts{"gemv", workload_group::micro, "columns of a row",
                                        "y = A x, where a warp sums each row of A"};

  gemv(problem_size size, launch_shape given)
      : shape_(completed(given, {size == problem_size::tiny ? 1024u : 2112u, 256, 1024, 2})) {
    constexpr std::uint32_t sides[] = {1024, 4096, 8192, 16384, 32768, 65536};
    side_ = sides[static_cast<int>(size)];
    require_tile(shape_.tile, 4, side_, side_);
    if (shape_.threads % 32 != 0 || side_ % (shape_.threads / 32) != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads),
                          "must be whole warps, as many as divide " + std::to_string(side_));
    }
    require_shared_bytes(staged_bytes<float>(tile_floats(), shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const row_bytes = std::uint64_t{side_} * sizeof(float);
    return {
        {"A", side_ * row_bytes, buffer_use::in}, {"x", row_bytes, buffer_use::in}, {"y", row_bytes, buffer_use::out}};
  }
  workload_costs costs() const {
    double const n = side_, elements = n * n, rows = rows_at_a_time();
    return {.operations = 2 * elements,
            .staged_bytes = (elements + elements / rows) * sizeof(float),
            .shared_accesses = 2 * elements};
  }
  void init(std::uint64_t seed, views host) const {
    fill_floats(host.at<float>(0), std::uint64_t{side_} * side_, seed, 0);
    fill_floats(host.at<float>(1), side_, seed, 1);
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    comparison results("y");
    float const* const found = host.at<float>(2);
    auto const rows = sampled_places(side_, 2048, seed);
    in_parallel(rows.size(), 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        double sum = 0;
        for (std::uint64_t j = 0; j < side_; ++j) {
          sum += double{float_at(seed, 0, rows[k] * side_ + j)} * float_at(seed, 1, j);
        }
        // A lane adds side / 32 products of at most 1, and the warp five times what they come to; rounding errors of
        // random signs add like their root mean square. Sixteen times that.
        double const bound = 16 * 0x1p-24 * side_ / std::sqrt(32.0);
        results.near(rows[k], found[rows[k]], sum, bound);
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    run({shape_.blocks, shape_.threads, simt::stager<M, Policy, float>::shared_bytes(tile_floats(), shape_.stages)},
        gemv_kernel<M, Policy>{device.at<float>(0), device.at<float>(1), device.at<float>(2), side_, shape_.tile,
                               shape_.stages});
  }

 private:
  std::uint32_t rows_at_a_time() const { return shape_.threads / 32; }
  std::uint32_t tile_floats() const { return (rows_at_a_time() + 1) * shape_.tile; }

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
