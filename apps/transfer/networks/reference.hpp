// SPDX-License-Identifier: Apache-2.0
//! \file
//! The check of what the kernels of a network leave: each layer's results, at sampled places, from what was found in
//! its inputs. So errors do not add up from layer to layer, and bounds stay tight. It goes by rows and columns of
//! images, and knows halos only as what must be 0.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "apps/transfer/networks/estimate.hpp"
#include "apps/transfer/networks/initial.hpp"

namespace forebay::transfer {

class network_check {
 public:
  network_check(network_plan const& plan, std::uint64_t seed, network_memory const& found)
      : plan_(plan), n_(plan.n), seed_(seed), found_(found) {}

  /// "" if all is right.
  std::string mismatch() const {
    for (layer const& l : n_.layers()) {
      if (std::string text = forward(l); !text.empty()) return text;
    }
    for (tensor const& t : n_.tensors()) {
      if (&t == n_.tensors().data()) continue;
      std::string text = margins("activations", found_.activations, t);
      if (plan_.training && text.empty()) text = margins("deltas", found_.deltas, t);
      if (!text.empty()) return text;
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

  /// What patches may reach before and after each plane must be 0.
  std::string margins(char const* buffer, float const* found, tensor const& t) const {
    std::uint64_t const before = t.margin() * t.channels, after = before + depth_step * t.channels;
    std::string text;
    for (std::uint64_t plane = 0; plane < t.planes && text.empty(); ++plane) {
      std::uint64_t const begin = t.first + plane * t.plane_pitch() * t.channels, end = begin + t.floats();
      auto const zero = [](std::uint64_t) { return estimate{}; };
      text = compare(buffer, begin - before, found + begin - before, before, 1, zero);
      if (text.empty()) text = compare(buffer, end, found + end, after, 1, zero);
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
    auto const sum_of = [&](element const& e) { return convolved(l, e); };
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
  /// Where a tap of output pixel (y, x) of an image reads its input: the float of channel 0, or none outside the image.
  std::optional<std::uint64_t> source(layer const& l, std::uint32_t image, std::uint32_t y, std::uint32_t x,
                                      std::uint32_t tap) const {
    tensor const& in = plan_.in(l);
    std::uint32_t const stride = in.planes == 4 ? 2 : 1;
    // What lies above the image or left of it wraps, and so is outside too.
    std::uint32_t const from_y = y * stride + tap / l.size - l.size / 2,
                        from_x = x * stride + tap % l.size - l.size / 2;
    if (from_y >= in.height * stride || from_x >= in.width * stride) return {};
    std::uint64_t const plane = from_y % stride * 2 + from_x % stride;
    return (plane * in.plane_pitch() + in.pixel(image, from_y / stride, from_x / stride)) * in.channels;
  }
  estimate convolved(layer const& l, element const& e) const {
    product_sum sum;
    std::uint32_t const inputs = plan_.in(l).channels;
    for (std::uint32_t tap = 0; tap < l.size * l.size; ++tap) {
      auto const from = source(l, e.at.image, e.at.y, e.at.x, tap);
      if (!from) continue;
      std::uint64_t const first = std::uint64_t{e.channel} * n_.depth(l) + tap * inputs;
      for (std::uint32_t c = 0; c < inputs; ++c) sum.add(values(l.in)[*from + c], weight(l, first + c));
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
  float const* numbers(layer const& l, element const& e) const {
    return values(l.in) + std::uint64_t{e.pixel} * plan_.in(l).channels;
  }
  std::uint64_t cell_of(layer const& l, element const& e) const {
    return (std::uint64_t{e.at.image} * plan_.in(l).height + e.at.y) * plan_.in(l).width + e.at.x;
  }
  estimate told(layer const& l, element const& e) const {
    float const* const x = numbers(l, e);
    if (!plan_.detects) {
      softmax const all(x, l.outputs);
      double const p = std::exp(x[e.channel] - all.most) / all.sum;
      return {p, p * all.error + 1e-37};
    }
    std::uint32_t const of_box = e.channel % (l.outputs / 3);
    if (of_box == 2 || of_box == 3) return {x[e.channel]};
    double const likely = 1 / (1 + std::exp(-double{x[e.channel]}));
    return {likely, 16 * half_ulp * likely + 1e-37};
  }
  estimate loss(layer const& l, element const& e) const {
    float const* const x = numbers(l, e);
    std::uint64_t const cell = cell_of(l, e);
    if (!plan_.detects) {
      softmax const all(x, l.outputs);
      double const label = x[static_cast<std::uint32_t>(initial_target(plan_, l, seed_, cell))] - all.most;
      double const rounded = 4 * half_ulp * (std::log(all.sum) + std::abs(label));
      return {std::log(all.sum) - label, all.error + rounded};
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
    softmax const all(x, l.outputs);
    double const p = std::exp(x[e.channel] - all.most) / all.sum;
    double const wanted = e.channel == static_cast<std::uint32_t>(initial_target(plan_, l, seed_, cell)) ? 1 : 0;
    return {(p - wanted) * share, (p * all.error + 4 * half_ulp * std::abs(p - wanted)) * share};
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
    if (l.kind == layer_kind::convolution) return convolved_back(l, e);
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
  estimate convolved_back(layer const& l, element const& e) const {
    tensor const &in = plan_.in(l), &out = plan_.out(l);
    product_sum sum;
    // Only outputs near the element's place read it.
    std::uint32_t const stride = in.planes == 4 ? 2 : 1, reach = l.size / 2;
    std::uint64_t const place = (std::uint64_t{e.plane} * in.plane_pitch() + e.pixel) * in.channels;
    for (std::uint32_t tap = 0; tap < l.size * l.size; ++tap) {
      std::uint32_t const y = (e.at.y * stride + e.plane / 2 + reach - tap / l.size) / stride;
      std::uint32_t const x = (e.at.x * stride + e.plane % 2 + reach - tap % l.size) / stride;
      if (y >= out.height || x >= out.width || source(l, e.at.image, y, x, tap) != place) continue;
      std::uint64_t const from = std::uint64_t{out.pixel(e.at.image, y, x)} * out.channels;
      for (std::uint32_t c = 0; c < out.channels; ++c) {
        sum.add(deltas(l)[from + c], weight(l, std::uint64_t{c} * n_.depth(l) + tap * in.channels + e.channel));
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
    auto const stepped = [&](double before, estimate const& gradient) {
      double const off = double{plan_.rate} * gradient.value;
      double const bound = plan_.rate * gradient.bound + 2 * half_ulp * (std::abs(before) + std::abs(off));
      return estimate{before - off, bound};
    };
    auto const parameter_gradient = [&](std::uint64_t i) {
      product_sum sum;
      auto const channel = static_cast<std::uint32_t>(i % out.channels);
      if (i < out.channels && !l.normalised) return estimate{};
      for (std::uint64_t at = channel; at < out.floats(); at += out.channels) {
        sum.add(before_activation(l, at, channel).value, i < out.channels ? sums(l)[at] : 1.0f);
      }
      return sum.result();
    };
    text = compare("parameters", l.parameters, found_.parameters + l.parameters, 2 * out.channels, out.pixels(),
                   [&](std::uint64_t i) { return stepped(initial_parameter(n_, l, seed_, i), parameter_gradient(i)); });
    if (!text.empty()) return text;
    auto const weight_gradient = [&](std::uint64_t row, std::uint32_t column) {
      product_sum sum;
      for (std::uint64_t cell = 0; cell < out.cells(); ++cell) {
        auto const x = static_cast<std::uint32_t>(cell % out.width),
                   rows = static_cast<std::uint32_t>(cell / out.width);
        std::uint32_t const image = rows / out.height, y = rows % out.height;
        auto const from = source(l, image, y, x, column / in.channels);
        if (!from) continue;
        float const input = values(l.in)[*from + column % in.channels];
        sum.add(deltas(l)[std::uint64_t{out.pixel(image, y, x)} * out.channels + row], input);
      }
      return sum.result();
    };
    std::uint64_t const depth = n_.depth(l);
    return compare("weights", l.weights, found_.weights + l.weights, out.channels * depth, out.pixels(),
                   [&](std::uint64_t i) {
                     return stepped(weight(l, i), weight_gradient(i / depth, static_cast<std::uint32_t>(i % depth)));
                   });
  }

  network_plan const& plan_;
  network const& n_;
  std::uint64_t seed_;
  network_memory found_;
};

}  // namespace forebay::transfer
