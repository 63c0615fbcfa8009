// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a cache holds, as the host reads it while threads use the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/memory.hpp"
#include "forebay/status.hpp"

namespace forebay {

/// A frame that is in use: pinned, being read or written, or failed.
struct frame_look {
  std::uint32_t frame = 0;
  std::uint64_t page = 0;
  page_word word;
  /// The queue pair that the frame's last command went to, or 2^31 and the status with which it failed.
  std::uint32_t note = 0;
};

struct set_lock_look {
  std::uint32_t set = 0;
  std::uint32_t holder = 0;  ///< rank of the thread in its grid
};

struct cache_look {
  std::uint32_t sets = 0;
  std::uint32_t overflow_frames = 0;  ///< they come after the sets' frames
  std::uint32_t user_frames = 0;      ///< they come after the overflow frames
  std::uint32_t page_bytes = 0;
  std::uint32_t staging_pages = 0;  ///< 0: drives reach all frames
  std::uint32_t free_staging_pages = 0;
  // Frames that hold a page, and how many of those pages were written since they were read or last written back.
  std::uint32_t pages = 0;
  std::uint32_t dirty = 0;
  std::vector<frame_look> frames;
  std::vector<set_lock_look> locks;
  std::vector<std::uint32_t> pinned_sets;  ///< sets of which every way is pinned
  status first_error;
  std::uint64_t failed_write_backs = 0;
};

/// `state` lies in `where`. Words are read one after the other, so two of them may show different moments.
cache_look look_at(cache_state const* state, memory::resource& where);

}  // namespace forebay
