// SPDX-License-Identifier: Apache-2.0
//! \file
//! Convolutional networks: what they say about images, and a step of their training.
//!
//! Channels are padded to a multiple of 4, so that each staged run is a multiple of 16 bytes, and images have halos of
//! zeros; so the image's three channels are four. Statistics for normalisation are fixed: a scale and a shift for each
//! channel, which training learns like the weights. Weights and images are random.
#pragma once

#include "apps/transfer/networks/reference.hpp"
#include "apps/transfer/networks/tables.hpp"

namespace forebay::transfer {

template <class Network, bool training>
class network_workload {
 public:
  static constexpr workload_facts facts{
      Network::names[training], workload_group::network, "pixels, and output channels, of a block's product",
      training ? "a step of gradient descent through all layers" : "what a network says about images"};

  network_workload(problem_size size, launch_shape given) {
    network_size of = Network::sizes[static_cast<int>(size)];
    bool const is_tiny = size == problem_size::tiny;
    if (is_tiny && training) of.divisor = Network::tiny_training_divisor;
    std::uint32_t const tile = given.tile != 0 ? given.tile : is_tiny ? 32 : 64;
    require_tile(tile, 16, 128, 128);
    // A thread has 16 results of a tile, or 32, or 64.
    std::uint32_t const parts = tile * tile / 16;
    plan_.shape = completed(given, {is_tiny ? 2u : 528u, std::clamp(parts / 2, 64u, 256u), tile, is_tiny ? 2u : 3u});
    if (plan_.shape.threads % 32 != 0 || plan_.shape.threads < parts / 4 || plan_.shape.threads > 256) {
      throw refused_input("--threads", std::to_string(plan_.shape.threads),
                          "must be a multiple of 32 from " + std::to_string(std::max(32u, parts / 4)) + " to 256");
    }
    require_shared_bytes(staged_bytes<float>(2 * product_shape::part_floats(tile), plan_.shape.stages));
    plan_.n = Network::build(of, training);
    plan_.items = is_tiny ? 16 : 264;
    plan_.training = training;
    plan_.detects = Network::detects;
    plan_.rate = Network::detects ? 0.0002f : 0.05f;
  }

  launch_shape shape() const { return plan_.shape; }

  std::vector<buffer> buffers() const {
    network const& n = plan_.n;
    auto const bytes = [](std::uint64_t floats) { return floats * sizeof(float); };
    std::uint64_t const shared = bytes(n.shared_floats());
    buffer_use const learnt = training ? buffer_use::in_out : buffer_use::in;
    std::vector<buffer> list{{"images", bytes(n.image_floats()), buffer_use::in},
                             {"weights", bytes(n.weights()), learnt},
                             {"parameters", bytes(n.parameters()), learnt},
                             {training ? "losses" : "outputs", bytes(n.results()), buffer_use::out},
                             {"activations", shared, buffer_use::scratch},
                             {"partials", bytes(partial_floats()), buffer_use::scratch}};
    if (training) {
      list.push_back({"targets", bytes(n.targets()), buffer_use::in});
      for (char const* name : {"sums", "gradients", "deltas"}) list.push_back({name, shared, buffer_use::scratch});
    }
    return list;
  }

  /// Of convolutions, where nearly all work is. Operations are those of pixels in images; others count with halos.
  workload_costs costs() const {
    workload_costs costs;
    plan_.for_each_product([&](product_kind, layer const& l, product_shape const& p) {
      double const rows = p.rows, columns = p.columns, depth = p.depth;
      double const inside = static_cast<double>(plan_.out(l).cells()) / plan_.out(l).pixels();
      double const groups = std::max(1u, p.tile * p.tile / 16 / plan_.shape.threads);
      costs.operations += 2 * rows * columns * depth * inside;
      costs.staged_bytes += depth * (rows * p.column_tiles() + columns * p.row_tiles()) * sizeof(float);
      // Accesses of 16 bytes: for each 4 steps of depth, 4 a group of rows and 4 columns.
      costs.shared_accesses += rows / 4 * (columns / 4) * (depth / 4) * (4 + 4 / groups);
    });
    return costs;
  }

  void init(std::uint64_t seed, views host) const {
    network const& n = plan_.n;
    auto const memory = network_memory::of(host, training);
    auto const fill = [](float* to, std::uint64_t count, auto&& value) {
      in_parallel(count, 1 << 16, [&](std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t i = begin; i < end; ++i) to[i] = value(i);
      });
    };
    fill(memory.images, n.image_floats(), [&](std::uint64_t i) { return initial_image(n.tensors()[0], seed, i); });
    for (layer const& l : n.layers()) {
      tensor const& out = plan_.out(l);
      if (l.kind == layer_kind::convolution) {
        fill(memory.weights + l.weights, std::uint64_t{out.channels} * n.depth(l),
             [&](std::uint64_t i) { return initial_weight(n, l, seed, i); });
        fill(memory.parameters + l.parameters, 2 * out.channels,
             [&](std::uint64_t i) { return initial_parameter(n, l, seed, i); });
      }
      if (l.kind == layer_kind::head && training) {
        fill(memory.targets + l.targets, plan_.detects ? out.cells() * l.outputs : out.cells(),
             [&](std::uint64_t i) { return initial_target(plan_, l, seed, i); });
      }
    }
  }

  std::string mismatch(std::uint64_t seed, views host) const {
    return network_check(plan_, seed, network_memory::of(host, training)).mismatch();
  }

  template <class Policy, class Run>
  void launch(Run const& run, views device) const {
    passes<Policy, Run> all(run, plan_, network_memory::of(device, training));
    all.forward();
    if constexpr (training) all.backward();
  }

 private:
  /// What the products and the gradients of parameters leave to be added.
  std::uint64_t partial_floats() const {
    std::uint64_t most = 4;
    plan_.for_each_product([&](product_kind, layer const& l, product_shape const& p) {
      if (p.splits != 1) most = std::max(most, std::uint64_t{p.splits} * p.rows * p.columns);
      if (training)
        most = std::max(most, std::uint64_t{2} * activation_backward::groups(plan_.out(l)) * plan_.out(l).channels);
    });
    return most;
  }

  network_plan plan_{network(1, 32, 1), {}, 0, training, Network::detects, 0};
};

using resnet18_inference = network_workload<resnet18, false>;
using resnet18_training = network_workload<resnet18, true>;
using resnet50_inference = network_workload<resnet50, false>;
using resnet50_training = network_workload<resnet50, true>;
using yolov3_inference = network_workload<yolov3, false>;
using yolov3_training = network_workload<yolov3, true>;
using yolov3_tiny_inference = network_workload<yolov3_tiny, false>;
using yolov3_tiny_training = network_workload<yolov3_tiny, true>;

}  // namespace forebay::transfer
