// SPDX-License-Identifier: Apache-2.0
//! \file
//! What networks start from, and the check of what their kernels leave: each layer's results, at sampled places, from
//! what was found in its inputs. So errors do not add up from layer to layer, and bounds stay tight.
#pragma once

#include <cmath>
#include <string>
#include <utility>

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

/// What the exact result is, and how far from it the one with rounding errors may be.
struct estimate {
  double value = 0;
  double bound = 0;
};
inline constexpr double half_ulp = 0x1p-24;

/// A sum of products. Each of n additions rounds by half an ulp of a sum that is at most that of all absolute values:
/// n times that is certain. Errors of random signs add like the root of n; sixteen times that is enough for long sums.
class product_sum {
 public:
  void add(double a, double b) {
    value_ += a * b;
    magnitude_ += std::abs(a * b);
    ++count_;
  }
  estimate result() const {
    double const roundings = std::min(static_cast<double>(count_) + 2, 16 * std::sqrt(static_cast<double>(count_)));
    return {value_, roundings * half_ulp * magnitude_};
  }

 private:
  double value_ = 0, magnitude_ = 0;
  std::uint64_t count_ = 0;
};

class network_check {
 public:
  network_check(network_plan const& plan, std::uint64_t seed, network_memory const& found)
      : plan_(plan), n_(plan.n), seed_(seed), found_(found) {}

  /// "" if all is right.
  std::string mismatch() const {
    for (layer const& l : n_.layers()) {
      if (std::string text = forward(l); !text.empty()) return text;
    }
    if (!plan_.training) return "";
    for (std::uint32_t t = 1; t < n_.tensors().size(); ++t) {
      if (std::string text = gradient(t); !text.empty()) return text;
    }
    for (layer const& l : n_.layers()) {
      if (l.kind != layer_kind::convolution) continue;
      if (std::string text = step(l); !text.empty()) return text;
    }
    return "";
  }

 private:
  /// An element of a plane of a tensor.
  struct element {
    tensor::place at;
    std::uint32_t plane, pixel, channel;
  };
  static element element_of(tensor const& t, std::uint64_t i) {
    auto const pixel = static_cast<std::uint32_t>(i % t.floats() / t.channels);
    return {t.at(pixel), static_cast<std::uint32_t>(i / t.floats()), pixel, static_cast<std::uint32_t>(i % t.channels)};
  }
  float const* values(std::uint32_t t) const { return found_.values(n_, t); }
  float const* gradients(std::uint32_t t) const { return found_.gradients + n_.tensors()[t].first; }
  float const* sums(layer const& l) const { return found_.sums + plan_.out(l).first; }
  float const* deltas(layer const& l) const { return found_.deltas + plan_.out(l).first; }
  float weight(layer const& l, std::uint64_t i) const { return initial_weight(n_, l, seed_, i); }
  float scale(layer const& l, std::uint32_t channel) const { return initial_parameter(n_, l, seed_, channel); }
  float shift(layer const& l, std::uint32_t channel) const {
    return initial_parameter(n_, l, seed_, plan_.out(l).channels + channel);
  }

  /// Compares `found[i]` with `expected(i)` at some places, the first and the last of `count` among them. `terms`: how
  /// much work one is. `first`: the index in its buffer of `found[0]`.
  template <class F>
  std::string compare(char const* buffer, std::uint64_t first, float const* found, std::uint64_t count,
                      std::uint64_t terms, F&& expected) const {
    comparison results(buffer);
    auto const places = sampled_places(count, std::clamp<std::uint64_t>((1 << 20) / terms, 8, 96), seed_ + first);
    in_parallel(places.size(), (1 << 20) / terms + 1, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::uint64_t k = begin; k < end; ++k) {
        estimate const e = expected(places[k]);
        results.near(first + places[k], found[places[k]], e.value, e.bound);
      }
    });
    return results.result();
  }
  /// The same for each plane of a tensor, whose halo must be 0.
  template <class F>
  std::string compare_tensor(char const* buffer, tensor const& t, float const* found, std::uint64_t terms,
                             F&& expected) const {
    std::string text;
    for (std::uint64_t plane = 0; plane < t.planes && text.empty(); ++plane) {
      std::uint64_t const begin = plane * t.plane_pitch() * t.channels;
      text = compare(buffer, t.first + begin, found + begin, t.floats(), terms, [&](std::uint64_t i) {
        element const e = element_of(t, plane * t.floats() + i);
        return e.at.inside ? expected(e) : estimate{};
      });
    }
    return text;
  }

  std::string forward(layer const& l) const {
    tensor const &in = plan_.in(l), &out = plan_.out(l);
    if (l.kind == layer_kind::head) return head_results(l);
    if (l.kind != layer_kind::convolution) {
      return compare_tensor("activations", out, values(l.out), l.kind == layer_kind::average_pool ? in.pixels() : 9,
                            [&](element const& e) { return moved(l, e); });
    }
    tap_list const taps = tap_list::of(l, in);
    auto const sum_of = [&](element const& e) { return convolved(l, taps, e); };
    if (plan_.training) {
      std::string const text = compare_tensor("sums", out, sums(l), n_.depth(l), sum_of);
      if (!text.empty()) return text;
    }
    return compare_tensor("activations", out, values(l.out), n_.depth(l), [&](element const& e) {
      estimate const sum = sum_of(e);
      double const scaled = scale(l, e.channel) * sum.value, shifted = scaled + shift(l, e.channel);
      double const shortcut = l.other == no_tensor ? 0.0 : values(l.other)[e.pixel * out.channels + e.channel];
      double const inner = shifted + (l.adds_first ? shortcut : 0);
      double const value = (inner > 0 ? inner : l.slope * inner) + (l.adds_first ? 0 : shortcut);
      double const magnitude = std::abs(scaled) + std::abs(shift(l, e.channel)) + std::abs(shortcut);
      return estimate{value, std::abs(scale(l, e.channel)) * sum.bound + 4 * half_ulp * magnitude};
    });
  }
  estimate convolved(layer const& l, tap_list const& taps, element const& e) const {
    tensor const& in = plan_.in(l);
    product_sum sum;
    std::uint64_t const row = std::uint64_t{e.channel} * n_.depth(l);
    for (std::uint32_t t = 0; t < taps.count; ++t) {
      float const* const from = values(l.in) + (std::int64_t{e.pixel} + taps.offset[t]) * in.channels;
      for (std::uint32_t c = 0; c < in.channels; ++c) sum.add(from[c], weight(l, row + t * in.channels + c));
    }
    return sum.result();
  }
  /// A layer that is no convolution and no head.
  estimate moved(layer const& l, element const& e) const {
    tensor const& in = plan_.in(l);
    auto const value = [&](std::uint32_t y, std::uint32_t x) -> double {
      return values(l.in)[in.pixel(e.at.image, y, x) * in.channels + e.channel];
    };
    if (l.kind == layer_kind::phases) return {value(2 * e.at.y + e.plane / 2, 2 * e.at.x + e.plane % 2)};
    if (l.kind == layer_kind::max_pool) {
      double most = -INFINITY;
      for_window(l, e.at.y, e.at.x, [&](std::uint32_t y, std::uint32_t x) { most = std::max(most, value(y, x)); });
      return {most};
    }
    if (l.kind == layer_kind::average_pool) {
      product_sum sum;
      for (std::uint32_t y = 0; y < in.height; ++y) {
        for (std::uint32_t x = 0; x < in.width; ++x) sum.add(value(y, x), 1.0 / (in.height * in.width));
      }
      return {sum.result().value, sum.result().bound + half_ulp * std::abs(sum.result().value)};
    }
    if (e.channel < in.channels) return {value(e.at.y / 2, e.at.x / 2)};
    return {values(l.other)[e.pixel * plan_.other(l).channels + e.channel - in.channels]};
  }
  /// Calls `f(y, x)` for the pixels of a pool's window that lie in the image.
  template <class F>
  void for_window(layer const& l, std::uint32_t out_y, std::uint32_t out_x, F&& f) const {
    int const before = l.size == 3 ? 1 : 0, size = static_cast<int>(l.size);
    int const y0 = static_cast<int>(out_y * l.stride) - before, x0 = static_cast<int>(out_x * l.stride) - before;
    int const height = static_cast<int>(plan_.in(l).height), width = static_cast<int>(plan_.in(l).width);
    for (int y = std::max(y0, 0); y < std::min(y0 + size, height); ++y) {
      for (int x = std::max(x0, 0); x < std::min(x0 + size, width); ++x) {
        f(static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(x));
      }
    }
  }

  std::string head_results(layer const& l) const {
    tensor const& in = plan_.in(l);
    std::uint64_t const of_cell = plan_.training ? 1 : l.outputs;
    auto const expected = [&](std::uint64_t i) {
      std::uint64_t const cell = i / of_cell, image = cell / (in.height * in.width);
      std::uint64_t const y = cell / in.width % in.height, x = cell % in.width;
      element e{{}, 0, static_cast<std::uint32_t>(image * in.image_pixels() + y * in.pitch() + x), 0};
      e.at = in.at(e.pixel);
      e.channel = static_cast<std::uint32_t>(i % of_cell);
      return plan_.training ? loss(l, e) : told(l, e);
    };
    return compare(plan_.training ? "losses" : "outputs", l.results, found_.results + l.results, in.cells() * of_cell,
                   plan_.detects ? 1 : l.outputs, expected);
  }
  /// Exponentials are off by two ulps, and by the rounding of their argument; 32 lanes add up to 32 of them each.
  double softmax_error(float const* logits, std::uint32_t count) const {
    auto const [least, most] = std::minmax_element(logits, logits + count);
    return half_ulp * (64 + 4 * (double{*most} - *least));
  }
  /// The greatest logit, and the sum of the exponentials of all less that.
  std::pair<double, double> softmax(float const* logits, std::uint32_t count) const {
    double const most = *std::max_element(logits, logits + count);
    double sum = 0;
    for (std::uint32_t c = 0; c < count; ++c) sum += std::exp(logits[c] - most);
    return {most, sum};
  }
  float const* numbers(layer const& l, element const& e) const {
    return values(l.in) + std::uint64_t{e.pixel} * plan_.in(l).channels;
  }
  std::uint64_t cell_of(layer const& l, element const& e) const {
    return (std::uint64_t{e.at.image} * plan_.in(l).height + e.at.y) * plan_.in(l).width + e.at.x;
  }
  estimate told(layer const& l, element const& e) const {
    float const* const x = numbers(l, e);
    if (!plan_.detects) {
      auto const [most, sum] = softmax(x, l.outputs);
      double const p = std::exp(x[e.channel] - most) / sum;
      return {p, p * softmax_error(x, l.outputs) + 1e-37};
    }
    std::uint32_t const of_box = e.channel % plan_.box;
    if (of_box == 2 || of_box == 3) return {x[e.channel]};
    double const likely = 1 / (1 + std::exp(-double{x[e.channel]}));
    return {likely, 16 * half_ulp * likely + 1e-37};
  }
  estimate loss(layer const& l, element const& e) const {
    float const* const x = numbers(l, e);
    std::uint64_t const cell = cell_of(l, e);
    if (!plan_.detects) {
      auto const [most, sum] = softmax(x, l.outputs);
      double const label = x[static_cast<std::uint32_t>(initial_target(plan_, l, seed_, cell))];
      double const rounded = 4 * half_ulp * (std::log(sum) + std::abs(label - most));
      return {std::log(sum) - (label - most), softmax_error(x, l.outputs) + rounded};
    }
    product_sum sum;
    for (std::uint32_t c = 0; c < l.outputs; ++c) {
      double const off = double{x[c]} - initial_target(plan_, l, seed_, cell * l.outputs + c);
      sum.add(off / 2, off);
    }
    // The differences are rounded too, and squared.
    return {sum.result().value, sum.result().bound + 2 * half_ulp * sum.result().value};
  }
  estimate head_gradient(layer const& l, element const& e) const {
    float const* const x = numbers(l, e);
    std::uint64_t const cell = cell_of(l, e);
    double const share = 1 / static_cast<double>(plan_.in(l).cells());
    if (e.channel >= l.outputs) return {};
    if (plan_.detects) {
      double const off = double{x[e.channel]} - initial_target(plan_, l, seed_, cell * l.outputs + e.channel);
      return {off * share, 4 * half_ulp * std::abs(off * share)};
    }
    auto const [most, sum] = softmax(x, l.outputs);
    double const p = std::exp(x[e.channel] - most) / sum;
    double const wanted = e.channel == static_cast<std::uint32_t>(initial_target(plan_, l, seed_, cell)) ? 1 : 0;
    return {(p - wanted) * share, (p * softmax_error(x, l.outputs) + 4 * half_ulp * std::abs(p - wanted)) * share};
  }

  /// The gradient of a tensor is the sum of what all layers that read it hand back.
  std::string gradient(std::uint32_t t) const {
    tensor const& shape = n_.tensors()[t];
    if (!shape.differentiable) return "";
    std::uint64_t terms = 1;
    for (layer const& l : n_.layers()) {
      if (l.in == t) terms += std::uint64_t{l.size} * l.size * plan_.out(l).channels;
    }
    return compare_tensor("gradients", shape, gradients(t), terms, [&](element const& e) {
      estimate all;
      double magnitude = 0;
      auto const add = [&](estimate const& part) {
        all.value += part.value;
        all.bound += part.bound;
        magnitude += std::abs(part.value);
      };
      for (layer const& l : n_.layers()) {
        if (l.in == t) add(handed_back(l, e));
        if (l.other == t) add(handed_to_other(l, e));
      }
      all.bound += 4 * half_ulp * magnitude;
      return all;
    });
  }
  estimate handed_back(layer const& l, element const& e) const {
    tensor const &in = plan_.in(l), &out = plan_.out(l);
    if (l.kind == layer_kind::head) return head_gradient(l, e);
    if (l.kind == layer_kind::convolution) {
      product_sum sum;
      tap_list const taps = tap_list::of(l, in, static_cast<int>(e.plane));
      for (std::uint32_t t = 0; t < taps.count; ++t) {
        float const* const from = deltas(l) + (std::int64_t{e.pixel} + taps.offset[t]) * out.channels;
        std::uint64_t const column = taps.tap[t] * in.channels + e.channel;
        for (std::uint32_t c = 0; c < out.channels; ++c) {
          sum.add(from[c], weight(l, std::uint64_t{c} * n_.depth(l) + column));
        }
      }
      return sum.result();
    }
    auto const from = [&](std::uint32_t y, std::uint32_t x) -> double {
      return gradients(l.out)[out.pixel(e.at.image, y, x) * out.channels + e.channel];
    };
    if (l.kind == layer_kind::phases) {
      std::uint32_t const plane = e.at.y % 2 * 2 + e.at.x % 2;
      if (plane >= out.planes) return {};
      std::size_t const pixel = std::size_t{plane} * out.plane_pitch() + out.pixel(e.at.image, e.at.y / 2, e.at.x / 2);
      return {gradients(l.out)[pixel * out.channels + e.channel]};
    }
    product_sum sum;
    if (l.kind == layer_kind::average_pool) sum.add(from(0, 0), 1.0 / (in.height * in.width));
    if (l.kind == layer_kind::join) {
      for (std::uint32_t k = 0; k < 4; ++k) sum.add(from(2 * e.at.y + k / 2, 2 * e.at.x + k % 2), 1);
    }
    if (l.kind == layer_kind::max_pool) {
      std::uint32_t const y = e.at.y / l.stride, x = e.at.x / l.stride;
      for (std::uint32_t i = y == 0 ? 0 : y - 1; i < std::min(y + 2, out.height); ++i) {
        for (std::uint32_t j = x == 0 ? 0 : x - 1; j < std::min(x + 2, out.width); ++j) {
          if (wins(l, e, i, j)) sum.add(from(i, j), 1);
        }
      }
    }
    return sum.result();
  }
  /// Whether the element is in a window, nothing there is greater, and nothing before it there is as great.
  bool wins(layer const& l, element const& e, std::uint32_t out_y, std::uint32_t out_x) const {
    tensor const& in = plan_.in(l);
    float const mine = values(l.in)[e.pixel * in.channels + e.channel];
    bool present = false, beaten = false;
    for_window(l, out_y, out_x, [&](std::uint32_t y, std::uint32_t x) {
      std::uint32_t const pixel = in.pixel(e.at.image, y, x);
      float const other = values(l.in)[pixel * in.channels + e.channel];
      present = present || pixel == e.pixel;
      beaten = beaten || other > mine || (other == mine && pixel < e.pixel);
    });
    return present && !beaten;
  }
  /// To the shortcut of a convolution, or to what a join appends.
  estimate handed_to_other(layer const& l, element const& e) const {
    std::uint64_t const row = std::uint64_t{e.pixel} * plan_.out(l).channels;
    if (l.kind == layer_kind::join) return {gradients(l.out)[row + plan_.in(l).channels + e.channel]};
    return l.adds_first ? before_activation(l, row + e.channel, e.channel)
                        : estimate{gradients(l.out)[row + e.channel]};
  }
  estimate before_activation(layer const& l, std::uint64_t i, std::uint32_t channel) const {
    bool const active =
        l.adds_first ? values(l.out)[i] > 0 : double{scale(l, channel)} * sums(l)[i] + shift(l, channel) > 0;
    double const value = (active ? 1.0 : double{l.slope}) * gradients(l.out)[i];
    return {value, half_ulp * std::abs(value)};
  }

  /// The step down the gradient that a convolution has taken.
  std::string step(layer const& l) const {
    tensor const &in = plan_.in(l), &out = plan_.out(l);
    std::string text = compare_tensor("deltas", out, deltas(l), 1, [&](element const& e) {
      estimate const inner = before_activation(l, std::uint64_t{e.pixel} * out.channels + e.channel, e.channel);
      double const value = inner.value * scale(l, e.channel);
      return estimate{value, 4 * half_ulp * std::abs(value)};
    });
    if (!text.empty()) return text;
    auto const stepped = [](double before, estimate const& gradient) {
      double const off = double{network_plan::rate} * gradient.value;
      double const bound = network_plan::rate * gradient.bound + 2 * half_ulp * (std::abs(before) + std::abs(off));
      return estimate{before - off, bound};
    };
    text = compare("parameters", l.parameters, found_.parameters + l.parameters, 2 * out.channels, out.pixels(),
                   [&](std::uint64_t i) {
                     bool const is_scale = i < out.channels;
                     auto const channel = static_cast<std::uint32_t>(i % out.channels);
                     product_sum sum;
                     for (std::uint64_t p = 0; p < out.pixels(); ++p) {
                       std::uint64_t const at = p * out.channels + channel;
                       sum.add(before_activation(l, at, channel).value, is_scale ? sums(l)[at] : 1.0f);
                     }
                     bool const learnt = !is_scale || l.normalised;
                     return stepped(initial_parameter(n_, l, seed_, i), learnt ? sum.result() : estimate{});
                   });
    if (!text.empty()) return text;
    tap_list const taps = tap_list::of(l, in);
    return compare("weights", l.weights, found_.weights + l.weights, std::uint64_t{out.channels} * n_.depth(l),
                   out.pixels(), [&](std::uint64_t i) {
                     std::uint64_t const row = i / n_.depth(l), column = i % n_.depth(l);
                     std::int64_t const offset = taps.offset[column / in.channels];
                     product_sum sum;
                     for (std::int64_t p = 0; p < out.pixels(); ++p) {
                       float const input =
                           values(l.in)[(p + offset) * in.channels + static_cast<std::int64_t>(column % in.channels)];
                       sum.add(deltas(l)[static_cast<std::uint64_t>(p) * out.channels + row], input);
                     }
                     return stepped(weight(l, i), sum.result());
                   });
  }

  network_plan const& plan_;
  network const& n_;
  std::uint64_t seed_;
  network_memory found_;
};

}  // namespace forebay::transfer
