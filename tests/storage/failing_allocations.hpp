// SPDX-License-Identifier: Apache-2.0
//! \file
//! An operator new for a whole program that fails when it is told to.
#pragma once

#include <cstdint>

namespace forebay::test {

/// Of the calling thread, without what it does for drives while it waits: how many more allocations succeed before one
/// throws `std::bad_alloc`; below 0: all do.
extern thread_local std::int64_t allocations_left;
/// Set when an allocation has thrown.
extern thread_local bool allocation_failed;

}  // namespace forebay::test
