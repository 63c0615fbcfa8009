// SPDX-License-Identifier: Apache-2.0
//! \file
//! One operation of a trace.
#pragma once

#include <cstdint>

namespace forebay::replay {

enum class operation_kind : std::uint32_t { read, write, flush };

/// One operation of a trace. Python fills arrays of it: the layout is fixed.
struct operation {
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;  ///< 0 for a flush
  std::uint64_t at_ns = 0;  ///< when it is due, after the replay's begin; only in an open loop
  operation_kind kind = operation_kind::read;
  std::uint32_t line = 0;  ///< of the trace file, from 1
};
static_assert(sizeof(operation) == 32);

}  // namespace forebay::replay
