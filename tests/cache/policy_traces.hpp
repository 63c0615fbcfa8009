// SPDX-License-Identifier: Apache-2.0
//! \file
//! Traces of page numbers to compare replacement policies on, the same for a seed on every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/random.hpp"

namespace forebay::test {

using trace_of_pages = std::vector<std::uint64_t>;

/// `accesses` draws from pages 0 to `pages` - 1, page k with a weight of 1 / (k + 1)^skew.
inline trace_of_pages zipf_trace(std::uint64_t pages, double skew, std::size_t accesses, std::uint64_t seed) {
  std::vector<double> below(pages);
  double sum = 0;
  for (std::uint64_t k = 0; k < pages; ++k) below[k] = sum += std::pow(static_cast<double>(k + 1), -skew);
  apps::splitmix64 random(seed, 0);
  trace_of_pages trace(accesses);
  for (auto& page : trace) {
    double const at = sum * static_cast<double>(random.next() >> 11) * 0x1p-53;
    page = static_cast<std::uint64_t>(std::upper_bound(below.begin(), below.end() - 1, at) - below.begin());
  }
  return trace;
}

/// Pages `first` to `first + pages` - 1 one after the other, again and again.
inline trace_of_pages loop_trace(std::uint64_t first, std::uint64_t pages, std::size_t accesses) {
  trace_of_pages trace(accesses);
  for (std::size_t k = 0; k < accesses; ++k) trace[k] = first + k % pages;
  return trace;
}

/// Two accesses of `one`, one of `other`, while both last.
inline trace_of_pages mixed_trace(trace_of_pages const& one, trace_of_pages const& other) {
  trace_of_pages trace;
  for (std::size_t k = 0; 2 * k + 1 < one.size() && k < other.size(); ++k) {
    trace.insert(trace.end(), {one[2 * k], one[2 * k + 1], other[k]});
  }
  return trace;
}

}  // namespace forebay::test
