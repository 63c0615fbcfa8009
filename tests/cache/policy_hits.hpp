// SPDX-License-Identifier: Apache-2.0
//! \file
//! How often a cache of many sets hits, on the CPU and on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "policy_set.hpp"
#include "policy_traces.hpp"

namespace forebay::test {

/// A cache of many sets; page p is in set p % sets.
template <class Policy>
std::vector<std::uint64_t> hits_by_set(trace_of_pages const& trace, std::uint32_t sets, std::uint32_t ways) {
  std::vector<policy_set<simt::native, Policy>> cache(sets, policy_set<simt::native, Policy>(ways));
  std::vector<std::uint64_t> hits(sets);
  for (std::uint64_t const page : trace) {
    hits[page % sets] += cache[page % sets].use(static_cast<std::uint32_t>(page / sets)) ? 1 : 0;
  }
  return hits;
}

/// The same on GPU 0.
template <class Policy>
std::vector<std::uint64_t> hits_by_set_on_gpu(trace_of_pages const& trace, std::uint32_t sets, std::uint32_t ways);

}  // namespace forebay::test
