// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a storage's cache is to be like.
#pragma once

#include <cstdint>

#include "forebay/clock.hpp"
#include "forebay/replacement_policy.hpp"

namespace forebay {

/// Sizes in bytes are of pages' bytes; what is known of a page takes some 19 to 25 bytes more.
struct cache_options {
  std::uint64_t size_bytes = 0;  ///< of pages kept in the device's memory, a multiple of 16 pages; 0: no cache
  /// A power of two, 512 to 65536. What the drives are read by where there is a cache.
  std::uint32_t page_bytes = 4096;
  std::uint32_t overflow_frames = 256;  ///< pages for accesses that find every frame of their set in use
  bool statistics = false;              ///< count what the cache does; refs must then have traits that are `counted`
  /// Which page leaves: `replacement_policy::of<replacement::s3_fifo>()`, or the user's own.
  replacement_policy policy = replacement_policy::of<replacement::clock>();
  std::uint32_t user_frames = 0;  ///< buffers that kernels may share as pages at once; refs then need such `pools`
  /// Of pages that left the cache, kept in host memory: a multiple of `size_bytes`; 0: none.
  std::uint64_t host_size_bytes = 0;
  /// Which page leaves the host memory.
  replacement_policy host_policy = replacement_policy::of<replacement::clock>();

  /// Those that the cache has memory of its own for.
  std::uint64_t own_frames() const { return size_bytes / page_bytes + overflow_frames; }
  std::uint64_t frames() const { return own_frames() + user_frames; }
  /// What the frames take: registered memory that the threads and every drive reach.
  std::uint64_t frame_memory_bytes() const { return own_frames() * page_bytes; }
};

}  // namespace forebay
