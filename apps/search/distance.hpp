// SPDX-License-Identifier: Apache-2.0
//! \file
//! How far two vectors are apart, as a warp computes it from their words.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "forebay/machine.hpp"

namespace forebay::search {

/// The type of a vector's components.
enum class element : std::uint8_t { u8, i8, f16, f32 };
/// The square of the Euclidean distance; the inner product with its sign turned round; 1 minus the cosine of the angle.
enum class metric : std::uint8_t { l2, inner_product, cosine };

FOREBAY_DEVICE constexpr std::uint32_t bytes_of(element e) {
  return e == element::f32 ? 4 : e == element::f16 ? 2 : 1;
}

/// The value of a finite IEEE half, exactly.
FOREBAY_DEVICE float half_to_float(std::uint32_t half) {
  std::uint32_t const magnitude = (half & 0x7fff) << 13;  // its exponent is too small by 127 - 15
  float value;
  std::memcpy(&value, &magnitude, sizeof value);
  value *= 0x1p112f;
  return (half & 0x8000) != 0 ? -value : value;
}

/// What one lane adds up of two vectors: of squares of differences, or of products. Integers add up exactly, also in
/// 32 bits, since a vector has at most `dimension_max` components.
struct distance_parts {
  static constexpr std::uint32_t dimension_max = 16384;

  std::uint32_t whole = 0;
  std::uint32_t whole_norm = 0;
  float real = 0;
  float real_norm = 0;

  /// Adds the components in a word of a query and in the same word of a vector.
  FOREBAY_DEVICE void add(element e, metric m, std::uint32_t query, std::uint32_t vector) {
    if (e == element::u8 || e == element::i8) {
      for (std::uint32_t byte = 0; byte < 4; ++byte) {
        std::int32_t const a = whole_at(e, query, byte), b = whole_at(e, vector, byte);
        std::int32_t const difference = a - b;
        whole += static_cast<std::uint32_t>(m == metric::l2 ? difference * difference : a * b);
        if (m == metric::cosine) whole_norm += static_cast<std::uint32_t>(b * b);
      }
    } else if (e == element::f16) {
      add_real(m, half_to_float(query & 0xffff), half_to_float(vector & 0xffff));
      add_real(m, half_to_float(query >> 16), half_to_float(vector >> 16));
    } else {
      float a, b;
      std::memcpy(&a, &query, sizeof a);
      std::memcpy(&b, &vector, sizeof b);
      add_real(m, a, b);
    }
  }

  /// The distance, from the parts of all lanes. `query_norm` is the length of the query; only the cosine needs it. A
  /// collective of a full warp.
  template <class M>
  FOREBAY_DEVICE float of_all_lanes(element e, metric m, float query_norm) const {
    auto const team = simt::team<M>::here();
    distance_parts all;
    if (e == element::u8 || e == element::i8) {
      all.whole = team.sum32(whole);
      if (m == metric::cosine) all.whole_norm = team.sum32(whole_norm);
    } else {
      all.real = sum_of<M>(real);
      if (m == metric::cosine) all.real_norm = sum_of<M>(real_norm);
    }
    return all.of_one_lane(e, m, query_norm);
  }
  /// The same if one lane added up everything.
  FOREBAY_DEVICE float of_one_lane(element e, metric m, float query_norm) const {
    bool const is_whole = e == element::u8 || e == element::i8;
    float const sum = is_whole ? static_cast<float>(static_cast<std::int32_t>(whole)) : real;
    if (m == metric::l2) return sum;
    if (m == metric::inner_product) return -sum;
    return 1 - sum / (query_norm * std::sqrt(is_whole ? static_cast<float>(whole_norm) : real_norm));
  }

 private:
  FOREBAY_DEVICE static std::int32_t whole_at(element e, std::uint32_t word, std::uint32_t byte) {
    std::uint32_t const bits = word >> 8 * byte & 0xff;
    return e == element::u8 ? static_cast<std::int32_t>(bits)
                            : static_cast<std::int32_t>(static_cast<std::int8_t>(bits));
  }
  FOREBAY_DEVICE void add_real(metric m, float a, float b) {
    float const difference = a - b;
    real += m == metric::l2 ? difference * difference : a * b;
    if (m == metric::cosine) real_norm += b * b;
  }
  /// Always in the same order, so that a distance is the same number in every search.
  template <class M>
  FOREBAY_DEVICE static float sum_of(float mine) {
    auto const warp = M::this_warp();
    for (std::uint32_t step = 16; step != 0; step /= 2) mine += warp.shfl(mine, warp.thread_rank() ^ step);
    return mine;
  }
};

}  // namespace forebay::search
