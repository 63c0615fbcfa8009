// SPDX-License-Identifier: Apache-2.0
//! \file
//! A barrier in the shared memory of a block, at which threads and the bytes of bulk copies arrive.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

/// Lies in shared memory, at a multiple of 8 bytes. One phase follows the other: the first has parity 0, the next 1,
/// then 0 again. A phase ends when as many threads have arrived as `init` said, and all bytes that it expects. Threads
/// of the block may call everything at the same time, except `init`. Only on machines that have `has_bulk_copies`.
template <class M>
class bulk_barrier {
 public:
  /// Called by one thread, before a block barrier; the others use the object after that. `arrivals`: 1 to 1024.
  FOREBAY_DEVICE void init(std::uint32_t arrivals) { M::init_barrier(word_, arrivals); }
  /// The current phase waits for `bytes` more bytes. The caller has not yet arrived in this phase. At most 2^20 - 1
  /// bytes may be missing at a time.
  FOREBAY_DEVICE void expect(std::uint32_t bytes) { M::expect_bytes(word_, bytes); }
  FOREBAY_DEVICE void arrive() { M::arrive_at_barrier(word_); }
  /// Starts to copy `bytes` bytes of global memory to shared memory; both addresses and `bytes` are multiples of 16.
  /// The bytes arrive in a phase that expects them.
  FOREBAY_DEVICE void copy_bulk(void* to, void const* from, std::uint32_t bytes) {
    M::copy_bulk(to, from, bytes, word_);
  }
  /// Returns when the phase of `parity` has ended. The caller then sees the bytes that arrived in it, and what threads
  /// did before they arrived. The next phase must not end before the caller has looked.
  FOREBAY_DEVICE void wait(std::uint32_t parity) {
    // Without a deadline: copies end, and the threads that arrive are of the caller's own block.
    M::check(M::wait_until([&] { return M::barrier_passed(word_, parity); }, no_deadline), "the phase has ended");
  }

 private:
  std::uint64_t word_;
};

}  // namespace forebay::simt
