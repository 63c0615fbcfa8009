// SPDX-License-Identifier: Apache-2.0
//! \file
//! The networks: ResNet-18 and ResNet-50 ("Deep Residual Learning for Image Recognition", 2016), YOLOv3 and its tiny
//! version (Redmon and Farhadi, 2018).
#pragma once

#include <string_view>

#include "apps/transfer/networks/layer.hpp"

namespace forebay::transfer {

/// A network at some size: every count of channels and classes is divided by `divisor`.
struct network_size {
  std::uint32_t divisor, pixels, images;
};

namespace networks {

/// `bottleneck`: blocks of 1 x 1, 3 x 3 and 1 x 1; else of two 3 x 3. The first convolution of a block has the stride.
template <bool bottleneck>
network residual(network_size size, std::uint32_t const (&blocks)[4], bool training) {
  network n(size.images, size.pixels, 1);
  std::uint32_t const expansion = bottleneck ? 4 : 1, classes = 1000 / size.divisor;
  // The scale of what is added to a shortcut: sums of many blocks do not explode.
  constexpr float residual_scale = 0.3f;
  std::uint32_t x = n.convolution(n.phases(0, 4, 2), 64 / size.divisor, {.size = 7});
  x = n.max_pool(x, 3, 2);
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    std::uint32_t const width = (64u << stage) / size.divisor;
    for (std::uint32_t block = 0; block < blocks[stage]; ++block) {
      bool const strided = stage != 0 && block == 0;
      std::uint32_t const from = strided ? n.phases(x, bottleneck ? 1 : 4) : x;
      // The shortcut comes before the first convolution, so that on the way back the convolution is first: it writes
      // the gradients of all four planes, and the shortcut adds to one of them.
      std::uint32_t const shortcut = strided || (bottleneck && block == 0)
                                         ? n.convolution(from, width * expansion, {.size = 1, .slope = 1})
                                         : from;
      convolution_options const last{.size = bottleneck ? 1u : 3u, .shortcut = shortcut, .scale = residual_scale};
      x = n.convolution(from, width, {.size = bottleneck ? 1u : 3u});
      if (bottleneck) x = n.convolution(x, width, {});
      x = n.convolution(x, width * expansion, last);
    }
  }
  x = n.convolution(n.average_pool(x), classes, {.size = 1, .slope = 1, .normalised = false});
  n.head(x, classes, training ? 1 : classes, 1);
  return n;
}

/// What the YOLO networks are built with.
struct detector {
  network n;
  std::uint32_t divisor;
  bool training;

  std::uint32_t outputs() const { return 3 * (5 + 80 / divisor); }
  std::uint32_t convolution(std::uint32_t in, std::uint32_t channels, std::uint32_t size) {
    return n.convolution(in, channels / divisor, {.size = size, .slope = 0.1f});
  }
  /// A 3 x 3 convolution, then a linear one that predicts three boxes a cell.
  void head(std::uint32_t in, std::uint32_t channels) {
    std::uint32_t const x = convolution(in, channels, 3);
    std::uint32_t const boxes = n.convolution(x, outputs(), {.size = 1, .slope = 1, .normalised = false});
    n.head(boxes, outputs(), training ? 1 : outputs(), outputs());
  }
};

inline network resnet18(network_size size, bool training) {
  return residual<false>(size, {2, 2, 2, 2}, training);
}
inline network resnet50(network_size size, bool training) {
  return residual<true>(size, {3, 4, 6, 3}, training);
}

inline network yolov3(network_size size, bool training) {
  detector d{network(size.images, size.pixels, 1), size.divisor, training};
  std::uint32_t x = d.convolution(0, 32, 3);
  std::uint32_t routes[5];
  constexpr std::uint32_t repeats[] = {1, 2, 8, 8, 4};
  for (std::uint32_t stage = 0; stage < 5; ++stage) {
    std::uint32_t const width = 64u << stage;
    x = d.convolution(d.n.phases(x, 4), width, 3);
    for (std::uint32_t i = 0; i < repeats[stage]; ++i) {
      std::uint32_t const narrow = d.convolution(x, width / 2, 1);
      x = d.n.convolution(narrow, width / d.divisor,
                          {.slope = 0.1f, .shortcut = x, .adds_first = false, .scale = 0.3f});
    }
    routes[stage] = x;
  }
  for (std::uint32_t scale = 0; scale < 3; ++scale) {
    std::uint32_t const width = 512u >> scale;
    if (scale != 0) x = d.n.join(d.convolution(x, width, 1), routes[4 - scale]);
    for (std::uint32_t i = 0; i < 2; ++i) x = d.convolution(d.convolution(x, width, 1), 2 * width, 3);
    x = d.convolution(x, width, 1);
    d.head(x, 2 * width);
  }
  return d.n;
}

inline network yolov3_tiny(network_size size, bool training) {
  detector d{network(size.images, size.pixels, 1), size.divisor, training};
  std::uint32_t x = d.convolution(0, 16, 3);
  std::uint32_t route = 0;
  for (std::uint32_t width = 32; width <= 1024; width *= 2) {
    // The last pool has stride 1: its windows reach over the right and the lower border.
    x = d.convolution(d.n.max_pool(x, 2, width == 1024 ? 1 : 2), width, 3);
    if (width == 256) route = x;
  }
  x = d.convolution(x, 256, 1);
  d.head(x, 512);
  d.head(d.n.join(d.convolution(x, 128, 1), route), 256);
  return d.n;
}

}  // namespace networks

/// A network by its name, and what there is to say about it. Sizes are tiny to mega; super and mega are the study's.
/// Tensors of 32 x 32 pixels end as one pixel.
struct resnet18 {
  static constexpr std::string_view names[] = {"resnet18_inference", "resnet18_training"};
  static constexpr bool detects = false;
  static constexpr network_size sizes[] = {{4, 32, 1}, {2, 64, 1}, {1, 64, 1}, {1, 128, 1}, {1, 224, 1}, {1, 224, 32}};
  static constexpr std::uint32_t tiny_training_divisor = 4;
  static network build(network_size size, bool training) { return networks::resnet18(size, training); }
};
struct resnet50 {
  static constexpr std::string_view names[] = {"resnet50_inference", "resnet50_training"};
  static constexpr bool detects = false;
  static constexpr network_size sizes[] = {{4, 32, 1}, {2, 64, 1}, {1, 64, 1}, {1, 128, 1}, {1, 224, 1}, {1, 224, 32}};
  static constexpr std::uint32_t tiny_training_divisor = 8;
  static network build(network_size size, bool training) { return networks::resnet50(size, training); }
};
struct yolov3 {
  static constexpr std::string_view names[] = {"yolov3_inference", "yolov3_training"};
  static constexpr bool detects = true;
  static constexpr network_size sizes[] = {{8, 32, 1}, {2, 64, 1}, {1, 128, 1}, {1, 256, 1}, {1, 416, 1}, {1, 416, 4}};
  static constexpr std::uint32_t tiny_training_divisor = 8;
  static network build(network_size size, bool training) { return networks::yolov3(size, training); }
};
struct yolov3_tiny {
  static constexpr std::string_view names[] = {"yolov3_tiny_inference", "yolov3_tiny_training"};
  static constexpr bool detects = true;
  static constexpr network_size sizes[] = {{4, 32, 1}, {2, 128, 1}, {1, 128, 1}, {1, 256, 1}, {1, 416, 1}, {1, 416, 4}};
  static constexpr std::uint32_t tiny_training_divisor = 4;
  static network build(network_size size, bool training) { return networks::yolov3_tiny(size, training); }
};

}  // namespace forebay::transfer
