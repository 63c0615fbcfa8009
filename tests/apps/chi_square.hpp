// SPDX-License-Identifier: Apache-2.0
//! \file
//! Tests whether counts fit a distribution.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace forebay::test {

/// Pearson's statistic of `counts` against `probabilities`, divided by the value that it exceeds once in 10^9 times if
/// they fit: more than 1 means that they do not fit. Outcomes that are expected fewer than ten times are taken together
/// with the next ones.
inline double chi_square_excess(std::vector<std::uint64_t> const& counts, std::vector<double> const& probabilities) {
  double draws = 0;
  for (std::uint64_t const n : counts) draws += static_cast<double>(n);
  double statistic = 0, expected = 0, seen = 0;
  std::uint64_t bins = 0;
  double left = draws;  // expected of outcomes not yet in a bin
  for (std::size_t k = 0; k < counts.size(); ++k) {
    expected += draws * probabilities[k];
    seen += static_cast<double>(counts[k]);
    bool const last = k + 1 == counts.size();
    if (!last && (expected < 10 || left - expected < 10)) continue;
    statistic += (seen - expected) * (seen - expected) / expected;
    ++bins;
    left -= expected;
    expected = seen = 0;
  }
  // The quantile of chi-square by Wilson and Hilferty's approximation; 6 is the normal distribution's.
  double const freedom = bins > 1 ? static_cast<double>(bins - 1) : 1;
  double const spread = 2 / (9 * freedom);
  return statistic / (freedom * std::pow(1 - spread + 6 * std::sqrt(spread), 3));
}

/// The probabilities of Zipf's law, summed one by one.
inline std::vector<double> zipf_probabilities(std::uint64_t items, double skew) {
  std::vector<double> p(items);
  double sum = 0;
  // The small outcomes first, so that they count.
  for (std::uint64_t k = items; k-- > 0;) sum += p[k] = std::pow(static_cast<double>(k + 1), -skew);
  for (double& each : p) each /= sum;
  return p;
}

}  // namespace forebay::test
