// SPDX-License-Identifier: Apache-2.0
//! \file
//! The options of a storage's cache.
#pragma once

#include <cstdint>

#include "forebay/clock.hpp"
#include "forebay/replacement_policy.hpp"

namespace forebay {

/// Sizes in bytes count the pages' bytes. The bookkeeping of each page takes some 19 to 25 bytes more.
struct cache_options {
  std::uint64_t size_bytes = 0;  ///< of pages kept in the device's memory, a multiple of 16 pages; 0: no cache
  /// A power of two, 512 to 65536. With a cache, the drives are read in units of this size.
  std::uint32_t page_bytes = 4096;
  std::uint32_t overflow_frames = 256;  ///< pages for accesses that find every frame of their set in use
  bool statistics = false;              ///< count what the cache does; refs must then have traits that are `counted`
  /// The policy that chooses the page to evict: `replacement_policy::of<replacement::s3_fifo>()`, or the user's own.
  replacement_policy policy = replacement_policy::of<replacement::clock>();
  std::uint32_t user_frames =
      0;  ///< user buffers that kernels may share as pages at a time; refs then need `pools` with sharing
  /// Bytes of pages that have left the cache and stay in host memory: a multiple of `size_bytes`; 0: none.
  std::uint64_t host_size_bytes = 0;
  /// The policy that chooses the page that leaves the host memory.
  replacement_policy host_policy = replacement_policy::of<replacement::clock>();

  /// The frames that lie in the cache's own memory.
  std::uint64_t own_frames() const { return size_bytes / page_bytes + overflow_frames; }
  std::uint64_t frames() const { return own_frames() + user_frames; }
  /// The bytes of those frames: registered memory that the threads and every drive reach.
  std::uint64_t frame_memory_bytes() const { return own_frames() * page_bytes; }
};

}  // namespace forebay
