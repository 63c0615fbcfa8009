// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a cache counts.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/language.hpp"

namespace forebay {

/// Counters of what happens in a cache. Refs whose traits are `counted` count. A cache has many of these structs, which
/// the host adds up, so that threads do not contend for one.
struct alignas(128) cache_counters {
  std::uint64_t hits;                ///< accesses that found their page, or found it being read
  std::uint64_t misses;              ///< accesses whose page was in no frame and came from a drive, or `from_host`
  std::uint64_t merged;              ///< of the hits: those that found the page being read
  std::uint64_t prefetches;          ///< pages that prefetches read
  std::uint64_t refused_prefetches;  ///< prefetches that found no frame, or no room in the queues
  std::uint64_t evictions;           ///< pages that left the cache
  std::uint64_t write_backs;         ///< pages that were written to a drive
  /// Of the misses: those for which no way of their set had room, so that the page went to an overflow frame.
  std::uint64_t overflow_frames;
  std::uint64_t shared;     ///< buffers of users that became a page's frame
  std::uint64_t from_host;  ///< pages that came from the host pool, without a read of a drive
  std::uint64_t to_host;    ///< of the evictions: those whose page went to the host pool

  /// Adds the counts of another one.
  cache_counters& operator+=(cache_counters const& other) {
    hits += other.hits;
    misses += other.misses;
    merged += other.merged;
    prefetches += other.prefetches;
    refused_prefetches += other.refused_prefetches;
    evictions += other.evictions;
    write_backs += other.write_backs;
    overflow_frames += other.overflow_frames;
    shared += other.shared;
    from_host += other.from_host;
    to_host += other.to_host;
    return *this;
  }
};

}  // namespace forebay
