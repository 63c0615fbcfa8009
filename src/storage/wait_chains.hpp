// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which thread waits for which, from the notes of wait_trace.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "forebay/detail/queue/wait_trace.hpp"

namespace forebay::detail {

/// The entries of `later` that are the same in `earlier`, none of them in the middle of a change. At some moment
/// between the two looks all of them held at once.
std::vector<traced_thread> unchanged(std::span<traced_thread const> earlier, std::span<traced_thread const> later);

/// Threads none of which can go on before another of them does.
struct circular_wait {
  std::vector<std::size_t> threads;  ///< indices of the entries; empty: there is none
  /// Each of these waits for the next, and the last for the first; one alone waits for itself.
  std::vector<std::size_t> cycle;
};

/// `threads` are of one moment. Beside locks and pins they wait for drives, and such a wait counts as one that ends. A
/// thread that is not among them, or does not say that it waits, counts as going on. So a circular wait that is found
/// is a deadlock, but not every deadlock is found.
circular_wait find_circular_wait(std::span<traced_thread const> threads);

/// Indices of the entries that pin a frame of `set`, each once, or `frame`, and of those that hold the lock of `set`.
std::vector<std::size_t> pinners_of_set(std::span<traced_thread const> threads, std::uint32_t set);
std::vector<std::size_t> pinners_of_frame(std::span<traced_thread const> threads, std::uint32_t frame);
std::vector<std::size_t> lockers_of_set(std::span<traced_thread const> threads, std::uint32_t set);

}  // namespace forebay::detail
