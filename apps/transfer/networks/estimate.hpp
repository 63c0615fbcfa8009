// SPDX-License-Identifier: Apache-2.0
//! \file
//! Exact results in double precision, and how far those of kernels may be from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace forebay::transfer {

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

/// The greatest of some logits, and the sum of the exponentials of all less that. `error`, relative: exponentials are
/// off by two ulps, and by the rounding of their argument; 32 lanes add up to 32 of them each.
struct softmax {
  double most, sum = 0, error;

  softmax(float const* logits, std::uint32_t count) {
    auto const [least, greatest] = std::minmax_element(logits, logits + count);
    most = *greatest;
    error = half_ulp * (64 + 4 * (most - *least));
    for (std::uint32_t c = 0; c < count; ++c) sum += std::exp(logits[c] - most);
  }
};

}  // namespace forebay::transfer
