// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernels of a network in their order: forward, and in training backward with a step of gradient descent.
#pragma once

#include <vector>

#include "apps/transfer/networks/other_layers.hpp"

namespace forebay::transfer {

/// A network with its launch shape.
struct network_plan {
  network n;
  launch_shape shape;
  std::uint32_t items;  ///< so many that a product's depth need not be cut
  bool training, detects;
  float rate;  ///< how far training goes down the gradient

  tensor const& in(layer const& l) const { return n.tensors()[l.in]; }
  tensor const& out(layer const& l) const { return n.tensors()[l.out]; }
  tensor const& other(layer const& l) const { return n.tensors()[l.other]; }

  product_shape product_of(product_kind kind, layer const& l, std::uint32_t taps) const {
    std::uint32_t const pixels = out(l).pixels(), outputs = out(l).channels, inputs = in(l).channels;
    auto const cut = [&](std::uint32_t rows, std::uint32_t columns, std::uint32_t depth) {
      return product_shape::of(rows, columns, depth, shape.tile, shape.stages, items);
    };
    if (kind == product_kind::output) return cut(pixels, outputs, taps * inputs);
    if (kind == product_kind::input_gradient) return cut(pixels, inputs, taps * outputs);
    return cut(outputs, taps * inputs, round_up(pixels, 4));
  }
  /// Calls `f(kind, layer, product)` for all products.
  template <class F>
  void for_each_product(F&& f) const {
    for (layer const& l : n.layers()) {
      if (l.kind != layer_kind::convolution) continue;
      std::uint32_t const taps = l.size * l.size;
      f(product_kind::output, l, product_of(product_kind::output, l, taps));
      if (!training) continue;
      f(product_kind::weight_gradient, l, product_of(product_kind::weight_gradient, l, taps));
      if (!in(l).differentiable) continue;
      for (std::uint32_t plane = 0; plane < in(l).planes; ++plane) {
        std::uint32_t const of_plane = tap_list::of(l, in(l), static_cast<int>(plane)).count;
        if (of_plane != 0) f(product_kind::input_gradient, l, product_of(product_kind::input_gradient, l, of_plane));
      }
    }
  }
};

/// The buffers of a network. Inference has no `targets`, `sums`, `gradients` and `deltas`.
struct network_memory {
  float* images;
  float* weights;
  float* parameters;
  float* results;
  float* activations;  ///< what layers give
  float* partials;
  float* targets = nullptr;
  float* sums = nullptr;       ///< of convolutions, before scale and activation
  float* gradients = nullptr;  ///< of the loss by the activations
  float* deltas = nullptr;     ///< of the loss by the sums

  static network_memory of(views buffers, bool training) {
    auto const at = [&](std::size_t i) { return buffers.at<float>(i); };
    if (!training) return {at(0), at(1), at(2), at(3), at(4), at(5)};
    return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(8), at(9)};
  }
  float* values(network const& n, std::uint32_t t) const {
    return (t == 0 ? images : activations) + n.tensors()[t].first;
  }
};

/// Starts the kernels of a plan.
template <class Policy, class Run>
class passes {
  using M = typename Run::machine;

 public:
  passes(Run const& run, network_plan const& plan, network_memory const& memory)
      : run_(run), plan_(plan), n_(plan.n), memory_(memory), written_(n_.tensors().size()) {}

  void forward() {
    clear(memory_.activations);
    for (layer const& l : n_.layers()) forward(l);
  }
  void backward() {
    clear(memory_.deltas);
    for (std::size_t i = n_.layers().size(); i-- != 0;) backward(n_.layers()[i]);
  }

 private:
  float* values(std::uint32_t t) const { return memory_.values(n_, t); }
  float* gradients(std::uint32_t t) const { return memory_.gradients + n_.tensors()[t].first; }
  float* scales(layer const& l) const { return memory_.parameters + l.parameters; }
  float* shifts(layer const& l) const { return scales(l) + plan_.out(l).channels; }
  /// Whether the gradient of a tensor has a part already, to which the next one is added.
  bool adds(std::uint32_t t) {
    bool const before = written_[t];
    written_[t] = true;
    return before;
  }

  template <class Body>
  void each(std::uint32_t count, Body const& body) const {
    run_({blocks_for(count), plan_.shape.threads, 0}, for_each_element<M, Body>{count, body});
  }
  template <class Kernel>
  void each_warp(std::uint32_t count, Kernel const& kernel) const {
    run_({blocks_for(32 * count), plan_.shape.threads, 0}, kernel);
  }
  std::uint32_t blocks_for(std::uint32_t threads) const {
    return std::min(plan_.shape.blocks, (threads + plan_.shape.threads - 1) / plan_.shape.threads);
  }

  void clear(float* buffer) const {
    clear_gaps<M> kernel{buffer, 0, {}};
    auto const flush = [&] {
      run_({std::min(plan_.shape.blocks, kernel.count), plan_.shape.threads, 0}, kernel);
      kernel.count = 0;
    };
    std::uint64_t end = 0;
    auto const add = [&](std::uint64_t to) {
      kernel.gaps[kernel.count++] = {end, static_cast<std::uint32_t>(to - end)};
      if (kernel.count == clear_gaps<M>::count_max) flush();
    };
    for (tensor const& t : n_.tensors()) {
      if (&t == n_.tensors().data()) continue;
      for (std::uint64_t plane = 0; plane < t.planes; ++plane) {
        std::uint64_t const first = t.first + plane * t.plane_pitch() * t.channels;
        add(first);
        end = first + t.floats();
      }
    }
    add(n_.shared_floats());
    if (kernel.count != 0) flush();
  }

  template <product_kind kind, class Finish>
  void multiply(product_shape const& shape, product_operands const& from, Finish const& finish) const {
    std::uint32_t const groups = (shape.tile / 4) * (shape.tile / 4) / plan_.shape.threads;
    if (groups <= 1) {
      start<kind, 1>(shape, from, finish);
    } else if (groups == 2) {
      start<kind, 2>(shape, from, finish);
    } else {
      start<kind, 4>(shape, from, finish);
    }
    if (shape.splits != 1) {
      each(shape.rows * shape.columns, add_partials<Finish>{shape, finish, memory_.partials});
    }
  }
  template <product_kind kind, std::uint32_t groups, class Finish>
  void start(product_shape const& shape, product_operands const& from, Finish const& finish) const {
    std::uint32_t const bytes =
        simt::stager<M, Policy, float>::shared_bytes(2 * product_shape::part_floats(shape.tile), shape.stages);
    run_({std::min(plan_.shape.blocks, shape.items()), plan_.shape.threads, bytes},
         product<M, Policy, kind, groups, Finish>{shape, from, finish, memory_.partials});
  }

  void forward(layer const& l) const {
    tensor const &in = plan_.in(l), &out = plan_.out(l);
    float* const from = values(l.in);
    float* const to = values(l.out);
    switch (l.kind) {
      case layer_kind::convolution: {
        auto const shape = plan_.product_of(product_kind::output, l, l.size * l.size);
        float const* const shortcut = l.other == no_tensor ? nullptr : values(l.other);
        float* const sums = plan_.training ? memory_.sums + out.first : nullptr;
        return multiply<product_kind::output>(
            shape, {from, in.channels, memory_.weights + l.weights, shape.depth, 0, tap_list::of(l, in)},
            finish_output{out, to, sums, scales(l), shifts(l), shortcut, l.slope, l.adds_first});
      }
      case layer_kind::phases:
        return each(out.planes * out.floats(), phases_forward{in, out, from, to});
      case layer_kind::max_pool:
        return each(out.floats(), max_pool_forward{{in, out, l.size, l.stride, from}, to});
      case layer_kind::average_pool:
        return each(out.floats(), average_pool_forward{in, out, from, to});
      case layer_kind::join:
        return each(out.floats(), join_forward{in, plan_.other(l), out, from, values(l.other), to});
      case layer_kind::head:
        break;
    }
    bool const training = plan_.training;
    each_warp(in.pixels(), head<M>{in, l.outputs, plan_.detects, from, training ? memory_.targets + l.targets : nullptr,
                                   memory_.results + l.results, training ? gradients(l.in) : nullptr,
                                   1 / static_cast<float>(in.cells())});
  }

  void backward(layer const& l) {
    tensor const &in = plan_.in(l), &out = plan_.out(l);
    if (l.kind == layer_kind::convolution) return convolution_backward(l);
    // A head has written its gradient on the way forward.
    if (l.kind == layer_kind::head || !in.differentiable) return;
    float const* const from = gradients(l.out);
    float* const to = gradients(l.in);
    bool const more = adds(l.in);
    if (l.kind == layer_kind::phases) each(in.floats(), phases_backward{in, out, from, to, more});
    if (l.kind == layer_kind::max_pool) {
      each(in.floats(), max_pool_backward{{in, out, l.size, l.stride, values(l.in)}, from, to, more});
    }
    if (l.kind == layer_kind::average_pool) each(in.floats(), average_pool_backward{in, out, from, to, more});
    if (l.kind == layer_kind::join) {
      each(in.floats(), join_backward{in, out, 0, 2, from, to, more});
      tensor const& other = plan_.other(l);
      each(other.floats(), join_backward{other, out, in.channels, 1, from, gradients(l.other), adds(l.other)});
    }
  }

  void convolution_backward(layer const& l) {
    tensor const &in = plan_.in(l), &out = plan_.out(l);
    float* const deltas = memory_.deltas + out.first;
    float* const weights = memory_.weights + l.weights;
    std::uint32_t const groups = activation_backward::groups(out), depth = n_.depth(l);
    bool const has_shortcut = l.other != no_tensor;
    each(groups * out.channels,
         activation_backward{out, values(l.out), memory_.sums + out.first, scales(l), shifts(l), gradients(l.out),
                             deltas, has_shortcut ? gradients(l.other) : nullptr, has_shortcut && adds(l.other),
                             l.adds_first, l.slope, memory_.partials});
    each_warp(out.channels, parameter_step<M>{out.channels, groups, memory_.partials,
                                              l.normalised ? scales(l) : nullptr, shifts(l), plan_.rate});
    if (in.differentiable) {
      bool const more = adds(l.in);
      for (std::uint32_t plane = 0; plane < in.planes; ++plane) {
        tap_list const taps = tap_list::of(l, in, static_cast<int>(plane));
        if (taps.count == 0) continue;
        multiply<product_kind::input_gradient>(
            plan_.product_of(product_kind::input_gradient, l, taps.count),
            {deltas, out.channels, weights, depth, in.channels, taps},
            finish_input_gradient{in, gradients(l.in) + std::size_t{plane} * in.plane_pitch() * in.channels, more});
      }
    }
    multiply<product_kind::weight_gradient>(plan_.product_of(product_kind::weight_gradient, l, l.size * l.size),
                                            {values(l.in), in.channels, deltas, out.channels, 0, tap_list::of(l, in)},
                                            finish_weight_gradient{weights, depth, plan_.rate});
  }

  Run const& run_;
  network_plan const& plan_;
  network const& n_;
  network_memory memory_;
  std::vector<bool> written_;
};

}  // namespace forebay::transfer
