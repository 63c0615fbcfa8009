// SPDX-License-Identifier: Apache-2.0
//! \file
//! How warm the cells of a chip become, from their power and their neighbours' temperatures.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// The chip of Rodinia's hotspot with 512 cells a side. Larger chips here have more cells of the same size: with
/// smaller cells a step of this length is unstable.
struct hotspot_chip {
  static constexpr float heating = 0.3413f;     ///< kelvins that one watt adds in a step
  static constexpr float spreading = 0.03413f;  ///< of the difference to each neighbour
  static constexpr float loss = 6.67e-5f;       ///< of the difference to the air
  static constexpr float air = 80.0f;
};

/// A tile is a square of temperatures with a halo, then the power of the square's own cells.
struct hotspot_tile {
  /// Columns on each side beside the tile's own: one would do, but copies are whole quads.
  static constexpr std::uint32_t halo = 4;

  FOREBAY_DEVICE static constexpr std::uint32_t floats(std::uint32_t tile) {
    return (tile + 2) * (tile + 2 * halo) + tile * tile;
  }
  /// A lane works on this many rows of one column, from top to bottom.
  FOREBAY_DEVICE static constexpr std::uint32_t rows_of_lane(std::uint32_t tile, std::uint32_t threads) {
    std::uint32_t const parts = threads < tile ? 1 : threads / tile;
    return (tile + parts - 1) / parts;
  }
};

/// One time step.
template <class M, class Policy>
struct hotspot_kernel {
  float const* before;
  float const* power;
  float* after;
  std::uint32_t side;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    using chip = hotspot_chip;
    constexpr std::uint32_t halo = hotspot_tile::halo;
    auto const block = M::this_block();
    std::uint32_t const across = side / tile, pitch = tile + 2 * halo;
    std::uint32_t const rows = hotspot_tile::rows_of_lane(tile, block.size()), parts = (tile + rows - 1) / rows;
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), hotspot_tile::floats(tile),
                                          stages);
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), std::uint64_t{across} * across,
        [&](std::uint64_t item) {
          auto const t = static_cast<std::uint32_t>(item);
          std::uint32_t const x = t % across * tile, y = t / across * tile;
          // The halo ends at the chip's edges.
          std::uint32_t const above = y == 0 ? 0 : 1, below = y + tile == side ? 0 : 1;
          std::uint32_t const left = x == 0 ? 0 : halo, right = x + tile == side ? 0 : halo;
          float* const to = staged.acquire();
          staged.copy_rows(to + (1 - above) * pitch + halo - left, pitch,
                           before + std::uint64_t{y - above} * side + x - left, side, above + tile + below,
                           left + tile + right);
          staged.copy_rows(to + (tile + 2) * pitch, tile, power + std::uint64_t{y} * side + x, side, tile, tile);
          staged.commit();
        },
        [&](std::uint64_t item, float const* temperatures) {
          auto const t = static_cast<std::uint32_t>(item);
          std::uint32_t const x = t % across * tile, y = t / across * tile;
          for (std::uint32_t k = block.thread_rank(); k < parts * tile; k += block.size()) {
            std::uint32_t const column = k % tile, first = k / tile * rows;
            std::uint32_t const end = first + rows < tile ? first + rows : tile;
            // Beyond an edge it is as warm as at the edge.
            std::uint32_t const west = x + column == 0 ? 0 : 1, east = x + column + 1 == side ? 0 : 1;
            float const* cell = temperatures + (first + 1) * pitch + halo + column;
            float const* watts = temperatures + (tile + 2) * pitch + first * tile + column;
            float* to = after + std::uint64_t{y + first} * side + x + column;
            float here = *cell, north = y + first == 0 ? here : *(cell - pitch);
            for (std::uint32_t row = first; row < end; ++row, cell += pitch, watts += tile, to += side) {
              float const south = y + row + 1 == side ? here : cell[pitch];
              float const around = (north + south) + (*(cell - west) + cell[east]) - 4.0f * here;
              *to = here + (chip::heating * *watts + chip::spreading * around + chip::loss * (chip::air - here));
              north = here;
              here = south;
            }
          }
        });
  }
};

class hotspot {
 public:
  static constexpr workload_facts facts{"hotspot", workload_group::application, "cells of a tile's side",
                                        "temperatures of a chip's cells after 4 time steps of a five-point stencil"};

  hotspot(problem_size size, launch_shape given) : shape_(completed(given, {8448, 256, 64, 2})) {
    constexpr std::uint32_t sides[] = {512, 2048, 4096, 8192, 12288, 20480};
    side_ = sides[static_cast<int>(size)];
    if (shape_.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps of 32");
    }
    require_tile(shape_.tile, 4, side_, 128);
    require_shared_bytes(staged_bytes<float>(hotspot_tile::floats(shape_.tile), shape_.stages));
    // Several tiles a block, so that one is on its way while the block works on another.
    std::uint32_t const across = side_ / shape_.tile;
    if (given.blocks == 0) shape_.blocks = std::clamp(across * across / 4, 1u, shape_.blocks);
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const bytes = cells() * sizeof(float);
    return {{"temperature", bytes, buffer_use::in_out},
            {"power", bytes, buffer_use::in},
            {"next", bytes, buffer_use::scratch}};
  }
  workload_costs costs() const {
    double const n = static_cast<double>(cells()), inner_borders = side_ / shape_.tile - 1;
    double const with_halo = (side_ + 2 * inner_borders) * (side_ + 2 * hotspot_tile::halo * inner_borders);
    return {.operations = 12 * n * steps,
            .staged_bytes = (with_halo + n) * sizeof(float) * steps,
            .shared_accesses = (4 + 2.0 / hotspot_tile::rows_of_lane(shape_.tile, shape_.threads)) * n * steps,
            // Temperatures and power are read, and temperatures written.
            .device_bytes = 3 * n * sizeof(float) * steps};
  }
  void init(std::uint64_t seed, views host) const {
    float *const temperature = host.at<float>(0), *const power = host.at<float>(1);
    in_parallel(cells(), 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        temperature[i] = temperature_at(seed, i);
        power[i] = 1.0f + float_at(seed, 1, i);
      }
    });
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    std::uint64_t const across = side_ / patch;
    auto const patches = sampled_places(across * across, 4096, seed);
    comparison results("temperature");
    in_parallel(patches.size(), 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        check_patch(patches[k] % across * patch, patches[k] / across * patch, seed, host, results);
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    float *from = device.at<float>(0), *to = device.at<float>(2);
    for (int step = 0; step < steps; ++step) {
      run({shape_.blocks, shape_.threads,
           simt::stager<M, Policy, float>::shared_bytes(hotspot_tile::floats(shape_.tile), shape_.stages)},
          hotspot_kernel<M, Policy>{from, device.at<float>(1), to, side_, shape_.tile, shape_.stages});
      std::swap(from, to);
    }
  }

 private:
  /// Even, so that the last step writes to the buffer that the first one read.
  static constexpr int steps = 4;
  static constexpr std::uint64_t patch = 32;

  static float temperature_at(std::uint64_t seed, std::uint64_t cell) {
    return 320.0f + 16.0f * float_at(seed, 0, cell);
  }
  std::uint64_t cells() const { return std::uint64_t{side_} * side_; }

  /// Computes a patch with all around it that reaches it within the steps. What the patch's surroundings lack beyond
  /// that makes their outermost cells wrong, and one cell more each step, which never reaches the patch.
  void check_patch(std::uint64_t x, std::uint64_t y, std::uint64_t seed, views host, comparison& results) const {
    using chip = hotspot_chip;
    std::uint64_t const left = x - std::min<std::uint64_t>(x, steps), top = y - std::min<std::uint64_t>(y, steps);
    std::uint64_t const width = std::min<std::uint64_t>(x + patch + steps, side_) - left;
    std::uint64_t const height = std::min<std::uint64_t>(y + patch + steps, side_) - top;
    auto const cell = [&](std::uint64_t i) { return (top + i / width) * side_ + left + i % width; };
    std::vector<double> now(width * height), next(width * height);
    for (std::uint64_t i = 0; i < now.size(); ++i) now[i] = temperature_at(seed, cell(i));
    for (int step = 0; step < steps; ++step) {
      for (std::uint64_t i = 0; i < now.size(); ++i) {
        double const here = now[i];
        double const north = i < width ? here : now[i - width];
        double const south = i + width < now.size() ? now[i + width] : here;
        double const west = i % width == 0 ? here : now[i - 1];
        double const east = (i + 1) % width == 0 ? here : now[i + 1];
        next[i] = here + chip::heating * double{host.at<float>(1)[cell(i)]} +
                  chip::spreading * (north + south + west + east - 4 * here) + chip::loss * (chip::air - here);
      }
      std::swap(now, next);
    }
    // In a step the last sum rounds by 2^-24 of the temperature at most, and the three sums of neighbours together by
    // eight times that, of which `spreading` is left. Products and other sums are small beside. What was wrong before
    // a step is not more afterwards, as the factors of the five temperatures are positive and come to less than 1.
    double const highest = 336 + steps * 2 * double{chip::heating};
    double const bound = steps * 1.5 * 0x1p-24 * highest;
    for (std::uint64_t row = y; row < y + patch; ++row) {
      for (std::uint64_t column = x; column < x + patch; ++column) {
        std::uint64_t const at = row * side_ + column;
        results.near(at, host.at<float>(0)[at], now[(row - top) * width + column - left], bound);
      }
    }
  }

  launch_shape shape_;
  std::uint32_t side_;
};

}  // namespace forebay::transfer
