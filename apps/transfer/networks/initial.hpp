// SPDX-License-Identifier: Apache-2.0
//! \file
//! What networks start from.
#pragma once

#include "apps/transfer/networks/passes.hpp"

namespace forebay::transfer {

/// Weight `i` of a convolution. Weights of channels that only pad are 0, and stay so.
inline float initial_weight(network const& n, layer const& l, std::uint64_t seed, std::uint64_t i) {
  std::uint64_t const row = i / n.depth(l), channel = i % n.tensors()[l.in].channels;
  return row < l.outputs && channel < l.inputs ? float_at(seed, 1, l.weights + i) * l.weight_bound : 0;
}
/// Scales, then shifts.
inline float initial_parameter(network const& n, layer const& l, std::uint64_t seed, std::uint64_t i) {
  std::uint64_t const channels = n.tensors()[l.out].channels;
  if (i % channels >= l.outputs) return 0;
  float const random = float_at(seed, 2, l.parameters + i) / 8;
  if (i >= channels) return random;
  return l.normalised ? l.scale * (1 + random) : 1;
}
inline float initial_image(tensor const& t, std::uint64_t seed, std::uint64_t i) {
  std::uint64_t const before = t.first;
  if (i < before || i >= before + t.floats() || (i - before) % t.channels == 3) return 0;
  return t.at(static_cast<std::uint32_t>((i - before) / t.channels)).inside ? float_at(seed, 3, i) : 0;
}
inline float initial_target(network_plan const& plan, layer const& l, std::uint64_t seed, std::uint64_t i) {
  if (plan.detects) return float_at(seed, 4, l.targets + i);
  return static_cast<float>(bits_at(seed, 4, l.targets + i) % l.outputs);
}

}  // namespace forebay::transfer
