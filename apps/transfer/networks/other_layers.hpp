// SPDX-License-Identifier: Apache-2.0
//! \file
//! What networks do beside convolutions: pooling, moving pixels, activations on the way back, and the loss.
#pragma once

#include <cmath>

#include "apps/transfer/networks/convolution.hpp"

namespace forebay::transfer {

/// Calls `body(i)` for each `i` below `count`, neighbours on neighbouring lanes.
template <class M, class Body>
struct for_each_element {
  std::uint32_t count;
  Body body;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const step = M::thread_count();
    for (std::uint64_t i = M::thread_rank(); i < count; i += step) body(static_cast<std::uint32_t>(i));
  }
};

/// Zeros between the tensors of a buffer, which patches reach into. A block takes one gap at a time.
template <class M>
struct clear_gaps {
  static constexpr std::uint32_t count_max = 64;
  struct gap {
    std::uint64_t first;
    std::uint32_t floats;
  };
  float* buffer;
  std::uint32_t count;
  gap gaps[count_max];

  FOREBAY_DEVICE void operator()() const {
    auto const block = M::this_block();
    for (std::uint32_t g = block.rank; g < count; g += block_count<M>()) {
      float* const to = buffer + gaps[g].first;
      for (std::uint32_t i = block.thread_rank(); i < gaps[g].floats; i += block.size()) to[i] = 0;
    }
  }
};

/// For each float of all planes of `out`.
struct phases_forward {
  tensor in, out;
  float const* from;
  float* to;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    std::uint32_t const channel = i % out.channels, plane = i / out.floats(), pixel = i % out.floats() / out.channels;
    tensor::place const at = out.at(pixel);
    float value = 0;
    if (at.inside) {
      value = from[in.pixel(at.image, 2 * at.y + plane / 2, 2 * at.x + plane % 2) * in.channels + channel];
    }
    to[(std::size_t{plane} * out.plane_pitch() + pixel) * out.channels + channel] = value;
  }
};
/// For each float of `in`.
struct phases_backward {
  tensor in, out;
  float const* from;  ///< the gradient of `out`
  float* to;          ///< that of `in`
  bool adds;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    std::uint32_t const channel = i % in.channels;
    tensor::place const at = in.at(i / in.channels);
    std::uint32_t const plane = at.y % 2 * 2 + at.x % 2;
    float value = 0;
    if (at.inside && plane < out.planes) {
      std::size_t const pixel = std::size_t{plane} * out.plane_pitch() + out.pixel(at.image, at.y / 2, at.x / 2);
      value = from[pixel * out.channels + channel];
    }
    put(to + i, value, adds);
  }
};

/// A window of size 3 begins a pixel before its place, one of size 2 at its place.
struct max_pool {
  tensor in, out;
  std::uint32_t size, stride;
  float const* values;  ///< of `in`

  FOREBAY_DEVICE std::uint32_t before() const { return size == 3 ? 1 : 0; }
  /// The float of `in` that is the first with the greatest value in the window of `at`.
  FOREBAY_DEVICE std::uint32_t winner(tensor::place const& at, std::uint32_t channel) const {
    std::uint32_t best = ~0u;
    for (std::uint32_t i = 0; i < size; ++i) {
      // A place above the image or left of it wraps, and so is outside too.
      std::uint32_t const y = at.y * stride + i - before();
      if (y >= in.height) continue;
      for (std::uint32_t j = 0; j < size; ++j) {
        std::uint32_t const x = at.x * stride + j - before();
        if (x >= in.width) continue;
        std::uint32_t const here = in.pixel(at.image, y, x) * in.channels + channel;
        if (best == ~0u || values[here] > values[best]) best = here;
      }
    }
    return best;
  }
};
/// For each float of `out`.
struct max_pool_forward {
  max_pool pool;
  float* to;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    tensor::place const at = pool.out.at(i / pool.out.channels);
    to[i] = at.inside ? pool.values[pool.winner(at, i % pool.out.channels)] : 0;
  }
};
/// For each float of `in`: adds the gradients of the windows in which it won.
struct max_pool_backward {
  max_pool pool;
  float const* from;
  float* to;
  bool adds;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    std::uint32_t const channel = i % pool.in.channels;
    tensor::place const at = pool.in.at(i / pool.in.channels);
    float sum = 0;
    if (at.inside) {
      for (std::uint32_t y = first(at.y); y < end(at.y, pool.out.height); ++y) {
        for (std::uint32_t x = first(at.x); x < end(at.x, pool.out.width); ++x) {
          if (pool.winner({at.image, y, x, true}, channel) != i) continue;
          sum += from[pool.out.pixel(at.image, y, x) * pool.out.channels + channel];
        }
      }
    }
    put(to + i, sum, adds);
  }

 private:
  /// The windows that a row or column is in.
  FOREBAY_DEVICE std::uint32_t first(std::uint32_t at) const {
    std::uint32_t const moved = at + pool.before();
    return moved < pool.size ? 0 : (moved - pool.size) / pool.stride + 1;
  }
  FOREBAY_DEVICE std::uint32_t end(std::uint32_t at, std::uint32_t most) const {
    std::uint32_t const count = (at + pool.before()) / pool.stride + 1;
    return count < most ? count : most;
  }
};

/// For each float of `out`, which has one pixel an image.
struct average_pool_forward {
  tensor in, out;
  float const* from;
  float* to;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    float sum = 0;
    for (std::uint32_t y = 0; y < in.height; ++y) {
      std::uint32_t const row = in.pixel(i / out.channels, y, 0) * in.channels + i % out.channels;
      for (std::uint32_t x = 0; x < in.width; ++x) sum += from[row + x * in.channels];
    }
    to[i] = sum / static_cast<float>(in.height * in.width);
  }
};
/// For each float of `in`.
struct average_pool_backward {
  tensor in, out;
  float const* from;
  float* to;
  bool adds;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    tensor::place const at = in.at(i / in.channels);
    float const share = from[at.image * out.channels + i % in.channels] / static_cast<float>(in.height * in.width);
    put(to + i, at.inside ? share : 0, adds);
  }
};

/// For each float of `out`.
struct join_forward {
  tensor enlarged, other, out;
  float const* from_enlarged;
  float const* from_other;
  float* to;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    std::uint32_t const channel = i % out.channels;
    tensor::place const at = out.at(i / out.channels);
    float value = 0;
    if (at.inside && channel < enlarged.channels) {
      value = from_enlarged[enlarged.pixel(at.image, at.y / 2, at.x / 2) * enlarged.channels + channel];
    } else if (at.inside) {
      value = from_other[other.pixel(at.image, at.y, at.x) * other.channels + channel - enlarged.channels];
    }
    to[i] = value;
  }
};
/// For each float of an input, whose channels begin at `channel` in `out`; `factor` is 2 for the one that was enlarged.
struct join_backward {
  tensor in, out;
  std::uint32_t channel, factor;
  float const* from;
  float* to;
  bool adds;

  FOREBAY_DEVICE void operator()(std::uint32_t i) const {
    tensor::place const at = in.at(i / in.channels);
    float sum = 0;
    if (at.inside) {
      for (std::uint32_t k = 0; k < factor * factor; ++k) {
        std::uint32_t const pixel = out.pixel(at.image, at.y * factor + k / factor, at.x * factor + k % factor);
        sum += from[pixel * out.channels + channel + i % in.channels];
      }
    }
    put(to + i, sum, adds);
  }
};

/// Back through the activation and the scale of a convolution, for each channel and group of pixels. Leaves what the
/// group adds to the gradients of scale and shift.
struct activation_backward {
  static constexpr std::uint32_t group_pixels = 32;
  tensor shape;
  float const* values;
  float const* sums;
  float const* scales;
  float const* shifts;
  float const* from;  ///< the gradient of `values`
  float* to;          ///< that of `sums`
  float* to_shortcut;
  bool adds;  ///< to the gradient of the shortcut
  bool adds_first;
  float slope;
  float* partials;  ///< for each group: as many for the scales as there are channels, then for the shifts

  FOREBAY_DEVICE static std::uint32_t groups(tensor const& t) { return (t.pixels() + group_pixels - 1) / group_pixels; }
  /// The value before the activation is positive.
  FOREBAY_DEVICE bool is_active(std::size_t i, std::uint32_t channel) const {
    return adds_first ? values[i] > 0 : fmaf(scales[channel], sums[i], shifts[channel]) > 0;
  }
  FOREBAY_DEVICE void operator()(std::uint32_t index) const {
    std::uint32_t const channel = index % shape.channels, group = index / shape.channels;
    std::uint32_t const end = (group + 1) * group_pixels;
    float of_scale = 0, of_shift = 0;
    for (std::uint32_t pixel = group * group_pixels; pixel < end && pixel < shape.pixels(); ++pixel) {
      std::size_t const i = std::size_t{pixel} * shape.channels + channel;
      float const inner = is_active(i, channel) ? from[i] : slope * from[i];
      if (to_shortcut != nullptr) put(to_shortcut + i, adds_first ? inner : from[i], adds);
      to[i] = inner * scales[channel];
      of_scale += inner * sums[i];
      of_shift += inner;
    }
    partials[2 * group * shape.channels + channel] = of_scale;
    partials[(2 * group + 1) * shape.channels + channel] = of_shift;
  }
};

/// A step of scales and shifts down their gradients: a warp for each channel.
template <class M>
struct parameter_step {
  std::uint32_t channels, groups;
  float const* partials;
  float* scales;  ///< null: they are not learnt
  float* shifts;
  float rate;

  FOREBAY_DEVICE void operator()() const {
    auto const lanes = M::this_warp();
    for (std::uint32_t warp = M::thread_rank() / 32; warp < channels; warp += M::thread_count() / 32) {
      float of_scale = 0, of_shift = 0;
      for (std::uint32_t g = lanes.thread_rank(); g < groups; g += 32) {
        of_scale += partials[2 * g * channels + warp];
        of_shift += partials[(2 * g + 1) * channels + warp];
      }
      for (std::uint32_t d = 16; d != 0; d /= 2) {
        of_scale += lanes.shfl(of_scale, lanes.thread_rank() ^ d);
        of_shift += lanes.shfl(of_shift, lanes.thread_rank() ^ d);
      }
      if (lanes.thread_rank() != 0) continue;
      if (scales != nullptr) scales[warp] -= rate * of_scale;
      shifts[warp] -= rate * of_shift;
    }
  }
};

/// What a network says: a warp for each pixel. A classifier tells probabilities, and its loss is the cross entropy; a
/// detector tells boxes and how likely they are, and its loss is half the sum of squares of the pixel's numbers less
/// their targets. Losses are averaged over images, and over the cells of a head.
template <class M>
struct head {
  tensor shape;
  std::uint32_t outputs;
  bool detects;
  float const* values;
  float const* targets;  ///< null: no training. A number for each output, or for a classifier the class
  float* results;        ///< all outputs of each cell; in training its loss
  float* gradients;
  float share;  ///< of a cell in the loss

  FOREBAY_DEVICE void operator()() const {
    for (std::uint32_t pixel = M::thread_rank() / 32; pixel < shape.pixels(); pixel += M::thread_count() / 32) {
      tensor::place const at = shape.at(pixel);
      std::uint32_t const cell = (at.image * shape.height + at.y) * shape.width + at.x;
      std::size_t const row = std::size_t{pixel} * shape.channels;
      if (!at.inside) {
        // The halo of a gradient.
        for (std::uint32_t c = lane(); targets != nullptr && c < shape.channels; c += 32) gradients[row + c] = 0;
      } else if (detects) {
        detect(cell, row);
      } else {
        classify(cell, row);
      }
    }
  }

 private:
  FOREBAY_DEVICE static std::uint32_t lane() { return M::this_warp().thread_rank(); }
  FOREBAY_DEVICE static float sum_of_lanes(float value) {
    for (std::uint32_t d = 16; d != 0; d /= 2) value += M::this_warp().shfl(value, lane() ^ d);
    return value;
  }

  FOREBAY_DEVICE void classify(std::uint32_t cell, std::size_t row) const {
    float const* const logits = values + row;
    float most = logits[0];
    for (std::uint32_t c = lane(); c < outputs; c += 32) most = logits[c] > most ? logits[c] : most;
    for (std::uint32_t d = 16; d != 0; d /= 2) {
      float const other = M::this_warp().shfl(most, lane() ^ d);
      most = other > most ? other : most;
    }
    float sum = 0;
    for (std::uint32_t c = lane(); c < outputs; c += 32) sum += expf(logits[c] - most);
    sum = sum_of_lanes(sum);
    if (targets == nullptr) {
      for (std::uint32_t c = lane(); c < outputs; c += 32) {
        results[std::size_t{cell} * outputs + c] = expf(logits[c] - most) / sum;
      }
      return;
    }
    auto const label = static_cast<std::uint32_t>(targets[cell]);
    for (std::uint32_t c = lane(); c < shape.channels; c += 32) {
      gradients[row + c] = c < outputs ? (expf(logits[c] - most) / sum - (c == label ? 1.0f : 0.0f)) * share : 0;
    }
    if (lane() == 0) results[cell] = logf(sum) - (logits[label] - most);
  }

  FOREBAY_DEVICE void detect(std::uint32_t cell, std::size_t row) const {
    float const* const numbers = values + row;
    if (targets == nullptr) {
      for (std::uint32_t c = lane(); c < outputs; c += 32) {
        // A cell has three boxes. A box is x, y, width, height, whether there is one, and the classes. Width and height
        // stay as they are.
        std::uint32_t const of_box = c % (outputs / 3);
        bool const is_size = of_box == 2 || of_box == 3;
        results[std::size_t{cell} * outputs + c] = is_size ? numbers[c] : 1 / (1 + expf(-numbers[c]));
      }
      return;
    }
    float sum = 0;
    for (std::uint32_t c = lane(); c < shape.channels; c += 32) {
      float const off = c < outputs ? numbers[c] - targets[std::size_t{cell} * outputs + c] : 0;
      gradients[row + c] = off * share;
      sum += off * off;
    }
    sum = sum_of_lanes(sum);
    if (lane() == 0) results[cell] = sum / 2;
  }
};

}  // namespace forebay::transfer
