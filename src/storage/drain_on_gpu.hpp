// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of `storage::drain` that needs a GPU.
#pragma once

#include <cstdint>

#include "forebay/queue/io_queues.hpp"

namespace forebay::detail {

/// Runs `drain_kernel` on GPU `ordinal`; whether no pair was left busy.
bool drain_on_gpu(io_queues const& queues, int ordinal, std::uint64_t timeout_ns);

}  // namespace forebay::detail
