// SPDX-License-Identifier: Apache-2.0
//! \file
//! Speckle-reducing anisotropic diffusion of an image (Yu and Acton, 2002).
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/square_tiles.hpp"
#include "forebay/arithmetic.hpp"

namespace forebay::transfer {

struct srad_rule {
  /// The variance of the speckle over the square of its mean: that of the image's first pixels, uniform in [1, 2).
  static constexpr float speckle = 1.0f / 27;
  static constexpr float speckle_squared = speckle * speckle;
  static constexpr float speckle_scale = speckle * (1 + speckle);
  static constexpr float rate = 0.5f / 4;  ///< lambda / 4

  /// With d for the differences to the four neighbours of a pixel p, Yu and Acton have
  ///   q = (sum(d^2) / 2 - sum(d)^2 / 16) / p^2 / (1 + sum(d) / 4 / p)^2,
  ///   diffusion = 1 / (1 + (q - speckle) / (speckle (1 + speckle))), but at least 0 and at most 1.
  /// This is the same with one division: p (1 + sum(d) / 4 / p) is the mean of the neighbours.
  FOREBAY_DEVICE static float diffusion(float here, float north, float south, float west, float east) {
    float const n = north - here, s = south - here, w = west - here, e = east - here;
    float const difference = 0.25f * ((n + s) + (w + e)), squares = (n * n + s * s) + (w * w + e * e);
    float const mean = here + difference, mean_squared = mean * mean;
    float const variance = 0.5f * squares - difference * difference;
    float const unlimited =
        simt::quick_quotient(speckle_scale * mean_squared, speckle_squared * mean_squared + variance);
    return unlimited < 1.0f ? unlimited : 1.0f;
  }
};

/// A tile of diffusion has a row more in the south, and `square_tiles::halo` columns in the east: the second kernel
/// needs no diffusion from north and west.
struct srad_diffusion_tile {
  FOREBAY_DEVICE static constexpr std::uint32_t pitch(std::uint32_t tile) { return tile + square_tiles::halo; }
  FOREBAY_DEVICE static constexpr std::uint32_t floats(std::uint32_t tile) { return (tile + 1) * pitch(tile); }

  template <class Stager>
  FOREBAY_DEVICE static void copy(Stager& staged, float* to, float const* diffusion, square_tiles const& tiles,
                                  square_tiles::corner at) {
    std::uint32_t const side = tiles.side, tile = tiles.tile;
    std::uint32_t const below = at.y + tile == side ? 0 : 1, right = at.x + tile == side ? 0 : square_tiles::halo;
    staged.copy_rows(to, pitch(tile), diffusion + tiles.offset(at), side, tile + below, tile + right);
  }
};

template <class M, class Policy>
struct srad_diffusion_kernel {
  square_tiles tiles;
  float const* image;
  float* diffusion;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), square_tiles::floats(tiles.tile),
                                          stages);
    auto const mine = square_tiles::part_of(tiles.tile, block.thread_rank(), block.size());
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), tiles.count(),
        [&](std::uint64_t item) {
          tiles.copy(staged, staged.acquire(), image, tiles.corner_of(item));
          staged.commit();
        },
        [&](std::uint64_t item, float const* tile) {
          square_tiles::corner const at = tiles.corner_of(item);
          float* const to = diffusion + tiles.offset(at);
          tiles.for_each_quad(mine, at, tile, [&](square_quad const& p) {
            quad result;
            FOREBAY_UNROLL
            for (std::uint32_t i = 0; i < 4; ++i) {
              result.of[i] = srad_rule::diffusion(p.here.of[i], p.north.of[i], p.south.of[i], p.west(i), p.east(i));
            }
            result.store(to + std::uint64_t{p.row} * tiles.side + p.column);
          });
        });
  }
};

template <class M, class Policy>
struct srad_update_kernel {
  square_tiles tiles;
  float const* image;
  float const* diffusion;
  float* next;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const side = tiles.side, pitch = srad_diffusion_tile::pitch(tiles.tile);
    std::uint32_t const image_part = square_tiles::floats(tiles.tile);
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(),
                                          image_part + srad_diffusion_tile::floats(tiles.tile), stages);
    auto const mine = square_tiles::part_of(tiles.tile, block.thread_rank(), block.size());
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), tiles.count(),
        [&](std::uint64_t item) {
          square_tiles::corner const at = tiles.corner_of(item);
          float* const both = staged.acquire();
          tiles.copy(staged, both, image, at);
          srad_diffusion_tile::copy(staged, both + image_part, diffusion, tiles, at);
          staged.commit();
        },
        [&](std::uint64_t item, float const* both) {
          square_tiles::corner const at = tiles.corner_of(item);
          float* const to = next + tiles.offset(at);
          tiles.for_each_quad(mine, at, both, [&](square_quad const& p) {
            float const* const c = both + image_part + p.row * pitch + p.column;
            quad const here = quad::at(c);
            // Where there is no neighbour, the difference is 0, whatever the factor.
            quad const south = at.y + p.row + 1 == side ? here : quad::at(c + pitch);
            float const behind = at.x + p.column + 4 == side ? 0.0f : c[4];
            quad result;
            FOREBAY_UNROLL
            for (std::uint32_t i = 0; i < 4; ++i) {
              float const pixel = p.here.of[i], east = i == 3 ? behind : here.of[i + 1];
              float const flow = here.of[i] * ((p.north.of[i] - pixel) + (p.west(i) - pixel)) +
                                 (south.of[i] * (p.south.of[i] - pixel) + east * (p.east(i) - pixel));
              result.of[i] = pixel + srad_rule::rate * flow;
            }
            result.store(to + std::uint64_t{p.row} * side + p.column);
          });
        });
  }
};

/// An iteration is two kernels. The first one computes how much each pixel diffuses, and the second one lets it. The
/// second computes the differences to the neighbours again, and writes to another image, since the first pixels that
/// it finishes are neighbours of others.
class srad {
 public:
  static constexpr workload_facts facts{"srad", workload_group::application, "pixels of a tile's side",
                                        "two iterations of a diffusion that removes speckle from an image"};

  srad(problem_size size, launch_shape given) : shape_(completed(given, {8448, 128, 64, 2})) {
    constexpr std::uint32_t sides[] = {512, 2048, 4096, 8192, 20480, 40960};
    side_ = sides[static_cast<int>(size)];
    square_tiles::require(shape_, side_);
    require_shared_bytes(staged_bytes<float>(
        square_tiles::floats(shape_.tile) + srad_diffusion_tile::floats(shape_.tile), shape_.stages));
    // Several tiles a block, so that one is on its way while the block works on another.
    std::uint32_t const across = side_ / shape_.tile;
    if (given.blocks == 0) shape_.blocks = std::clamp(across * across / 4, 1u, shape_.blocks);
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const bytes = pixels() * sizeof(float);
    return {{"image", bytes, buffer_use::in_out},
            {"diffusion", bytes, buffer_use::scratch},
            {"next", bytes, buffer_use::scratch}};
  }
  workload_costs costs() const {
    double const n = static_cast<double>(pixels()), inner_borders = side_ / shape_.tile - 1;
    double const image = square_tiles{side_, shape_.tile}.staged_floats();
    double const diffusion = (side_ + inner_borders) * (side_ + square_tiles::halo * inner_borders);
    double const image_loads = square_tiles::loads_of_place(shape_.tile, shape_.threads);
    return {.operations = (25.0 + 12.0) * n * iterations,
            .staged_bytes = (2 * image + diffusion) * sizeof(float) * iterations,
            .shared_accesses = (2 * image_loads + 0.75) * n * iterations,
            // The first kernel reads the image and writes the diffusion; the second reads both and writes an image.
            .device_bytes = 5 * n * sizeof(float) * iterations};
  }
  void init(std::uint64_t seed, views host) const {
    float* const image = host.at<float>(0);
    in_parallel(pixels(), 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) image[i] = pixel_at(seed, i);
    });
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    std::uint64_t const across = side_ / patch;
    auto const patches = sampled_places(across * across, 4096, seed);
    comparison results("image");
    in_parallel(patches.size(), 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        check_patch(patches[k] % across * patch, patches[k] / across * patch, seed, host.at<float>(0), results);
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    using stager = simt::stager<M, Policy, float>;
    std::uint32_t const image = square_tiles::floats(shape_.tile);
    std::uint32_t const both = image + srad_diffusion_tile::floats(shape_.tile);
    float *from = device.at<float>(0), *const diffusion = device.at<float>(1), *to = device.at<float>(2);
    for (int i = 0; i < iterations; ++i) {
      run({shape_.blocks, shape_.threads, stager::shared_bytes(image, shape_.stages)},
          srad_diffusion_kernel<M, Policy>{{side_, shape_.tile}, from, diffusion, shape_.stages});
      run({shape_.blocks, shape_.threads, stager::shared_bytes(both, shape_.stages)},
          srad_update_kernel<M, Policy>{{side_, shape_.tile}, from, diffusion, to, shape_.stages});
      std::swap(from, to);
    }
  }

 private:
  /// Even, so that the last one writes to the buffer that the first one read.
  static constexpr int iterations = 2;
  static constexpr std::uint64_t patch = 32;

  static float pixel_at(std::uint64_t seed, std::uint64_t pixel) { return 1.5f + 0.5f * float_at(seed, 0, pixel); }
  std::uint64_t pixels() const { return std::uint64_t{side_} * side_; }

  /// Computes a patch with all around it that reaches it within the iterations. What the patch's surroundings lack
  /// beyond that makes their outermost pixels wrong, and two pixels more each iteration, which never reaches the patch.
  void check_patch(std::uint64_t x, std::uint64_t y, std::uint64_t seed, float const* found,
                   comparison& results) const {
    constexpr std::uint64_t around = 2 * iterations;
    constexpr double speckle = srad_rule::speckle;
    std::uint64_t const left = x - std::min(x, around), top = y - std::min(y, around);
    std::uint64_t const width = std::min<std::uint64_t>(x + patch + around, side_) - left;
    std::uint64_t const height = std::min<std::uint64_t>(y + patch + around, side_) - top;
    std::vector<double> image(width * height), diffusion(width * height), next(width * height);
    for (std::uint64_t i = 0; i < image.size(); ++i) {
      image[i] = pixel_at(seed, (top + i / width) * side_ + left + i % width);
    }
    // Beyond an edge is what is at the edge.
    auto const north = [&](std::uint64_t i) { return i < width ? i : i - width; };
    auto const south = [&](std::uint64_t i) { return i + width < image.size() ? i + width : i; };
    auto const west = [&](std::uint64_t i) { return i % width == 0 ? i : i - 1; };
    auto const east = [&](std::uint64_t i) { return (i + 1) % width == 0 ? i : i + 1; };
    for (int iteration = 0; iteration < iterations; ++iteration) {
      for (std::uint64_t i = 0; i < image.size(); ++i) {
        // As Yu and Acton have it.
        double const p = image[i];
        double sum = 0, squares = 0;
        for (std::uint64_t const neighbour : {north(i), south(i), west(i), east(i)}) {
          sum += image[neighbour] - p;
          squares += (image[neighbour] - p) * (image[neighbour] - p);
        }
        double const mean = 1 + sum / 4 / p, q = (squares / 2 - sum * sum / 16) / (p * p) / (mean * mean);
        diffusion[i] = std::clamp(1 / (1 + (q - speckle) / (speckle * (1 + speckle))), 0.0, 1.0);
      }
      for (std::uint64_t i = 0; i < image.size(); ++i) {
        auto const flow_from = [&](std::uint64_t of, std::uint64_t from) {
          return diffusion[of] * (image[from] - image[i]);
        };
        next[i] = image[i] + srad_rule::rate * (flow_from(i, north(i)) + flow_from(south(i), south(i)) +
                                                flow_from(i, west(i)) + flow_from(east(i), east(i)));
      }
      std::swap(image, next);
    }
    // Pixels stay in [1, 2], so their differences are exact. In units of u = 2^-24:
    // - From given pixels, squares is right to 3 u squares. Difference is right to u of itself, and its square to 3 u,
    //   which is at most 3 u squares / 4. So variance, which is squares / 4 or more, is right to 10 u variance, the
    //   mean to 2 u and its square to 5 u. With the rounded constants the sides of the quotient are right to 7 u and 12
    //   u, and it adds 4 u: 23 u.
    // - The first iteration adds rate * 4 products of differences, each right to 26 u, and rounds the sum: 15 u.
    // - Differences are then wrong by 30 u, and diffusion by 20 times that: its slope by them is highest where it just
    //   reaches 1, which is 4 sqrt(speckle) / speckle_scale. With its slope by the mean, and its own roundings, 682 u.
    // - The second iteration makes rate * 4 * (682 + 4 + 30) u + 17 u of that, which is 375 u.
    constexpr double bound = 384 * 0x1p-24;
    for (std::uint64_t row = y; row < y + patch; ++row) {
      for (std::uint64_t column = x; column < x + patch; ++column) {
        std::uint64_t const at = row * side_ + column;
        results.near(at, found[at], image[(row - top) * width + column - left], bound);
      }
    }
  }

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
