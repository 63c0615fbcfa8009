// SPDX-License-Identifier: Apache-2.0
//! \file
//! Adds a multiple of one vector to another, a hundred times.
#pragma once

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

inline constexpr float saxpy_alpha = 0.7f;
inline constexpr int saxpy_steps = 100;

template <class M, class Policy>
struct saxpy_kernel {
  float const* a;
  float* b;
  std::uint64_t count;
  std::uint32_t tile;  ///< of each vector
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), 2 * tile, stages);
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), count / tile,
        [&](std::uint64_t t) {
          float* const both = staged.acquire();
          staged.copy(both, a + t * tile, tile);
          staged.copy(both + tile, b + t * tile, tile);
          staged.commit();
        },
        [&](std::uint64_t t, float const* both) {
          struct pair {
            float x, sum;
          };
          step_each(
              block, tile, saxpy_steps, [&](std::uint32_t i) { return pair{both[i], both[tile + i]}; },
              [](pair& p) { p.sum += saxpy_alpha * p.x; },
              [&](std::uint32_t i, pair const& p) { b[t * tile + i] = p.sum; });
        });
  }
};

class saxpy {
 public:
  static constexpr workload_facts facts{"saxpy", workload_group::micro, "floats of each vector",
                                        "b += alpha a, a hundred times for each element of two vectors"};

  saxpy(problem_size size, launch_shape given)
      : shape_(completed(
            given, size == problem_size::tiny ? launch_shape{256, 256, 2048, 2} : launch_shape{2112, 512, 4096, 2})) {
    constexpr unsigned log2_counts[] = {19, 22, 25, 27, 30, 32};
    count_ = std::uint64_t{1} << log2_counts[static_cast<int>(size)];
    require_tile(shape_.tile, 4, count_, shared_bytes_max / 8);
    require_shared_bytes(staged_bytes<float>(2 * shape_.tile, shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    return {{"a", count_ * sizeof(float), buffer_use::in}, {"b", count_ * sizeof(float), buffer_use::in_out}};
  }
  workload_costs costs() const {
    double const n = static_cast<double>(count_);
    return {.operations = 2.0 * steps * n, .staged_bytes = 2 * n * sizeof(float), .shared_accesses = 2 * n};
  }
  void init(std::uint64_t seed, views host) const {
    fill_floats(host.at<float>(0), count_, seed, 0);
    fill_floats(host.at<float>(1), count_, seed, 1);
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    comparison results("b");
    float const* const found = host.at<float>(1);
    in_parallel(count_, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        double const expected = float_at(seed, 1, i) + steps * double{alpha} * float_at(seed, 0, i);
        // Each step rounds the product and the sum, which are at most 1 + 100 alpha.
        results.near(i, found[i], expected, 2 * steps * 0x1p-24 * (1 + steps * double{alpha}));
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    run({shape_.blocks, shape_.threads, simt::stager<M, Policy, float>::shared_bytes(2 * shape_.tile, shape_.stages)},
        saxpy_kernel<M, Policy>{device.at<float>(0), device.at<float>(1), count_, shape_.tile, shape_.stages});
  }

 private:
  static constexpr float alpha = saxpy_alpha;
  static constexpr int steps = saxpy_steps;

  launch_shape shape_;
  std::uint64_t count_;
};

}  // namespace forebay::transfer
