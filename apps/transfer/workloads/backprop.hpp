// SPDX-License-Identifier: Apache-2.0
//! \file
//! One step of training for a layer of 16 units with very many inputs.
#pragma once

#include <algorithm>
#include <cmath>
#include <mutex>

#include "apps/transfer/host_data.hpp"
#include "apps/transfer/tiles.hpp"

namespace forebay::transfer {

/// The layer, and what a tile of the kernels holds.
struct backprop_layer {
  static constexpr std::uint32_t units = 16;
  static constexpr float learning_rate = 0.3f, momentum = 0.3f;  // as in Rodinia

  /// The weights of inputs, then the inputs.
  FOREBAY_DEVICE static constexpr std::uint32_t forward_floats(std::uint32_t tile) { return tile * (units + 1); }
  /// The weights, their last changes, the inputs.
  FOREBAY_DEVICE static constexpr std::uint32_t adjust_floats(std::uint32_t tile) { return tile * (2 * units + 1); }
};

/// Adds up `sum` of the block's lanes with the same rank modulo `units`; lanes below `units` get it. `of_warps` holds
/// `units` floats for each warp, which lanes may write to again after the block's next `sync()`.
template <class M>
FOREBAY_DEVICE float backprop_sum_of_block(typename M::block block, float* of_warps, float sum) {
  using layer = backprop_layer;
  auto const lanes = M::this_warp();
  std::uint32_t const lane = lanes.thread_rank(), warp = block.thread_rank() / 32, warps = block.size() / 32;
  sum += lanes.shfl(sum, lane ^ layer::units);
  if (lane < layer::units) of_warps[warp * layer::units + lane] = sum;
  block.sync();
  if (block.thread_rank() >= layer::units) return 0;
  float all = 0;
  for (std::uint32_t w = 0; w < warps; ++w) all += of_warps[w * layer::units + lane];
  return all;
}

/// A block takes whole chunks, and adds each up in an order that does not depend on the number of blocks.
template <class M, class Policy>
struct backprop_forward_kernel {
  using layer = backprop_layer;

  float const* inputs;
  float const* weights;
  float* sums;
  std::uint32_t chunks;
  std::uint32_t chunk;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    using stager = simt::stager<M, Policy, float>;
    auto const block = M::this_block();
    std::byte* const shared = &block.template shared<std::byte>();
    stager staged(block, shared, layer::forward_floats(tile), stages);
    std::byte* const behind = shared + stager::shared_bytes(layer::forward_floats(tile), stages);
    auto* const of_warps = reinterpret_cast<float*>(behind);
    // Item k is piece k % pieces of the block's (k / pieces)-th chunk.
    std::uint32_t const pieces = chunk / tile;
    std::uint32_t const mine = chunks > block.rank ? (chunks - 1 - block.rank) / block_count<M>() + 1 : 0;
    float sum = 0;
    for_each_tile(
        staged, stages, 0, 1, std::uint64_t{mine} * pieces,
        [&](std::uint64_t item) {
          auto const i = static_cast<std::uint32_t>(item);
          std::uint64_t const first = std::uint64_t{chunk_of(i / pieces)} * chunk + i % pieces * tile;
          float* const to = staged.acquire();
          staged.copy(to, weights + first * layer::units, tile * layer::units);
          staged.copy(to + tile * layer::units, inputs + first, tile);
          staged.commit();
        },
        [&](std::uint64_t item, float const* weight) {
          float const* const input = weight + tile * layer::units;
          for (std::uint32_t i = block.thread_rank(); i < tile * layer::units; i += block.size()) {
            sum += input[i / layer::units] * weight[i];
          }
          auto const i = static_cast<std::uint32_t>(item);
          if (i % pieces + 1 != pieces) return;
          float const all = backprop_sum_of_block<M>(block, of_warps, sum);
          if (block.thread_rank() < layer::units) sums[chunk_of(i / pieces) * layer::units + block.thread_rank()] = all;
          sum = 0;
        });
  }
  FOREBAY_DEVICE static std::uint32_t chunk_of(std::uint32_t turn) {
    return M::this_block().rank + turn * block_count<M>();
  }
};

/// One block adds up the sums of all chunks.
template <class M, class Policy>
struct backprop_activate_kernel {
  using layer = backprop_layer;

  float const* sums;
  float* results;
  std::uint32_t chunks;
  std::uint32_t tile;  ///< chunks at a time
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    using stager = simt::stager<M, Policy, float>;
    auto const block = M::this_block();
    std::byte* const shared = &block.template shared<std::byte>();
    stager staged(block, shared, layer::forward_floats(tile), stages);
    std::byte* const behind = shared + stager::shared_bytes(layer::forward_floats(tile), stages);
    auto* const of_warps = reinterpret_cast<float*>(behind);
    float sum = 0;
    for_each_tile(
        staged, stages, 0, 1, (chunks + tile - 1) / tile,
        [&](std::uint64_t item) {
          auto const first = static_cast<std::uint32_t>(item) * tile;
          staged.copy(staged.acquire(), sums + first * layer::units, count_from(first) * layer::units);
          staged.commit();
        },
        [&](std::uint64_t item, float const* part) {
          std::uint32_t const count = count_from(static_cast<std::uint32_t>(item) * tile) * layer::units;
          for (std::uint32_t i = block.thread_rank(); i < count; i += block.size()) sum += part[i];
        });
    float const all = backprop_sum_of_block<M>(block, of_warps, sum);
    if (block.thread_rank() < layer::units) results[block.thread_rank()] = 1.0f / (1.0f + std::exp(-all));
  }
  FOREBAY_DEVICE std::uint32_t count_from(std::uint32_t first) const {
    return chunks - first < tile ? chunks - first : tile;
  }
};

template <class M, class Policy>
struct backprop_adjust_kernel {
  using layer = backprop_layer;

  float const* inputs;
  float* weights;
  float* changes;
  float const* targets;
  float const* results;
  std::uint64_t count;
  std::uint32_t tile;
  std::uint32_t stages;

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    simt::stager<M, Policy, float> staged(block, &block.template shared<std::byte>(), layer::adjust_floats(tile),
                                          stages);
    // A lane always works for the same unit.
    std::uint32_t const unit = block.thread_rank() % layer::units;
    float const result = results[unit];
    float const rate = layer::learning_rate * ((targets[unit] - result) * result * (1.0f - result));
    for_each_tile(
        staged, stages, block.rank, block_count<M>(), count / tile,
        [&](std::uint64_t t) {
          float* const to = staged.acquire();
          staged.copy(to, weights + t * tile * layer::units, tile * layer::units);
          staged.copy(to + tile * layer::units, changes + t * tile * layer::units, tile * layer::units);
          staged.copy(to + 2 * tile * layer::units, inputs + t * tile, tile);
          staged.commit();
        },
        [&](std::uint64_t t, float const* weight) {
          float const* const last_change = weight + tile * layer::units;
          float const* const input = last_change + tile * layer::units;
          std::uint64_t const first = t * tile * layer::units;
          for (std::uint32_t i = block.thread_rank(); i < tile * layer::units; i += block.size()) {
            float const change = rate * input[i / layer::units] + layer::momentum * last_change[i];
            weights[first + i] = weight[i] + change;
            changes[first + i] = change;
          }
        });
  }
};

/// Three kernels: sums of inputs by weights, for chunks of inputs; their sums, and what the units make of them; changes
/// of the weights.
class backprop {
  using layer = backprop_layer;

 public:
  static constexpr workload_facts facts{"backprop", workload_group::application, "inputs",
                                        "forward pass and weight changes of a layer of 16 units"};

  backprop(problem_size size, launch_shape given) : shape_(completed(given, {1024, 256, 128, 2})) {
    constexpr unsigned log2_counts[] = {15, 18, 21, 22, 25, 26};
    log2_count_ = log2_counts[static_cast<int>(size)];
    count_ = std::uint64_t{1} << log2_count_;
    chunk_ = static_cast<std::uint32_t>(std::max<std::uint64_t>(1024, count_ / 4096));
    require_tile(shape_.tile, 4, chunk_, 1024);
    if (shape_.threads % 32 != 0) {
      throw refused_input("--threads", std::to_string(shape_.threads), "must be whole warps of 32");
    }
    require_shared_bytes(staged_bytes<float>(layer::adjust_floats(shape_.tile), shape_.stages) + sums_bytes());
    if (given.blocks == 0) shape_.blocks = std::min(shape_.blocks, chunks() / 2);
  }

  launch_shape shape() const { return shape_; }
  std::vector<buffer> buffers() const {
    std::uint64_t const weight_bytes = count_ * units * sizeof(float);
    return {{"inputs", count_ * sizeof(float), buffer_use::in},
            {"weights", weight_bytes, buffer_use::in_out},
            {"changes", weight_bytes, buffer_use::in_out},
            {"targets", units * sizeof(float), buffer_use::in},
            {"results", units * sizeof(float), buffer_use::out},
            {"sums", std::uint64_t{chunks()} * units * sizeof(float), buffer_use::scratch}};
  }
  workload_costs costs() const {
    double const inputs = static_cast<double>(count_), weights = inputs * units, sums = double{units} * chunks();
    double const in_warps = sums * shape_.threads / 32;
    return {.operations = 2 * weights + sums + 4 * weights,
            .staged_bytes = (2 * inputs + 3 * weights + sums) * sizeof(float),
            .shared_accesses = 2 * weights + 2 * in_warps + sums + 3 * weights};
  }
  void init(std::uint64_t seed, views host) const {
    fill_floats(host.at<float>(0), count_, seed, 0);
    float *const weights = host.at<float>(1), *const changes = host.at<float>(2);
    in_parallel(count_ * units, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t i = begin; i < end; ++i) {
        weights[i] = weight_at(seed, i);
        changes[i] = change_at(seed, i);
      }
    });
    for (std::uint32_t unit = 0; unit < units; ++unit) host.at<float>(3)[unit] = 0.5f + 0.5f * float_at(seed, 3, unit);
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    std::string const wrong_result = wrong_results(seed, host);
    if (!wrong_result.empty()) return wrong_result;
    float const *const inputs = host.at<float>(0), *const targets = host.at<float>(3), *const found = host.at<float>(4);
    comparison weights("weights"), changes("changes");
    auto const places = sampled_places(count_ * units, 1 << 20, seed);
    in_parallel(places.size(), 1 << 14, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        std::uint64_t const at = places[k];
        // From the results that were found, since these are right, and are what the kernel has.
        double const result = found[at % units];
        double const delta = (targets[at % units] - result) * result * (1 - result);
        double const change =
            layer::learning_rate * delta * inputs[at / units] + layer::momentum * double{change_at(seed, at)};
        // With delta, the first product has six roundings. The second one and both sums have one each. Delta is 1/4 at
        // most, an input 1, a weight or an earlier change `scale`.
        double const most = 0.25 * double{layer::learning_rate} + (1 + double{layer::momentum}) * double{scale()};
        weights.near(at, host.at<float>(1)[at], weight_at(seed, at) + change, 8 * 0x1p-24 * most);
        changes.near(at, host.at<float>(2)[at], change, 8 * 0x1p-24 * most);
      }
    });
    return weights.result().empty() ? changes.result() : weights.result();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    using M = typename Run::machine;
    using stager = simt::stager<M, Policy, float>;
    float* const inputs = device.at<float>(0);
    float *const weights = device.at<float>(1), *const changes = device.at<float>(2);
    float *const targets = device.at<float>(3), *const results = device.at<float>(4), *const sums = device.at<float>(5);
    std::uint32_t const tile = shape_.tile, stages = shape_.stages;
    std::uint32_t const forward_bytes = stager::shared_bytes(layer::forward_floats(tile), stages) + sums_bytes();
    run({shape_.blocks, shape_.threads, forward_bytes},
        backprop_forward_kernel<M, Policy>{inputs, weights, sums, chunks(), chunk_, tile, stages});
    run({1, shape_.threads, forward_bytes}, backprop_activate_kernel<M, Policy>{sums, results, chunks(), tile, stages});
    run({shape_.blocks, shape_.threads, stager::shared_bytes(layer::adjust_floats(tile), stages)},
        backprop_adjust_kernel<M, Policy>{inputs, weights, changes, targets, results, count_, tile, stages});
  }

 private:
  static constexpr std::uint32_t units = layer::units;

  /// About 1 / sqrt(inputs). So the sums are about 1, and the units are not all fully on or off.
  float scale() const { return std::ldexp(1.0f, -static_cast<int>(log2_count_ / 2)); }
  float weight_at(std::uint64_t seed, std::uint64_t i) const { return scale() * float_at(seed, 1, i); }
  float change_at(std::uint64_t seed, std::uint64_t i) const { return scale() * float_at(seed, 2, i); }
  std::uint32_t chunks() const { return static_cast<std::uint32_t>(count_ / chunk_); }

  /// Behind the stager: a sum of each warp for each unit.
  std::uint32_t sums_bytes() const { return shape_.threads / 32 * units * static_cast<std::uint32_t>(sizeof(float)); }

  std::string wrong_results(std::uint64_t seed, views host) const {
    double sums[units] = {};
    std::mutex mutex;
    in_parallel(count_, 1 << 12, [&](std::uint64_t begin, std::uint64_t end) {
      double part[units] = {};
      for (std::uint64_t i = begin; i < end; ++i) {
        double const input = host.at<float>(0)[i];
        for (std::uint32_t unit = 0; unit < units; ++unit) part[unit] += input * weight_at(seed, i * units + unit);
      }
      std::lock_guard const lock(mutex);
      for (std::uint32_t unit = 0; unit < units; ++unit) sums[unit] += part[unit];
    });
    // A lane of the first kernel and one of the second add their terms one after the other. What they have then is part
    // of a sum that is 1/2 at most in the root mean square. Rounding errors have random signs: in the root mean square
    // that makes 2^-24 sqrt(additions) / 4 at most. Sixteen times that, of which a unit passes on a quarter at most,
    // and 4 for the unit's own roundings.
    double const lanes_of_unit = shape_.threads / static_cast<double>(units);
    double const additions = (chunk_ + chunks()) / lanes_of_unit + lanes_of_unit;
    double const bound = (std::sqrt(additions) + 4) * 0x1p-24;
    comparison results("results");
    for (std::uint32_t unit = 0; unit < units; ++unit) {
      results.near(unit, host.at<float>(4)[unit], 1 / (1 + std::exp(-sums[unit])), bound);
    }
    return results.result();
  }

  launch_shape shape_;
  unsigned log2_count_;
  std::uint64_t count_;
  std::uint32_t chunk_;
};

}  // namespace forebay::transfer
