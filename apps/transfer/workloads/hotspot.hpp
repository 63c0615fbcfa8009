// SPDX-License-Identifier: Apache-2.0
//! \file
//! How warm the cells of a chip become, from their power and their neighbours' temperatures.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/square_tiles.hpp"

namespace forebay::transfer {

/// The chip of Rodinia's hotspot with 512 cells a side. Larger chips here have more cells of the same size: with
/// smaller cells a step of this length is unstable.
struct hotspot_chip {
  static constexpr float heating = 0.3413f;     ///< kelvins that one watt adds in a step
  static constexpr float spreading = 0.03413f;  ///< of the difference to each neighbour
  static constexpr float loss = 6.67e-5f;       ///< of the difference to the air
  static constexpr float air = 80.0f;
};

/// A tile is one of temperatures with those around it, then the power of its own cells.
struct hotspot_tile {
  FOREBAY_DEVICE static constexpr std::uint32_t floats(std::uint32_t tile) {
    return square_tiles::floats(tile) + tile * tile;
  }
};

/// One time step.
template <class M, class Policy>
struct hotspot_kernel {
  square_tiles tiles;
  float const* before;
  float const* power;
  float* after;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    using chip = hotspot_chip;
    auto const block = M::this_block();
    std::uint32_t const side = tiles.side, tile = tiles.tile, temperatures = square_tiles::floats(tile);
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), hotspot_tile::floats(tile),
                                          stages);
    auto const mine = square_tiles::part_of(tile, block.thread_rank(), block.size());
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), tiles.count(),
        [&](std::uint64_t item) {
          square_tiles::corner const at = tiles.corner_of(item);
          float* const to = staged.acquire();
          tiles.copy(staged, to, before, at);
          staged.copy_rows(to + temperatures, tile, power + tiles.offset(at), side, tile, tile);
          staged.commit();
        },
        [&](std::uint64_t item, float const* both) {
          square_tiles::corner const at = tiles.corner_of(item);
          float* const to = after + tiles.offset(at);
          tiles.for_each_quad(mine, at, both, [&](square_quad const& p) {
            quad const watts = quad::at(both + temperatures + p.row * tile + p.column);
            quad result;
            FOREBAY_UNROLL
            for (std::uint32_t i = 0; i < 4; ++i) {
              float const here = p.here.of[i];
              float const around = (p.north.of[i] + p.south.of[i]) + (p.west(i) + p.east(i)) - 4.0f * here;
              result.of[i] =
                  here + (chip::heating * watts.of[i] + chip::spreading * around + chip::loss * (chip::air - here));
            }
            result.store(to + std::uint64_t{p.row} * side + p.column);
          });
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
    square_tiles::require(shape_, side_);
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
    double const n = static_cast<double>(cells());
    return {.operations = 12 * n * steps,
            .staged_bytes = (square_tiles{side_, shape_.tile}.staged_floats() + n) * sizeof(float) * steps,
            .shared_accesses = (square_tiles::loads_of_place(shape_.tile, shape_.threads) + 0.25) * n * steps,
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
          hotspot_kernel<M, Policy>{{side_, shape_.tile}, from, device.at<float>(1), to, shape_.stages});
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
