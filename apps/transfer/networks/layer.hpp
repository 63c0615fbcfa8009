// SPDX-License-Identifier: Apache-2.0
//! \file
//! Neural networks as lists of tensors and layers: shapes, and where everything lies in the buffers.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "apps/transfer/host_data.hpp"
#include "forebay/machine.hpp"

namespace forebay::transfer {

/// What a step of a product's depth covers, see convolution.hpp.
inline constexpr std::uint32_t depth_step = 32;

/// Images, with the channels of a pixel next to each other. `halo` zero columns follow each row and `halo` zero rows
/// each image; zeros lie before the first image too. So a step by a constant goes from any pixel to its neighbour in
/// some direction, also out of the image, and the patches of consecutive pixels begin at a constant pitch.
struct tensor {
  std::uint32_t images, height, width;
  std::uint32_t channels;  ///< a multiple of 4
  std::uint32_t halo;
  /// With 4 planes, pixel (2y + i, 2x + j) of the tensor it was made from is pixel (y, x) of plane 2i + j. A
  /// convolution of stride 2 takes steps of 1 in these planes.
  std::uint32_t planes;
  std::uint64_t first = 0;      ///< the float at which pixel 0 of plane 0 begins, in each buffer that has the tensor
  bool differentiable = false;  ///< whether training needs its gradient

  /// A pixel by its image, row and column.
  struct place {
    std::uint32_t image, y, x;
    bool inside;  ///< not in the halo
  };

  FOREBAY_DEVICE constexpr std::uint32_t pitch() const { return width + halo; }
  FOREBAY_DEVICE constexpr std::uint32_t image_pixels() const { return (height + halo) * pitch(); }
  /// Pixels of a plane, with halos.
  FOREBAY_DEVICE constexpr std::uint32_t pixels() const { return images * image_pixels(); }
  /// Floats of a plane, with halos.
  FOREBAY_DEVICE constexpr std::uint32_t floats() const { return pixels() * channels; }
  /// How far before a pixel patches reach, and after it.
  FOREBAY_DEVICE constexpr std::uint32_t margin() const { return halo * (pitch() + 1); }
  /// Pixels from one plane to the next. The products of weight gradients also read a last step of zeros.
  FOREBAY_DEVICE constexpr std::uint32_t plane_pitch() const { return margin() + pixels() + margin() + depth_step; }
  FOREBAY_DEVICE constexpr std::uint32_t pixel(std::uint32_t image, std::uint32_t y, std::uint32_t x) const {
    return image * image_pixels() + y * pitch() + x;
  }
  FOREBAY_DEVICE constexpr place at(std::uint32_t pixel) const {
    std::uint32_t const image = pixel / image_pixels(), rest = pixel % image_pixels();
    std::uint32_t const y = rest / pitch(), x = rest % pitch();
    return {image, y, x, y < height && x < width};
  }
  /// Images times rows times columns, without halos.
  constexpr std::uint64_t cells() const { return std::uint64_t{images} * height * width; }
};

enum class layer_kind : std::uint8_t {
  convolution,   ///< scaled and shifted by channel; a shortcut may be added; then or before, leaky ReLU
  phases,        ///< every second pixel to another plane
  max_pool,      ///< of a window; pixels outside the image do not count
  average_pool,  ///< of each image
  join,          ///< the channels of a tensor that is enlarged twofold, then those of another
  head           ///< what the network says, and in training its loss
};

inline constexpr std::uint32_t no_tensor = ~0u;

struct layer {
  layer_kind kind;
  std::uint32_t in, out;
  std::uint32_t other = no_tensor;  ///< the shortcut of a convolution, or what a join appends
  std::uint32_t size = 1;           ///< of the square window
  std::uint32_t stride = 1;         ///< of pooling
  std::uint32_t inputs = 0;         ///< channels without padding
  std::uint32_t outputs = 0;        ///< the same
  float slope = 1;                  ///< of the activation, for negative values
  bool adds_first = false;          ///< the shortcut, before the activation
  bool normalised = false;          ///< the scale is learnt
  float scale = 1;                  ///< about what the scale is at first
  float weight_bound = 0;           ///< weights are uniform up to it
  std::uint64_t weights = 0;        ///< the float at which weights begin: [output channel][row][column][input channel]
  std::uint64_t parameters = 0;     ///< the same of the scales; as many shifts follow
  std::uint64_t results = 0;        ///< of a head
  std::uint64_t targets = 0;        ///< of a head: a number for each output of a cell, or for a classifier a class
};

/// What a convolution has beside its channels. Defaults: 3 x 3, ReLU.
struct convolution_options {
  std::uint32_t size = 3;
  float slope = 0;
  std::uint32_t shortcut = no_tensor;
  bool adds_first = true;
  bool normalised = true;
  float scale = 1;
};

constexpr std::uint32_t round_up(std::uint32_t count, std::uint32_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// Tensor 0 is what goes in. The others share one layout, which several buffers have. Functions that add a layer return
/// its output.
class network {
 public:
  network(std::uint32_t images, std::uint32_t pixels, std::uint32_t halo) {
    tensor const image{images, pixels, pixels, 4, halo, 1};
    tensors_.push_back(image);
    tensors_[0].first = std::uint64_t{image.margin()} * image.channels;
  }

  std::uint32_t convolution(std::uint32_t in, std::uint32_t outputs, convolution_options const& how) {
    std::uint32_t const inputs = tensors_[in].differentiable ? tensors_[in].channels : 3;
    tensor shape = tensors_[in];
    shape.planes = 1;
    shape.channels = round_up(outputs, 4);
    std::uint32_t const out = add(shape);
    // Half of what an activation lets pass is lost, so the weights' variance is 2 / terms ("Delving Deep into
    // Rectifiers", 2015).
    float const bound = std::sqrt(6.0f / static_cast<float>(how.size * how.size * inputs));
    layers_.push_back({layer_kind::convolution, in, out, how.shortcut, how.size, 1, inputs, outputs, how.slope,
                       how.adds_first, how.normalised, how.scale, bound, weights_, parameters_});
    weights_ += std::uint64_t{shape.channels} * depth(layers_.back());
    parameters_ += 2 * shape.channels;
    return out;
  }
  /// `planes`: 4, or 1 if nothing reads the other three.
  std::uint32_t phases(std::uint32_t in, std::uint32_t planes, std::uint32_t halo = 1) {
    tensor shape = tensors_[in];
    shape.height /= 2;
    shape.width /= 2;
    shape.halo = halo;
    shape.planes = planes;
    return add_layer({layer_kind::phases, in, 0}, shape);
  }
  std::uint32_t max_pool(std::uint32_t in, std::uint32_t size, std::uint32_t stride) {
    tensor shape = tensors_[in];
    shape.height /= stride;
    shape.width /= stride;
    shape.halo = 1;
    return add_layer({layer_kind::max_pool, in, 0, no_tensor, size, stride}, shape);
  }
  std::uint32_t average_pool(std::uint32_t in) {
    tensor shape = tensors_[in];
    shape.height = shape.width = 1;
    shape.halo = 0;
    return add_layer({layer_kind::average_pool, in, 0}, shape);
  }
  std::uint32_t join(std::uint32_t enlarged, std::uint32_t other) {
    tensor shape = tensors_[other];
    shape.channels += tensors_[enlarged].channels;
    return add_layer({layer_kind::join, enlarged, 0, other}, shape);
  }
  /// How many numbers the layer tells for each cell, and how many it is told in training.
  void head(std::uint32_t in, std::uint32_t outputs, std::uint32_t results_of_cell, std::uint32_t targets_of_cell) {
    layer added{layer_kind::head, in, in};
    added.outputs = outputs;
    added.results = results_;
    added.targets = targets_;
    layers_.push_back(added);
    results_ += tensors_[in].cells() * results_of_cell;
    targets_ += tensors_[in].cells() * targets_of_cell;
  }

  std::vector<tensor> const& tensors() const { return tensors_; }
  std::vector<layer> const& layers() const { return layers_; }
  std::uint64_t image_floats() const { return std::uint64_t{tensors_[0].plane_pitch()} * 4; }
  std::uint64_t shared_floats() const { return end_; }  ///< of the layout that buffers share
  std::uint64_t weights() const { return weights_; }
  std::uint64_t parameters() const { return parameters_; }
  std::uint64_t results() const { return results_; }
  std::uint64_t targets() const { return targets_; }
  /// The depth of the product that a convolution is: weights of an output channel.
  std::uint32_t depth(layer const& l) const { return l.size * l.size * tensors_[l.in].channels; }

 private:
  std::uint32_t add(tensor shape) {
    shape.first = end_ + std::uint64_t{shape.margin()} * shape.channels;
    shape.differentiable = true;
    end_ += std::uint64_t{shape.planes} * shape.plane_pitch() * shape.channels;
    tensors_.push_back(shape);
    return static_cast<std::uint32_t>(tensors_.size() - 1);
  }
  std::uint32_t add_layer(layer l, tensor const& shape) {
    l.out = add(shape);
    tensors_[l.out].differentiable = l.in != 0;
    layers_.push_back(l);
    return l.out;
  }

  std::vector<tensor> tensors_;
  std::vector<layer> layers_;
  std::uint64_t end_ = 0, weights_ = 0, parameters_ = 0, results_ = 0, targets_ = 0;
};

/// Which weights a product takes, and how far from a pixel it finds what they are multiplied with.
struct tap_list {
  std::uint32_t count = 0;
  std::int32_t offset[49];  ///< in pixels
  std::uint8_t tap[49];     ///< row times size plus column

  /// Of the taps of a convolution whose input is `in`, those that read `plane`, or all of them.
  static tap_list of(layer const& l, tensor const& in, int plane = -1) {
    tap_list list;
    int const size = static_cast<int>(l.size), pitch = static_cast<int>(in.pitch());
    for (int t = 0; t < size * size; ++t) {
      int const y = t / size - size / 2, x = t % size - size / 2;
      bool const split = in.planes == 4;
      int const from = split ? 2 * (y & 1) + (x & 1) : 0;
      int const offset = split ? (y >> 1) * pitch + (x >> 1) : y * pitch + x;
      if (plane >= 0 && from != plane) continue;
      list.tap[list.count] = static_cast<std::uint8_t>(t);
      // From a plane's pixel back to the output, or from the output to a pixel of any plane.
      list.offset[list.count++] = plane >= 0 ? -offset : offset + from * static_cast<int>(in.plane_pitch());
    }
    return list;
  }
};

}  // namespace forebay::transfer
