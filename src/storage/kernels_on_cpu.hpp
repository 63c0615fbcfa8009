// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernels that a storage itself runs on the CPU: each call runs one on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/cache/clean.hpp"
#include "forebay/detail/queue/io_queues.hpp"

namespace forebay::detail {

/// Consumes completions until no command is in flight. Returns whether no pair was left busy. `pages`: the cache whose
/// frames commands may complete to, or null.
bool drain_on_cpu(io_queues const& queues, cache const* pages, std::uint64_t timeout_ns);
/// Waits until each command that is in flight now is over. Returns how many of them were given up.
std::uint32_t settle_on_cpu(io_queues const& queues, cache const* pages);
/// Runs `clean_kernel` over all frames.
clean_result clean_on_cpu(cache const& pages);
/// Runs `clean_range_kernel` and `forget_kernel` over a range of pages.
clean_result clean_range_on_cpu(cache const& pages, std::uint64_t first_page, std::uint64_t count);
clean_result forget_on_cpu(cache const& pages, std::uint64_t first_page, std::uint64_t count);
/// Runs `take_back_kernel` over all shared buffers in a range of memory.
clean_result take_back_on_cpu(cache const& pages, std::byte const* first, std::uint64_t bytes);

}  // namespace forebay::detail
