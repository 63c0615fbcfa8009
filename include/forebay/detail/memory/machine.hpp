// SPDX-License-Identifier: Apache-2.0
//! \file
//! How much memory this machine has.
#pragma once

#include <cstdint>

namespace forebay::memory {

/// All of it, in bytes. Thread-safe, like the next.
std::uint64_t machine_bytes();
/// How much memory programs can still get without swapping, in bytes; 0 if the system does not say.
std::uint64_t available_bytes();

}  // namespace forebay::memory
