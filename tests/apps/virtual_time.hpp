// SPDX-License-Identifier: Apache-2.0
//! \file
//! A native thread in virtual time: each evaluation of a predicate that does not hold takes a microsecond.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "forebay/detail/simt/native.hpp"

namespace forebay::testing {

struct virtual_time : simt::native {
  static inline std::uint64_t now_ns = 0;
  static inline std::function<void()> before_waiting;  ///< may be empty
  static constexpr std::uint64_t evaluation_ns = 1000;

  static std::uint64_t clock_ns() { return now_ns; }
  template <class Predicate>
  [[nodiscard]] static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns) {
    if (before_waiting) before_waiting();
    for (;;) {
      if (predicate()) return true;
      if (now_ns >= deadline_ns) return false;
      now_ns += std::min(evaluation_ns, deadline_ns - now_ns);
    }
  }
};

}  // namespace forebay::testing
