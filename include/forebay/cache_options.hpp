// SPDX-License-Identifier: Apache-2.0
//! \file
//! The options of a storage's cache.
#pragma once

#include <cstdint>

#include "forebay/clock.hpp"
#include "forebay/replacement_policy.hpp"

namespace forebay {

/// The cache of a storage: frames in the device's memory that hold pages of the drives.
///
/// Sizes in bytes count the pages' bytes. The bookkeeping of each page takes 17 bytes more with `clock`, 19 with
/// `s3_fifo`. With `staging_pages` it takes 4 more.
struct cache_options {
  std::uint64_t size_bytes = 0;  ///< of pages kept in the device's memory, a multiple of 16 pages; 0: no cache
  /// A power of two, 512 to 65536, at least the block and at most what a command carries. With a cache, the drives are
  /// read in units of this size.
  std::uint32_t page_bytes = 4096;
  std::uint32_t overflow_frames = 256;  ///< additional pages, for accesses that find every frame of their set in use
  /// Count what the cache does. A storage that counts takes only refs whose traits are `counted`. Others take only refs
  /// that do not count, for which counting costs nothing.
  bool statistics = false;
  /// The policy that chooses the page to evict: `replacement_policy::of<replacement::s3_fifo>()`, or the user's own.
  replacement_policy policy = replacement_policy::of<replacement::clock>();
  /// Buffers of users that kernels may share as pages at a time; 0: none. Refs then need `pools` with sharing.
  std::uint32_t user_frames = 0;
  /// How much pinned host memory holds pages that have left the cache: a multiple of `size_bytes`; 0: none. Refs then
  /// need `pools` with the same `host_policy`.
  std::uint64_t host_size_bytes = 0;
  /// The policy that chooses the page that leaves the host memory.
  replacement_policy host_policy = replacement_policy::of<replacement::clock>();
  /// Not 0: the frames lie in the device's own memory even if a drive does not reach it, and this number of pinned
  /// pages serves the commands in flight, each of which needs one. Refs then need `pools` with `staged_frames`. 0: the
  /// frames lie where every drive reaches them, so in host memory for a drive that does not reach a GPU's memory.
  std::uint32_t staging_pages = 0;

  /// The number of frames that lie in the cache's own memory, overflow frames included.
  std::uint64_t own_frames() const { return size_bytes / page_bytes + overflow_frames; }
  /// The number of all frames: the own ones and `user_frames`.
  std::uint64_t frames() const { return own_frames() + user_frames; }
  /// The bytes of the own frames: memory that the threads reach, and every drive too unless there are staging pages.
  std::uint64_t frame_memory_bytes() const { return own_frames() * page_bytes; }
  /// The bytes of the staging pages.
  std::uint64_t staging_bytes() const { return std::uint64_t{staging_pages} * page_bytes; }
};

}  // namespace forebay
