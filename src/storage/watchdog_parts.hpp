// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a watchdog is made of.
#pragma once

#include <cstdint>
#include <thread>

#include "forebay/watchdog.hpp"
#include "storage/inspector.hpp"

namespace forebay {

struct watchdog::parts {
  /// `clock_ns`: of the kernels; `timeout_ns`: of the storage. Throws `refused_input`.
  parts(detail::inspected what, std::uint64_t (*clock_ns)(), std::uint64_t timeout_ns, watchdog_options options);

  std::jthread thread;
};

}  // namespace forebay
