// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the host has done to all frames of a cache, or to the pages of a range, by the threads that share the cache.
#pragma once

#include <cstdint>

#include "forebay/cache/cache_ref.hpp"
#include "forebay/cache/no_policy.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay {

/// What came of it: in memory that the host reaches, zeroed before.
struct clean_result {
  std::uint32_t first_failure = 0;  ///< bits of a status
  std::uint32_t in_use = 0;         ///< pages that could not be forgotten, or taken back: a thread has them pinned
};

/// Writes back every page that has been written (C2).
template <class M>
struct clean_kernel {
  cache_ref<M, replacement::no_policy> cache;
  std::uint64_t timeout_ns;
  clean_result* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const deadline_ns = M::clock_ns() + timeout_ns;
    std::uint32_t const frames = cache.state()->frames;
    for (std::uint32_t frame = M::thread_rank(); frame < frames; frame += M::thread_count()) {
      status const outcome = cache.clean(frame, deadline_ns);
      std::uint32_t none = 0;
      // Relaxed: the launch orders it before the host's read.
      if (!outcome.ok())
        simt::atomic<M>(result->first_failure).compare_exchange(none, outcome.bits(), simt::order::relaxed);
    }
  }
};

/// Forgets the pages [first_page, first_page + pages), written back where they have to be.
template <class M>
struct forget_kernel {
  cache_ref<M, replacement::no_policy> cache;
  std::uint64_t first_page;
  std::uint64_t pages;
  std::uint64_t timeout_ns;
  clean_result* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const deadline_ns = M::clock_ns() + timeout_ns;
    for (std::uint64_t k = M::thread_rank(); k < pages; k += M::thread_count()) {
      // Relaxed: the launch orders it before the host's read.
      if (!cache.invalidate(first_page + k, deadline_ns))
        simt::atomic<M>(result->in_use).fetch_add(1, simt::order::relaxed);
    }
  }
};

/// Takes every page back that lies in [first, first + bytes) because it was shared, for owners that have gone.
template <class M>
struct take_back_kernel {
  cache_ref<M, replacement::no_policy> cache;
  std::byte const* first;
  std::uint64_t bytes;
  std::uint64_t timeout_ns;
  clean_result* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const deadline_ns = M::clock_ns() + timeout_ns;
    for (std::uint32_t k = M::thread_rank(); k < cache.user_count(); k += M::thread_count()) {
      std::byte const* const lies_at = cache.user_data(k);
      if (lies_at < first || lies_at >= first + bytes) continue;
      status const outcome = cache.take_back(cache.first_user() + k, cache.user_ticket(k), deadline_ns);
      if (outcome.ok()) continue;
      std::uint32_t none = 0;
      // Relaxed, both: the launch orders it before the host's read.
      if (outcome.kind() == fault::timed_out) {
        simt::atomic<M>(result->in_use).fetch_add(1, simt::order::relaxed);
      } else {
        simt::atomic<M>(result->first_failure).compare_exchange(none, outcome.bits(), simt::order::relaxed);
      }
    }
  }
};

}  // namespace forebay
