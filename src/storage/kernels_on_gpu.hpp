// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a storage does by kernels of its own on its GPU. Each call returns when the kernel has ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/cache/cache.hpp"
#include "forebay/cache/clean.hpp"
#include "forebay/queue/io_queues.hpp"

namespace forebay::detail {

/// Makes the GPU have stacks for whatever kernel uses a storage. A launch that needs more than any before it waits
/// until the GPU is idle, for ever where a drive's engine runs in the same process.
void reserve_stacks_on_gpu(int ordinal);
/// Consumes completions until no command is in flight; whether no pair was left busy. `pages`: the cache whose frames
/// commands may complete to, or null.
bool drain_on_gpu(io_queues const& queues, cache const* pages, int ordinal, std::uint64_t timeout_ns);
/// `clean_kernel` over all frames.
clean_result clean_on_gpu(cache const& pages, int ordinal, std::uint64_t timeout_ns);
/// `forget_kernel` over a range of pages.
clean_result forget_on_gpu(cache const& pages, std::uint64_t first_page, std::uint64_t count, int ordinal,
                           std::uint64_t timeout_ns);
/// `take_back_kernel` over all shared buffers in a range of memory.
clean_result take_back_on_gpu(cache const& pages, std::byte const* first, std::uint64_t bytes, int ordinal,
                              std::uint64_t timeout_ns);

}  // namespace forebay::detail
