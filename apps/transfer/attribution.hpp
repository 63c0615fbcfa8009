// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a run's time went to: an exclusive division of its timeline, from records that overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace forebay::transfer {

/// What is under way. Where several are, the first in this order has the time.
enum class activity_kind : std::uint8_t {
  copy,        ///< a copy, or pages that move
  kernel,      ///< a kernel
  allocation,  ///< calls that allocate or free memory
  host,        ///< threads of the host that copy or touch bytes
  call,        ///< another call of CUDA, which prepares work or waits for it
};
inline constexpr std::size_t activity_kinds = 5;

/// From `begin_ns` to `end_ns`, on any clock.
struct time_span {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

struct activity {
  activity_kind kind;
  time_span when;
};

/// Of a run, in nanoseconds.
struct attribution {
  std::int64_t total = 0;
  std::int64_t exclusive[activity_kinds] = {};  ///< by kind. With `unattributed` they add up to `total`
  std::int64_t unattributed = 0;
  std::int64_t sums[activity_kinds] = {};  ///< of the activities themselves, within the run. They may overlap

  /// The part of the run in which something was under way. 1 if the run took no time.
  double covered() const;
};

/// Divides a run, which is one or more parts that do not overlap. What lies outside of them does not count. The
/// activities may be in any order. Throws `operation_failed` if an activity or a part ends before it begins.
attribution divide(std::vector<activity> const& activities, std::vector<time_span> const& run);

}  // namespace forebay::transfer
