// SPDX-License-Identifier: Apache-2.0
//! \file
//! How much memory this machine has.
#pragma once

#include <cstdint>

namespace forebay::memory {

/// All of it, in bytes. Thread-safe, like the next.
std::uint64_t machine_bytes();
/// What programs can have without anything being swapped, in bytes; 0 where the system does not say.
std::uint64_t available_bytes();

}  // namespace forebay::memory
