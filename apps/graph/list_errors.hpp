// SPDX-License-Identifier: Apache-2.0
//! \file
//! What kernels found wrong with the neighbour lists that they read.
#pragma once

#include <cstdint>

#include "apps/common/failure_latch.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

/// Values that are out of range. In the memory of the machine, zeroed; read by the host between launches.
struct range_latch {
  std::uint64_t count = 0;
  std::uint32_t first = 0;  ///< the value that was counted first; nothing if there is none

  /// Whether `value` is below `bound`; otherwise the latch counts it.
  template <class M>
  FOREBAY_DEVICE bool passes(std::uint32_t value, std::uint32_t bound) {
    if (value < bound) return true;
    keep<M>(value);
    return false;
  }

 private:
  template <class M>
  FOREBAY_COLD void keep(std::uint32_t value) {
    // relaxed, both: the host reads them after the grid has ended. The caller that counted first is the only writer.
    if (simt::atomic<M>(count).fetch_add(1, simt::order::relaxed) == 0) {
      simt::atomic<M>(first).store(value, simt::order::relaxed);
    }
  }
};

/// If there is any error, the results of the algorithm are not valid.
struct list_errors {
  apps::failure_latch failure;  ///< pages that could not be had
  range_latch vertices;         ///< neighbours that are no vertex of the graph

  bool any() const { return failure.failures != 0 || vertices.count != 0; }
  void add(list_errors const& more) {
    if (more.failure.failures != 0) failure.status_bits = more.failure.status_bits;
    failure.failures += more.failure.failures;
    if (vertices.count == 0) vertices.first = more.vertices.first;
    vertices.count += more.vertices.count;
  }
};

}  // namespace forebay::graph
