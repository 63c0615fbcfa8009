// SPDX-License-Identifier: Apache-2.0
//! \file
//! More places for bytes: host memory of one NUMA node, and memory that moves between the host and a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/memory.hpp"

namespace forebay::memory {

/// Page-locked host memory as `pinned()` gives it, on NUMA node `node`. Throws like `pinned()`, and `refused_input` for
/// a node that this machine does not have.
resource& pinned_on(int node);
/// Managed memory: its pages move to the host or to GPU `ordinal`, whichever touches them. Throws like `device()`.
resource& managed(int ordinal);
/// How many bytes of GPU `ordinal` `device()` could give, those included that this process keeps for later. Throws like
/// `device()`.
std::uint64_t free_bytes(int ordinal);
/// Has the pages of [address, address + bytes), which nobody has touched yet, come from NUMA node `node`. Throws
/// `refused_input` for a node that this machine does not have, and `operation_failed` if Linux does not allow it.
void bind_to_node(void* address, std::size_t bytes, int node);

}  // namespace forebay::memory
