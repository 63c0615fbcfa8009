// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which part of a buffer belongs to which request of which thread.
#pragma once

#include <cstdint>

#include "forebay/buffer_ref.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// Shares a buffer out: each thread of a grid has `Depth` slots of `bytes` bytes, one after the other; the threads
/// follow in the order of their ranks. Trivially copyable. With `pipeline<Depth>`, the `slot` that its functions get is
/// the index here.
template <class M, std::uint32_t Depth>
class slots {
 public:
  using machine = M;
  static constexpr std::uint32_t depth = Depth;  ///< slots of a thread
  static_assert(Depth >= 1, "slots<M, Depth> has 1 slot or more for each thread");

  slots() = default;
  /// `buffer`: at least `size_bytes(threads, bytes)` for a grid of that many threads. A slot beyond the buffer, or
  /// beyond `Depth`, is empty, and every transfer rejects it.
  FOREBAY_DEVICE slots(buffer_ref const& buffer, std::uint64_t bytes) : buffer_(buffer), bytes_(bytes) {}

  /// The bytes that `threads` threads need.
  FOREBAY_DEVICE static constexpr std::uint64_t size_bytes(std::uint64_t threads, std::uint64_t bytes) {
    return threads * Depth * bytes;
  }
  /// The calling thread's slot, 0 to `Depth - 1`.
  FOREBAY_DEVICE buffer_ref operator[](std::uint32_t slot) const { return of(M::thread_rank(), slot); }
  /// The slot of another thread.
  FOREBAY_DEVICE buffer_ref of(std::uint64_t thread, std::uint32_t slot) const {
    return slot < Depth ? buffer_.subspan((thread * Depth + slot) * bytes_, bytes_) : buffer_ref();
  }

 private:
  buffer_ref buffer_;
  std::uint64_t bytes_ = 0;
};

}  // namespace forebay
