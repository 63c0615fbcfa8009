// SPDX-License-Identifier: Apache-2.0
//! \file
//! Each element of a vector goes a hundred times through x = 1.1 x + 1.1.
#pragma once

#include <cmath>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

inline constexpr float vector_seq_factor = 1.1f;
inline constexpr int vector_seq_steps = 100;

template <class M, class Policy>
struct vector_seq_kernel {
  float* vector;
  std::uint64_t count;
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
          step_each(
              block, tile, vector_seq_steps, [&](std::uint32_t i) { return x[i]; },
              [](float& value) { value = vector_seq_factor * value + vector_seq_factor; },
              [&](std::uint32_t i, float value) { vector[t * tile + i] = value; });
        });
  }
};

class vector_seq {
 public:
  static constexpr workload_facts facts{"vector_seq", workload_group::micro, "floats",
                                        "x = 1.1 x + 1.1, a hundred times for each element of a vector"};

  vector_seq(problem_size size, launch_shape given)
      : shape_(completed(
            given, size == problem_size::tiny ? launch_shape{256, 256, 4096, 2} : launch_shape{2112, 512, 8192, 2})) {
    constexpr unsigned log2_counts[] = {20, 23, 26, 28, 30, 33};
    count_ = std::uint64_t{1} << log2_counts[static_cast<int>(size)];
    require_tile(shape_.tile, 4, count_, shared_bytes_max / 4);
    require_shared_bytes(staged_bytes<float>(shape_.tile, shape_.stages));
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const { return {{"x", count_ * sizeof(float), buffer_use::in_out}}; }
  workload_costs costs() const {
    double const n = static_cast<double>(count_);
    return {.operations = 2.0 * steps * n, .staged_bytes = n * sizeof(float), .shared_accesses = n};
  }
  void init(std::uint64_t seed, views host) const { fill_floats(host.at<float>(0), count_, seed, 0); }

  std::string mismatch(std::uint64_t seed, views host) const {
    // x_n = a^n x + a + a^2 + ... + a^n, with a as the kernel has it.
    double const a = factor;
    double const growth = std::pow(a, steps), added = a * (growth - 1) / (a - 1);
    comparison results("x");
    float const* const found = host.at<float>(0);
    in_parallel(count_, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        double const expected = growth * float_at(seed, 0, i) + added;
        // Each step rounds twice at most, by half an ulp of what is there. All of it is less than the last result.
        results.near(i, found[i], expected, 2 * steps * 0x1p-24 * (growth + added));
      }
    });
    return results.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    run({shape_.blocks, shape_.threads, simt::stager<M, Policy, float>::shared_bytes(shape_.tile, shape_.stages)},
        vector_seq_kernel<M, Policy>{device.at<float>(0), count_, shape_.tile, shape_.stages});
  }

 private:
  static constexpr float factor = vector_seq_factor;
  static constexpr int steps = vector_seq_steps;

  launch_shape shape_;
  std::uint64_t count_;
};

}  // namespace forebay::transfer
