// SPDX-License-Identifier: Apache-2.0
//! \file
//! A stencil of 11 of the 27 neighbours in a cube. Outside the cube there are zeros.
//!
//! A block computes cubes of outputs, and stages one plane of inputs after the other. Each plane is staged once for the
//! three planes of outputs that need it, whose sums wait in shared memory. The tile of the study, 12 inputs along each
//! edge, is one of 10 outputs here.
#pragma once

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

class conv3d {
 public:
  static constexpr workload_facts facts{"conv3d", workload_group::micro, "outputs along each edge of a cube",
                                        "the weighted sum of eleven neighbours for each point of a cube"};

  conv3d(problem_size size, launch_shape given) {
    constexpr std::uint32_t sides[] = {96, 192, 384, 448, 768, 1536};
    side_ = sides[static_cast<int>(size)];
    // Large tiles reload fewer inputs, but small cubes have too few of them for all multiprocessors.
    shape_ = completed(given, {1024, 256, size >= problem_size::super ? 64u : 32u, 2});
    require_tile(shape_.tile, 2, shape_.tile, side_);  // need not divide the side
    require_shared_bytes(std::uint64_t{staged_bytes<float>(plane_floats(), shape_.stages)} + own_bytes());
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    return {{"in", in_rows() * in_rows() * in_columns() * sizeof(float), buffer_use::in},
            {"out", std::uint64_t{side_} * side_ * side_ * sizeof(float), buffer_use::out}};
  }
  workload_costs costs() const {
    double const n = side_, tile = shape_.tile, planes = std::pow(tiles_along(), 3) * (tile + 2);
    double const sharers = shape_.threads > tile ? std::min(tile, std::floor(shape_.threads / tile)) : 1;
    return {.operations = 22 * n * n * n,
            .staged_bytes = planes * plane_floats() * sizeof(float),
            // For each output three inputs, and two sums that are loaded and stored; for each run of outputs in a
            // column, the inputs of two rows more.
            .shared_accesses = planes * tile * (7 * tile + 6 * sharers)};
  }
  /// The cube lies in zeros: a plane and a row at either side, and as many columns as a copy needs. They go on to the
  /// end of the last tiles.
  void init(std::uint64_t seed, views host) const {
    in_parallel(in_rows() * in_rows(), 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t line = begin; line < end; ++line) {
        std::uint64_t const z = line / in_rows() - 1, y = line % in_rows() - 1;  // those before the first are large
        float* const to = host.at<float>(0) + line * in_columns();
        for (std::uint32_t i = 0; i < in_columns(); ++i) {
          bool const inside = z < side_ && y < side_ && i >= border && i < border + side_;
          to[i] = inside ? float_at(seed, 0, (z * side_ + y) * side_ + i - border) : 0;
        }
      }
    });
  }

  std::string mismatch(std::uint64_t /*seed*/, views host) const {
    // The products are at most 1 times a weight, and round once; so do ten sums, which are at most the sum of all.
    double bound = 0;
    for (float const w : weights.of) bound += 12 * 0x1p-24 * std::abs(w);
    comparison results("out");
    float const* const found = host.at<float>(1);
    in_parallel(std::uint64_t{side_} * side_, 64, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t line = begin; line < end; ++line) {
        float const* const corner =
            host.at<float>(0) + (line / side_ * in_rows() + line % side_) * in_columns() + border - 1;
        for (std::uint32_t i = 0; i < side_; ++i) {
          double sum = 0;
          for (std::uint32_t k = 0; k < 11; ++k) {
            auto const [z, y, x] = taps[k];
            sum += double{weights.of[k]} * corner[(z * in_rows() + y) * in_columns() + x + i];
          }
          results.near(line * side_ + i, found[line * side_ + i], sum, bound);
        }
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    std::uint32_t const staged = simt::stager<M, Policy, float>::shared_bytes(plane_floats(), shape_.stages);
    run({shape_.blocks, shape_.threads, staged + own_bytes()},
        kernel<M, Policy>{device.at<float>(0), device.at<float>(1), weights, side_, tiles_along(), shape_.tile,
                          shape_.stages});
  }

 private:
  static constexpr std::uint32_t border = 4;  ///< columns: those of a copy of 16 bytes

  struct stencil {
    float of[11];
  };
  static constexpr stencil weights{{0.1f, -0.2f, 0.3f, -0.4f, 0.5f, 0.6f, -0.7f, 0.8f, -0.9f, 1.0f, -1.1f}};
  struct place {
    std::uint32_t z, y, x;
  };
  /// Where the weights stand, counted from the corner of a neighbourhood. `kernel::work` has the same in its code.
  static constexpr place taps[] = {{0, 0, 0}, {0, 1, 1}, {0, 2, 2}, {1, 0, 1}, {1, 1, 0}, {1, 1, 1},
                                   {1, 1, 2}, {1, 2, 1}, {2, 0, 2}, {2, 1, 1}, {2, 2, 0}};

  std::uint32_t tiles_along() const { return (side_ + shape_.tile - 1) / shape_.tile; }
  std::uint64_t in_rows() const { return tiles_along() * shape_.tile + 2; }
  std::uint64_t in_columns() const { return (tiles_along() * shape_.tile + 2 * border + 3) / 4 * 4; }
  /// A row of a tile begins up to three inputs early, and ends late: at multiples of four.
  FOREBAY_DEVICE static constexpr std::uint32_t staged_columns(std::uint32_t tile) {
    return (tile + 2 + 3 + 3) / 4 * 4;
  }
  std::uint32_t plane_floats() const { return (shape_.tile + 2) * staged_columns(shape_.tile); }
  /// Shared memory behind that of the stager, for the sums.
  std::uint32_t own_bytes() const { return 2 * shape_.tile * shape_.tile * static_cast<std::uint32_t>(sizeof(float)); }

  template <class M, class Policy>
  struct kernel {
    float const* in;
    float* out;
    stencil weights;
    std::uint32_t side;
    std::uint32_t tiles_along;
    std::uint32_t edge;  ///< of a tile of outputs
    std::uint32_t stages;

    /// A plane of inputs for a tile. Those of a tile come one after the other, then those of the block's next tile.
    struct step {
      std::uint32_t tile;
      std::uint32_t plane;
      std::uint32_t x, y, z;  ///< of the tile's first output
    };
    /// Three inputs in a row.
    struct triple {
      float left, middle, right;
      FOREBAY_DEVICE explicit triple(float const* p) : left(p[0]), middle(p[1]), right(p[2]) {}
    };

    FOREBAY_DEVICE void operator()() const {
      auto const block = M::this_block();
      std::byte* const shared = &block.template shared<std::byte>();
      std::uint32_t const pitch = staged_columns(edge), rows = edge + 2, floats = rows * pitch;
      std::uint64_t const in_rows = tiles_along * edge + 2;
      std::uint32_t const in_columns = (tiles_along * edge + 2 * border + 3) / 4 * 4;
      simt::stager<M, Policy, float> staged(block, shared, floats, stages);
      auto* const sums = reinterpret_cast<float*>(shared + staged.shared_bytes(floats, stages));
      std::uint32_t const tiles = tiles_along * tiles_along * tiles_along;
      std::uint64_t const mine = tiles > block.rank ? (tiles - 1 - block.rank) / block_count<M>() + 1 : 0;
      step ahead = first_of(block.rank), now = ahead;
      for_each_tile(
          staged, stages, 0, 1, mine * (edge + 2),
          [&](std::uint64_t) {
            staged.copy_rows(
                staged.acquire(), pitch,
                in + ((ahead.z + ahead.plane) * in_rows + ahead.y) * in_columns + (ahead.x + border - 1) / 4 * 4,
                in_columns, rows, pitch);
            staged.commit();
            advance(ahead);
          },
          [&](std::uint64_t, float const* plane) {
            work(now, plane + (now.x + border - 1) % 4, pitch, sums);
            advance(now);
          });
    }
    FOREBAY_DEVICE step first_of(std::uint32_t tile) const {
      std::uint32_t const line = tile / tiles_along;
      return {tile, 0, tile % tiles_along * edge, line % tiles_along * edge, line / tiles_along * edge};
    }
    FOREBAY_DEVICE void advance(step& s) const {
      if (++s.plane == edge + 2) s = first_of(s.tile + block_count<M>());
    }

    /// Adds what a plane gives to the outputs below it, beside it and above it; those below are then complete. What the
    /// first two planes of a tile find in `sums` reaches no output.
    FOREBAY_DEVICE void work(step const& now, float const* inputs, std::uint32_t pitch, float* sums) const {
      auto const block = M::this_block();
      // Neighbouring threads have neighbouring columns. If there are more threads than columns, they share the rows.
      // So a sum is always the same thread's.
      std::uint32_t const sharers = block.size() > edge ? block.size() / edge : 1;
      std::uint32_t const share = (edge + sharers - 1) / sharers;
      std::uint32_t const first = block.thread_rank() / edge * share;
      std::uint32_t const end = first + share < edge ? first + share : edge;
      // Where the complete outputs are. The first two planes of a tile complete none.
      bool const completes = now.plane >= 2 && now.z + now.plane - 2 < side;
      std::uint32_t const z = completes ? now.z + now.plane - 2 : 0;
      float* const to = out + (std::uint64_t{z} * side + now.y) * side + now.x;
      for (std::uint32_t column = block.thread_rank() % edge; column < edge; column += block.size()) {
        if (first >= end) break;
        bool const stores = completes && now.x + column < side;
        float const* row = inputs + first * pitch + column;
        triple before(row), here(row + pitch);
        for (std::uint32_t y = first; y < end; ++y) {
          row += pitch;
          triple const after(row + pitch);
          float* const sum = sums + y * edge + column;
          float above = 0, beside = sum[0], below = sum[edge * edge];
          above += weights.of[0] * before.left;
          above += weights.of[1] * here.middle;
          above += weights.of[2] * after.right;
          beside += weights.of[3] * before.middle;
          beside += weights.of[4] * here.left;
          beside += weights.of[5] * here.middle;
          beside += weights.of[6] * here.right;
          beside += weights.of[7] * after.middle;
          below += weights.of[8] * before.right;
          below += weights.of[9] * here.middle;
          below += weights.of[10] * after.left;
          sum[0] = above;
          sum[edge * edge] = beside;
          if (stores && now.y + y < side) to[std::uint64_t{y} * side + column] = below;
          before = here;
          here = after;
        }
      }
    }
  };

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
