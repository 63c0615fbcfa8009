// SPDX-License-Identifier: Apache-2.0
//! \file
//! Work that the host has the sharing threads do on all frames of a cache, or on a range of pages.
//!
//! None of it has a deadline of its own: it goes on for as long as the drives complete anything. If a drive completes
//! nothing for the storage's `timeout_ns`, the work gives it up, with all pages that are still to be written to it.
#pragma once

#include <cstdint>

#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/cache/no_policy.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// The result of such work. It lies in memory that the host reaches, and is zeroed before.
struct clean_result {
  static constexpr std::uint32_t max_drives = 64;
  struct of_drive {
    std::uint32_t unwritten = 0;      ///< pages that could not be written back
    std::uint32_t first_failure = 0;  ///< bits of the status of one of them
    std::uint32_t given_up = 0;       ///< not 0: the drive completed nothing for too long
    std::uint32_t reserved = 0;
    std::uint64_t first_page = 0;  ///< ~ of the lowest of the unwritten pages
    std::uint64_t last_page = 0;   ///< the highest of the unwritten pages
  };
  of_drive drives[max_drives];
  std::uint32_t in_use = 0;  ///< pages that could not be forgotten, or taken back: a thread has them pinned
};

/// A `cache_ref` for work on frames that does not ask the policy.
template <class M, class Rules = cache_rules>
using frames_ref = cache_ref<M, policy_free<Rules>>;

/// One thread's part in such work.
template <class M, class Rules = cache_rules>
class cleaner {
 public:
  using cache_type = frames_ref<M, Rules>;

  FOREBAY_DEVICE cleaner(cache_type const& cache, clean_result* result)
      : cache_(cache), result_(result), begun_deadline_ns_(Rules::patient ? 0 : cache.default_deadline_ns()) {}

  /// Calls `attempt(deadline_ns)`, which writes `page` back and perhaps does more, until it succeeds or fails with an
  /// error that waiting does not mend: a status of the drive's, or `no_frame`.
  template <class Attempt>
  FOREBAY_DEVICE void persist(std::uint64_t page, Attempt&& attempt) const {
    std::uint32_t const drive = cache_.drive_of(page);
    clean_result::of_drive& of = result_->drives[drive];
    auto const queues = cache_.queues();
    alive_watch alive(queues, cache_.state()->layout.pairs_of(drive));
    // A page, or the thread that has begun to write it back, may also wait for what commands of other drives hold: PRP
    // lists, or staging pages. Those commands end, if only by recovery. A command that recovery has ended waited for
    // nothing but its own drive.
    bool const shares = cache_.needs_shared(0);
    alive_watch any_alive(queues, pair_range{0, shares ? queues.pair_count() : 0});
    std::uint32_t patience_left = queues.patience;
    for (;;) {
      // Relaxed: a stale value only costs waits.
      bool const hopeless = simt::atomic<M>(of.given_up).load(simt::order::relaxed) != 0;
      std::uint64_t const deadline_ns = Rules::patient ? cache_.default_deadline_ns() : begun_deadline_ns_;
      status const outcome = attempt(hopeless ? M::clock_ns() : deadline_ns);
      if (outcome.ok()) return;
      if (outcome.kind() == fault::no_frame) {
        // Relaxed, as for all counts: the launch orders them before the host's read.
        simt::atomic<M>(result_->in_use).fetch_add(1, simt::order::relaxed);
        return;
      }
      // Tries again a write that recovery aborted.
      bool const late =
          outcome.kind() == fault::timed_out || outcome.kind() == fault::busy || outcome.kind() == fault::cancelled;
      if (Rules::patient && late && !hopeless) {
        if (alive.has_completed()) continue;
        if (shares && outcome.kind() != fault::cancelled) {
          if (any_alive.has_completed()) patience_left = queues.patience;
          if (patience_left-- != 0) continue;
        }
      }
      if (late) simt::atomic<M>(of.given_up).store(1, simt::order::relaxed);
      std::uint32_t none = 0;
      simt::atomic<M>(of.first_failure).compare_exchange(none, outcome.bits(), simt::order::relaxed);
      simt::atomic<M>(of.unwritten).fetch_add(1, simt::order::relaxed);
      simt::atomic<M>(of.first_page).fetch_max(~page, simt::order::relaxed);
      simt::atomic<M>(of.last_page).fetch_max(page, simt::order::relaxed);
      return;
    }
  }

 private:
  cache_type const& cache_;
  clean_result* result_;
  std::uint64_t begun_deadline_ns_;
};

/// How many pages ahead of the page that it waits for a thread begins write-backs: up to 64, the other threads' pages
/// counted; 0 where there are 64 threads or more.
template <class M>
FOREBAY_DEVICE std::uint64_t pages_begun_ahead() {
  constexpr std::uint32_t in_all = 64;
  std::uint32_t const threads = M::thread_count();
  return threads < in_all ? in_all / threads * threads : 0;
}

/// Writes back every page that has been written (C2).
template <class M, class Rules = cache_rules>
struct clean_kernel {
  frames_ref<M, Rules> cache;
  clean_result* result;

  FOREBAY_DEVICE void operator()() const {
    cleaner<M, Rules> const work(cache, result);
    std::uint32_t const frames = cache.state()->frames;
    std::uint32_t const threads = M::thread_count();
    std::uint64_t const ahead = pages_begun_ahead<M>();
    std::uint64_t begun = M::thread_rank();
    for (std::uint64_t frame = M::thread_rank(); frame < frames; frame += threads) {
      for (; begun < frames && begun < frame + ahead; begun += threads) {
        cache.start_cleaning(static_cast<std::uint32_t>(begun));
      }
      std::uint32_t const f = static_cast<std::uint32_t>(frame);
      std::uint64_t const page = cache.page_to_clean(f);
      if (page == cache.no_page) continue;
      work.persist(page, [&](std::uint64_t deadline_ns) { return cache.clean(f, deadline_ns); });
    }
  }
};

/// The calling thread's share of the pages [first_page, first_page + pages). Calls `attempt(page, deadline_ns)` for
/// each, as cleaner::persist() does, and meanwhile begins to write back the pages that follow.
template <class M, class Attempt>
FOREBAY_DEVICE void persist_pages(frames_ref<M> const& cache, std::uint64_t first_page, std::uint64_t pages,
                                  clean_result* result, Attempt&& attempt) {
  cleaner<M> const work(cache, result);
  std::uint64_t const ahead = pages_begun_ahead<M>();
  std::uint64_t begun = M::thread_rank();
  for (std::uint64_t k = M::thread_rank(); k < pages; k += M::thread_count()) {
    for (; begun < pages && begun < k + ahead; begun += M::thread_count())
      cache.start_cleaning_page(first_page + begun);
    work.persist(first_page + k, [&](std::uint64_t deadline_ns) { return attempt(first_page + k, deadline_ns); });
  }
}

/// Writes back those of the pages [first_page, first_page + pages) that have been written.
template <class M>
struct clean_range_kernel {
  frames_ref<M> cache;
  std::uint64_t first_page;
  std::uint64_t pages;
  clean_result* result;

  FOREBAY_DEVICE void operator()() const {
    persist_pages<M>(cache, first_page, pages, result, [&](std::uint64_t page, std::uint64_t deadline_ns) {
      return cache.clean_page(page, deadline_ns);
    });
  }
};

/// Forgets the pages [first_page, first_page + pages), and writes back first those that need it.
template <class M>
struct forget_kernel {
  frames_ref<M> cache;
  std::uint64_t first_page;
  std::uint64_t pages;
  clean_result* result;

  FOREBAY_DEVICE void operator()() const {
    persist_pages<M>(cache, first_page, pages, result, [&](std::uint64_t page, std::uint64_t deadline_ns) {
      return cache.invalidate(page, deadline_ns);
    });
  }
};

/// Takes back, for owners that have gone, every page that lies in [first, first + bytes) because it was shared.
template <class M>
struct take_back_kernel {
  frames_ref<M> cache;
  std::byte const* first;
  std::uint64_t bytes;
  clean_result* result;

  FOREBAY_DEVICE void operator()() const {
    cleaner<M> const work(cache, result);
    for (std::uint32_t k = M::thread_rank(); k < cache.user_count(); k += M::thread_count()) {
      std::byte const* const lies_at = cache.user_data(k);
      if (lies_at < first || lies_at >= first + bytes) continue;
      std::uint32_t const frame = cache.first_user() + k;
      std::uint64_t const page = cache.page_outside(frame);
      if (page == cache.no_page) continue;
      work.persist(
          page, [&](std::uint64_t deadline_ns) { return cache.take_back(frame, cache.user_ticket(k), deadline_ns); });
    }
  }
};

}  // namespace forebay
