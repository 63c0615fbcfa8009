// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kernels that a storage itself runs on its GPU. Each call returns when the kernel has ended.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/cache/clean.hpp"
#include "forebay/detail/queue/io_queues.hpp"

namespace forebay::detail {

/// Must be called before a drive's engine runs in the process: from then on the GPU is never idle, and calls that wait
/// for it to be idle wait for ever. Loads all kernels. Gives the GPU stacks for any kernel that uses a storage, since a
/// launch that needs more than any before it waits, too.
void prepare_gpu(int ordinal);
/// Loads the kernels of libraries that the process has loaded since. Must be called before the engine runs again.
void load_kernels(int ordinal);
/// Consumes completions until no command is in flight. Returns whether no pair was left busy. `pages`: the cache whose
/// frames commands may complete to, or null.
bool drain_on_gpu(io_queues const& queues, cache const* pages, int ordinal, std::uint64_t timeout_ns);
/// Waits until each command that is in flight now is over. Returns how many of them were given up.
std::uint32_t settle_on_gpu(io_queues const& queues, cache const* pages, int ordinal);
/// Runs `clean_kernel` over all frames.
clean_result clean_on_gpu(cache const& pages, int ordinal);
/// Runs `clean_range_kernel` and `forget_kernel` over a range of pages.
clean_result clean_range_on_gpu(cache const& pages, std::uint64_t first_page, std::uint64_t count, int ordinal);
clean_result forget_on_gpu(cache const& pages, std::uint64_t first_page, std::uint64_t count, int ordinal);
/// Runs `take_back_kernel` over all shared buffers in a range of memory.
clean_result take_back_on_gpu(cache const& pages, std::byte const* first, std::uint64_t bytes, int ordinal);

}  // namespace forebay::detail
