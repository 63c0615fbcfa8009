// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a cache keeps in the memory of the threads that use it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/buffer_ref.hpp"
#include "forebay/detail/cache/cache_core.hpp"
#include "forebay/detail/cache/host_pool.hpp"
#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/queue/slot_pool.hpp"
#include "forebay/detail/queue/storage_layout.hpp"
#include "forebay/policy.hpp"

namespace forebay {

/// The lock word of a set while a thread of rank `thread_rank` holds it: 1 + the rank. The last of 2^32 ranks gets the
/// same word as the rank before it, since 0 means that no thread holds the lock.
FOREBAY_DEVICE constexpr std::uint32_t set_lock_word(std::uint32_t thread_rank) {
  return thread_rank != ~0u ? thread_rank + 1 : thread_rank;
}

/// What a set has beside the words of its frames. All but the lock belongs to the lock's holder.
template <class Policy>
struct alignas(32) cache_set {
  std::uint32_t lock;     ///< 0, or `set_lock_word()` of the holder. Only ever for a bounded number of steps, none of
                          ///< which is a wait.
  std::uint32_t outside;  ///< atomic, for threads that look without the lock: 1 + the first outside frame; 0: none
  std::uint32_t tick;     ///< counts pages that were admitted or refused
  std::uint32_t reserved;
  std::uint8_t prefetched_at[replacement::max_ways];  ///< lowest bits of the tick
  typename Policy::set_state policy;
};

/// A frame outside the sets: an overflow frame, for a page whose set has no room, or a user's buffer that is a page's
/// frame. The holder of the lock of the page's set may change `page` and `next`; while the frame is in no set's list,
/// the thread that took it from its pool may.
struct outside_frame {
  static constexpr std::uint64_t no_page = ~std::uint64_t{0};
  std::uint64_t page;  ///< atomic, for threads that look for a frame to take; `no_page`: in no set's list
  std::uint32_t next;  ///< atomic likewise: 1 + the next outside frame of the same set; 0: none
  std::uint32_t reserved;
};

/// What a frame that is a user's buffer has in addition. `buffer` and `ticket` change only while the frame is in no
/// list.
struct user_frame {
  buffer_ref buffer;     ///< a page
  std::uint32_t ticket;  ///< of the last time that the frame was taken from its pool: never 0
  std::uint32_t owner;   ///< atomic: the ticket, while the sharing thread has the buffer pinned; 0: it has let go
};

/// Written by the host before any thread uses it.
struct cache_state : cache_core {
  std::uint64_t* fingerprints = nullptr;  ///< of each set two words (fingerprints.hpp)
  std::byte* sets = nullptr;              ///< an array of `cache_set<Policy>`
  std::uint32_t set_bytes = 0;            ///< of one of them
  page_sets mapping;
  std::uint32_t page_shift = 12;
  std::uint32_t overflow_count = 0;  ///< they come after the sets' frames
  std::uint32_t user_count = 0;      ///< they come after the overflow frames
  outside_frame* outside = nullptr;  ///< overflow frames, then users'
  slot_pool free_overflow;
  slot_pool free_users;
  user_frame* users = nullptr;
  host_pool_state host;
  buffer_ref frame_memory;
  storage_layout layout;
  io_queues_state* queues = nullptr;
};

/// Frames of a set: their words fill one line of 128 bytes.
inline constexpr std::uint32_t cache_ways = replacement::max_ways;

}  // namespace forebay
