// SPDX-License-Identifier: Apache-2.0
//! \file
//! Takes pages out of a cache, so that the next kernel finds the cache cold.
#pragma once

#include <cstdint>

#include "forebay/machine.hpp"

namespace forebay::apps {

/// `Cache` is a `cache_ref`. Pages [first_page, end_page) of its storage, which no thread may hold.
template <class M, class Cache>
struct forget_pages {
  Cache cache;
  std::uint64_t first_page;
  std::uint64_t end_page;
  std::uint64_t* kept;  ///< how many could not be taken out; zeroed by the host

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t page = first_page + M::thread_rank(); page < end_page; page += M::thread_count()) {
      // Relaxed: a counter.
      if (!cache.invalidate(page, cache.default_deadline_ns()).ok()) {
        simt::atomic<M>(*kept).fetch_add(1, simt::order::relaxed);
      }
    }
  }
};

}  // namespace forebay::apps
