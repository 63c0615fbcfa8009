// SPDX-License-Identifier: Apache-2.0
//! \file
//! Each element of a vector becomes that of another place of its tile, a hundred times through x = 1.1 x + 1.1.
#pragma once

#include <bit>
#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

inline constexpr float vector_rand_factor = 1.1f;
inline constexpr int vector_rand_steps = 100;

/// Permutes the places of a tile, whose size is a power of two; each tile in its own way. Each step of `source` is a
/// bijection, so every element is read once. Sources of neighbours are in random banks of shared memory. With an odd
/// factor alone, those of a warp would all be in different banks.
struct vector_rand_places {
  std::uint32_t mask;
  std::uint32_t half_the_bits;

  explicit vector_rand_places(std::uint32_t tile)
      : mask(tile - 1), half_the_bits(static_cast<std::uint32_t>(std::bit_width(tile - 1)) / 2) {}
  FOREBAY_DEVICE static std::uint32_t shift_of(std::uint64_t tile) {
    constexpr std::uint64_t seed = 0x76656374;
    return static_cast<std::uint32_t>(apps::mix64(seed + tile));
  }
  FOREBAY_DEVICE std::uint32_t source(std::uint32_t place, std::uint32_t shift) const {
    std::uint32_t const x = (place * 0x9e3779b1u + shift) & mask;
    return ((x ^ x >> half_the_bits) * 0xb5297a4du) & mask;
  }
};

template <class M, class Policy>
struct vector_rand_kernel {
  float* vector;
  std::uint64_t count;
  vector_rand_places places;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), tile, stages);
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), count / tile,
        [&](std::uint64_t t) {
          staged.copy(staged.acquire(), vector + t * tile, tile);
          staged.commit();
        },
        [&](std::uint64_t t, float const* x) {
          std::uint32_t const shift = places.shift_of(t);
          step_each(
              block, tile, vector_rand_steps, [&](std::uint32_t i) { return x[places.source(i, shift)]; },
              [](float& value) { value = vector_rand_factor * value + vector_rand_factor; },
              [&](std::uint32_t i, float value) { vector[t * tile + i] = value; });
        });
  }
};

class vector_rand {
 public:
  static constexpr workload_facts facts{"vector_rand", workload_group::micro, "floats",
                                        "vector_seq, where elements come from random places of their tile"};

  vector_rand(problem_size size, launch_shape given) {
    constexpr unsigned log2_counts[] = {20, 23, 26, 28, 30, 33};
    count_ = std::uint64_t{1} << log2_counts[static_cast<int>(size)];
    if (given.tile == 0) given.tile = 4096;
    auto const blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(count_ / given.tile, 8448));
    shape_ = completed(given, {blocks, 256, given.tile, 2});
    // What divides the count is a power of two.
    require_tile(shape_.tile, 4, count_, shared_bytes_max / 4);
    require_shared_bytes(staged_bytes<float>(shape_.tile, shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const { return {{"x", count_ * sizeof(float), buffer_use::in_out}}; }
  workload_costs costs() const {
    double const n = static_cast<double>(count_);
    // To find a source takes seven operations.
    return {.operations = (2.0 * steps + 7) * n, .staged_bytes = n * sizeof(float), .shared_accesses = n};
  }
  void init(std::uint64_t seed, views host) const { fill_floats(host.at<float>(0), count_, seed, 0); }

  std::string mismatch(std::uint64_t seed, views host) const {
    // As in vector_seq.
    double const a = vector_rand_factor;
    double const growth = std::pow(a, steps), added = a * (growth - 1) / (a - 1);
    comparison results("x");
    float const* const found = host.at<float>(0);
    vector_rand_places const places(shape_.tile);
    in_parallel(count_, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        std::uint64_t const tile = i / shape_.tile;
        auto const place = static_cast<std::uint32_t>(i % shape_.tile);
        double const from = float_at(seed, 0, tile * shape_.tile + places.source(place, places.shift_of(tile)));
        // Each step rounds twice at most, by half an ulp of what is there. All of it is less than the last result. An
        // element of a wrong place passes only if it is within 3e-4 of the right one: one of 7000 is.
        results.near(i, found[i], growth * from + added, 2 * steps * 0x1p-24 * (growth + added));
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    run({shape_.blocks, shape_.threads, simt::stager<M, Policy, float>::shared_bytes(shape_.tile, shape_.stages)},
        vector_rand_kernel<M, Policy>{device.at<float>(0), count_, vector_rand_places(shape_.tile), shape_.tile,
                                      shape_.stages});
  }

 private:
  static constexpr int steps = vector_rand_steps;

  launch_shape shape_;
  std::uint64_t count_;
};

}  // namespace forebay::transfer
