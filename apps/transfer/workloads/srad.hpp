// SPDX-License-Identifier: Apache-2.0
//! \file
//! Speckle-reducing anisotropic diffusion of an image (Yu and Acton, 2002).
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// A pixel's place in its tile, its value and those around it. Beyond an edge is what is at the edge.
struct srad_pixel {
  std::uint32_t row, column;
  float here, north, south, west, east;
};

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
  FOREBAY_DEVICE static float diffusion(srad_pixel const& p) {
    float const n = p.north - p.here, s = p.south - p.here, w = p.west - p.here, e = p.east - p.here;
    float const sum = (n + s) + (w + e), squares = (n * n + s * s) + (w * w + e * e);
    float const mean = 0.25f * ((p.north + p.south) + (p.west + p.east)), mean_squared = mean * mean;
    float const variance = 0.5f * squares - 0.0625f * (sum * sum);
    float const unlimited = speckle_scale * mean_squared / (speckle_squared * mean_squared + variance);
    return unlimited < 1.0f ? unlimited : 1.0f;
  }
};

/// What both kernels know of the image and its tiles. A tile of the image has a row more on both sides, and `halo`
/// columns; a tile of diffusion has that in the south and in the east only. Nothing is copied beyond the edges.
struct srad_tiles {
  /// Columns that a tile has on a side beside its own: one would do, but copies are whole quads.
  static constexpr std::uint32_t halo = 4;

  FOREBAY_DEVICE static constexpr std::uint32_t image_floats(std::uint32_t tile) {
    return (tile + 2) * (tile + 2 * halo);
  }
  /// The second kernel needs no diffusion from north and west.
  FOREBAY_DEVICE static constexpr std::uint32_t diffusion_floats(std::uint32_t tile) {
    return (tile + 1) * (tile + halo);
  }
  /// A lane works on this many rows of one column, from top to bottom.
  FOREBAY_DEVICE static constexpr std::uint32_t rows_of_lane(std::uint32_t tile, std::uint32_t threads) {
    std::uint32_t const parts = threads < tile ? 1 : threads / tile;
    return (tile + parts - 1) / parts;
  }

  std::uint32_t side;
  std::uint32_t tile;

  FOREBAY_DEVICE std::uint32_t across() const { return side / tile; }
  FOREBAY_DEVICE std::uint32_t image_pitch() const { return tile + 2 * halo; }
  FOREBAY_DEVICE std::uint32_t x_of(std::uint64_t item) const {
    return static_cast<std::uint32_t>(item) % across() * tile;
  }
  FOREBAY_DEVICE std::uint32_t y_of(std::uint64_t item) const {
    return static_cast<std::uint32_t>(item) / across() * tile;
  }

  template <class Stager>
  FOREBAY_DEVICE void copy_image(Stager& staged, float* to, float const* image, std::uint64_t item) const {
    std::uint32_t const x = x_of(item), y = y_of(item);
    std::uint32_t const above = y == 0 ? 0 : 1, below = y + tile == side ? 0 : 1;
    std::uint32_t const left = x == 0 ? 0 : halo, right = x + tile == side ? 0 : halo;
    staged.copy_rows(to + (1 - above) * image_pitch() + halo - left, image_pitch(),
                     image + std::uint64_t{y - above} * side + x - left, side, above + tile + below,
                     left + tile + right);
  }
  template <class Stager>
  FOREBAY_DEVICE void copy_diffusion(Stager& staged, float* to, float const* diffusion, std::uint64_t item) const {
    std::uint32_t const x = x_of(item), y = y_of(item);
    std::uint32_t const below = y + tile == side ? 0 : 1, right = x + tile == side ? 0 : halo;
    staged.copy_rows(to, tile + halo, diffusion + std::uint64_t{y} * side + x, side, tile + below, tile + right);
  }

  /// Calls `work(pixel)` for the lane's pixels of a tile, down each of its columns.
  template <class Block, class Work>
  FOREBAY_DEVICE void for_each_pixel(Block const& block, std::uint64_t item, float const* image, Work&& work) const {
    std::uint32_t const rows = rows_of_lane(tile, block.size()), parts = (tile + rows - 1) / rows;
    std::uint32_t const x = x_of(item), y = y_of(item);
    for (std::uint32_t k = block.thread_rank(); k < parts * tile; k += block.size()) {
      std::uint32_t const column = k % tile, first = k / tile * rows;
      std::uint32_t const end = first + rows < tile ? first + rows : tile;
      std::uint32_t const west = x + column == 0 ? 0 : 1, east = x + column + 1 == side ? 0 : 1;
      float const* pixel = image + (first + 1) * image_pitch() + halo + column;
      float here = *pixel, north = y + first == 0 ? here : *(pixel - image_pitch());
      for (std::uint32_t row = first; row < end; ++row, pixel += image_pitch()) {
        float const south = y + row + 1 == side ? here : pixel[image_pitch()];
        work(srad_pixel{row, column, here, north, south, *(pixel - west), pixel[east]});
        north = here;
        here = south;
      }
    }
  }
};

template <class M, class Policy>
struct srad_diffusion_kernel {
  srad_tiles tiles;
  float const* image;
  float* diffusion;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(),
                                          srad_tiles::image_floats(tiles.tile), stages);
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), std::uint64_t{tiles.across()} * tiles.across(),
        [&](std::uint64_t item) {
          tiles.copy_image(staged, staged.acquire(), image, item);
          staged.commit();
        },
        [&](std::uint64_t item, float const* tile) {
          float* const to = diffusion + std::uint64_t{tiles.y_of(item)} * tiles.side + tiles.x_of(item);
          tiles.for_each_pixel(block, item, tile, [&](srad_pixel const& p) {
            to[std::uint64_t{p.row} * tiles.side + p.column] = srad_rule::diffusion(p);
          });
        });
  }
};

template <class M, class Policy>
struct srad_update_kernel {
  srad_tiles tiles;
  float const* image;
  float const* diffusion;
  float* next;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    std::uint32_t const side = tiles.side, pitch = tiles.tile + srad_tiles::halo;
    std::uint32_t const image_part = srad_tiles::image_floats(tiles.tile);
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(),
                                          image_part + srad_tiles::diffusion_floats(tiles.tile), stages);
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), std::uint64_t{tiles.across()} * tiles.across(),
        [&](std::uint64_t item) {
          float* const both = staged.acquire();
          tiles.copy_image(staged, both, image, item);
          tiles.copy_diffusion(staged, both + image_part, diffusion, item);
          staged.commit();
        },
        [&](std::uint64_t item, float const* both) {
          std::uint32_t const x = tiles.x_of(item), y = tiles.y_of(item);
          float* const to = next + std::uint64_t{y} * side + x;
          tiles.for_each_pixel(block, item, both, [&](srad_pixel const& p) {
            float const* const c = both + image_part + p.row * pitch + p.column;
            // Where there is no neighbour, the difference is 0, whatever the factor.
            float const c_south = y + p.row + 1 == side ? 0.0f : c[pitch];
            float const c_east = x + p.column + 1 == side ? 0.0f : c[1];
            float const flow = *c * ((p.north - p.here) + (p.west - p.here)) +
                               (c_south * (p.south - p.here) + c_east * (p.east - p.here));
            to[std::uint64_t{p.row} * side + p.column] = p.here + srad_rule::rate * flow;
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

  srad(problem_size size, launch_shape given) : shape_(completed(given, {8448, 256, 64, 2})) {
    constexpr std::uint32_t sides[] = {512, 2048, 4096, 8192, 20480, 40960};
    side_ = sides[static_cast<int>(size)];
    if (shape_.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps of 32");
    }
    require_tile(shape_.tile, 4, side_, 128);
    require_shared_bytes(staged_bytes<float>(
        srad_tiles::image_floats(shape_.tile) + srad_tiles::diffusion_floats(shape_.tile), shape_.stages));
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
    double const image = (side_ + 2 * inner_borders) * (side_ + 2 * srad_tiles::halo * inner_borders);
    double const diffusion = (side_ + inner_borders) * (side_ + srad_tiles::halo * inner_borders);
    double const column_starts = n / srad_tiles::rows_of_lane(shape_.tile, shape_.threads);
    return {.operations = (28.0 + 12.0) * n * iterations,
            .staged_bytes = (2 * image + diffusion) * sizeof(float) * iterations,
            .shared_accesses = (9 * n + 4 * column_starts) * iterations,
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
    std::uint32_t const image = srad_tiles::image_floats(shape_.tile);
    std::uint32_t const both = image + srad_tiles::diffusion_floats(shape_.tile);
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
    // Pixels stay in [1, 2], and differences below 1. In units of u = 2^-24:
    // - From given pixels, squares is right to 6 u squares, and sum^2 / 16 to 2.25 u squares, as (sum |d|)^2 is 4
    // squares
    //   at most. So variance, which is squares / 4 or more, is right to 22 u variance, and diffusion to 32 u.
    // - The first iteration adds rate * 4 products of differences, each right to 36 u, and rounds the sum: 20 u.
    // - Differences are then wrong by 40 u, and diffusion by 20 times that: its slope by them is highest where it just
    //   reaches 1, which is 4 sqrt(speckle) / speckle_scale. With its slope by the mean, and its own roundings, 872 u.
    // - The second iteration makes rate * 4 * (872 + 4 + 40) u + 22 u of that, which is 480 u.
    constexpr double bound = 512 * 0x1p-24;
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
