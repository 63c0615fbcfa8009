// SPDX-License-Identifier: Apache-2.0
//! \file
//! Draws in which few items are frequent and most are rare.
#pragma once

#include <cmath>
#include <cstdint>

#include "forebay/machine.hpp"

namespace forebay::apps {

/// Zipf's law over `items` items: item k, from 0, has a weight of 1 / (k + 1)^skew. Needs no table, so any number of
/// items costs the same, and threads of a kernel can each draw. By rejection-inversion (Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6(3), 1996): a draw from
/// the density x^-skew, rounded, and accepted with the probability that corrects the rounding, which is nearly always.
///
/// Trivially copyable. The distribution is the same on every machine. With the same random numbers a draw may still,
/// very rarely, differ between machines, because their mathematical functions round differently.
class zipf {
 public:
  /// \param items 1 to 2^52.
  /// \param skew 0 (all alike) or more.
  FOREBAY_DEVICE zipf(std::uint64_t items, double skew)
      : items_(items),
        skew_(skew),
        area_begin_(area(1.5) - 1),
        area_end_(area(static_cast<double>(items) + 0.5)),
        always_within_(2 - inverse_area(area(2.5) - density(2))) {}

  FOREBAY_DEVICE std::uint64_t items() const { return items_; }

  /// Draws an item from numbers of `random.next()`, 64 random bits each; usually it needs one of them.
  template <class Random>
  FOREBAY_DEVICE std::uint64_t operator()(Random& random) const {
    double rank = 1;
    // At most one draw in fifty is repeated, whatever the skew, so in practice the bound is never reached.
    for (std::uint32_t turn = 0; turn < 16; ++turn) {
      double const uniform = (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53;
      double const at = area_end_ + uniform * (area_begin_ - area_end_);
      double const x = inverse_area(at);
      rank = std::floor(x + 0.5);
      if (rank < 1) rank = 1;
      if (rank > static_cast<double>(items_)) rank = static_cast<double>(items_);
      if (rank - x <= always_within_ || at >= area(rank + 0.5) - density(rank)) break;
    }
    return static_cast<std::uint64_t>(rank) - 1;
  }

 private:
  FOREBAY_DEVICE double density(double x) const { return std::exp(-skew_ * std::log(x)); }
  /// The integral of the density from 1 to x, (x^(1 - skew) - 1) / (1 - skew), exact where skew is close to 1 too.
  FOREBAY_DEVICE double area(double x) const {
    double const log_x = std::log(x);
    double const t = (1 - skew_) * log_x;
    return t == 0 ? log_x : std::expm1(t) / t * log_x;
  }
  FOREBAY_DEVICE double inverse_area(double area) const {
    double t = (1 - skew_) * area;
    // If rounding took it over the end of the density's tail.
    if (t < -1 + 0x1p-53) t = -1 + 0x1p-53;
    return std::exp(t == 0 ? area : std::log1p(t) / t * area);
  }

  std::uint64_t items_;
  double skew_;
  double area_begin_;  ///< of what is drawn from: item 0 is all the area below 1.5, as much as its weight
  double area_end_;
  double always_within_;  ///< a rank that was rounded up by at most this needs no other test
};

}  // namespace forebay::apps
