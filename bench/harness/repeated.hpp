// SPDX-License-Identifier: Apache-2.0
//! \file
//! Runs of one case: the machine under a benchmark is seldom its own, so the median counts.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace forebay::bench {

inline constexpr int runs_per_case = 5;

/// `seconds`, in order, and `median_s`.
inline nlohmann::json with_median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  double const median_s = seconds[seconds.size() / 2];
  return {{"seconds", std::move(seconds)}, {"median_s", median_s}};
}

/// One run that is not counted, then `runs_per_case`. `once` returns how many seconds it took.
template <class Run>
nlohmann::json timed(Run&& once) {
  once();
  std::vector<double> seconds;
  for (int i = 0; i < runs_per_case; ++i) seconds.push_back(once());
  return with_median(std::move(seconds));
}

}  // namespace forebay::bench
