// SPDX-License-Identifier: Apache-2.0
//! \file
//! The directory of pages: which frame holds which page of the drives, and how pages come and go.
//!
//! docs/internals/cache.md says how the invariants C1 to C6 follow, and which parts a `cache_ref` is made of. The
//! comment at each memory order says what it pairs with.
#pragma once

#include <cstdint>

#include "forebay/cache_counters.hpp"
#include "forebay/detail/cache/cache_rules.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/no_policy.hpp"
#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/cache/shared_buffers.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/frame_pools.hpp"
#include "forebay/status.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// Trivially copyable: kernels take it by value. Thread-safe. Functions that wait say so. Their waits help: they
/// consume completions for all threads. They depend on nothing but the controllers, and on locks that are held for a
/// few steps.
///
/// `page` numbers the pages of the whole storage, from 0; the caller makes sure that the page exists.
template <class M, cached_traits Traits>
class cache_ref : private shared_buffers<M, Traits> {
  using base = shared_buffers<M, Traits>;
  using base::add_pin;
  using base::count;
  using base::drop;
  using base::find;
  using base::find_locked;
  using base::find_valid;
  using base::has_outside;
  using base::host;
  using base::lock;
  using base::look;
  using base::look_at;
  using base::mapping_;
  using base::prefetch_slowly;
  using base::s_;
  using base::settle;
  using base::touch;
  using base::unlock;
  using base::word;
  using typename base::rules;
  using typename base::until;

 public:
  using machine = M;
  using traits = Traits;
  using base::clean;
  using base::default_deadline_ns;
  using base::drive_of;
  using base::first_user;
  using base::frame_data;
  using base::let_go;
  using base::mark_written;
  using base::needs_shared;
  using base::no_page;
  using base::none;
  using base::page_outside;
  using base::page_shift;
  using base::page_to_clean;
  using base::pin;
  using base::pin_missing;
  using base::publish;
  using base::queues;
  using base::share;
  using base::start_cleaning;
  using base::state;
  using base::take_back;
  using base::targets;
  using base::unpin;
  using base::user_count;
  using base::user_data;
  using base::user_ticket;
  using base::wait_for_shared;
  using typename base::policy_type;
  using typename base::pools_type;
  using typename base::queue_rules_type;
  using typename base::queues_type;
  using typename base::targets_type;

  /// From the same arguments as cache_frames.
  using base::base;

  /// Reads a `T` at `offset_bytes` of `page` without pinning it. False if the page is in no frame, or left it
  /// meanwhile.
  template <class T>
  FOREBAY_DEVICE bool try_read(std::uint64_t page, std::uint32_t offset_bytes, T& value) const {
    page_location const at = mapping_.locate(page);
    page_word before;
    std::uint32_t const frame = find_valid(at, before);
    if (frame == none) return false;
    value = M::ld_speculative(reinterpret_cast<T const*>(frame_data(frame) + offset_bytes));
    // Relaxed: the load above is ordered before this one, and only compared words matter.
    page_word const after{word(frame).load(simt::order::relaxed)};
    if (!after.same_page(before)) return false;
    touch(frame, after);
    count(&cache_counters::hits);
    return true;
  }

  /// If a frame has `page`, or is having it read in, counts a hit to the replacement policy and returns true.
  FOREBAY_DEVICE bool touch_page(std::uint64_t page) const {
    std::uint32_t const frame = find(mapping_.locate(page));
    if (frame == none) return false;
    page_word const seen = look(frame);
    // A page that was prefetched and not used yet is protected in any case.
    if (!seen.is_unused()) touch(frame, seen);
    return true;
  }

  /// The same, and starts reading the page if it is in no frame. Never waits. False if there was no room for it in its
  /// set or in the queues.
  FOREBAY_DEVICE bool prefetch(std::uint64_t page) const {
    return touch_page(page) || simt::out_of_line(&prefetch_slowly)(s_, page);
  }

  /// Begins to write `page` back if a frame of its set has it and it was written. Never waits, so it may not find the
  /// page or not begin; clean_page() does the rest.
  FOREBAY_DEVICE void start_cleaning_page(std::uint64_t page) const {
    std::uint32_t const frame = find(mapping_.locate(page));
    if (frame != none) start_cleaning(frame);
  }
  /// Waits until every write to `page` that came before the call is on the drive, wherever the page is now.
  FOREBAY_DEVICE status clean_page(std::uint64_t page, std::uint64_t deadline_ns) const {
    page_location const at = mapping_.locate(page);
    std::uint32_t frame = find(at);
    // Pinned, so that the frame stays this page's: the caller must not get the status of another page's write-back.
    if (frame != none && !rules::pin_holds(add_pin(frame), at.tag)) {
      unpin(frame);
      frame = none;
    }
    if (frame == none && has_outside(at)) {
      if (!lock(at.set, deadline_ns)) return fault::timed_out;
      frame = find_locked(at, look_at(at));
      if (frame != none) (void)add_pin(frame);
      unlock(at.set);
    }
    // A page that has left its frame is on the drive.
    if (frame == none) return {};
    status const outcome = clean(frame, deadline_ns);
    unpin(frame);
    return outcome;
  }
  /// Calls `use(frame)` while `page` is pinned, if a frame holds it; returns whether it did. If no frame has the page,
  /// its drive has every write that came before the call. Waits for the set's lock at most.
  template <class Use>
  FOREBAY_DEVICE bool use_if_held(std::uint64_t page, Use&& use) const {
    page_location const at = mapping_.locate(page);
    std::uint32_t frame = find(at);
    page_word seen;
    if (frame != none) {
      seen = add_pin(frame);
      if (!rules::pin_holds(seen, at.tag)) {
        unpin(frame);
        frame = none;
      }
    }
    if (frame == none && has_outside(at)) {
      // Every holder of a set's lock releases it after a few steps, none of which is a wait.
      (void)lock(at.set, simt::no_deadline);
      frame = find_locked(at, look_at(at));
      if (frame != none) seen = add_pin(frame);
      unlock(at.set);
    }
    if (frame == none) return false;
    bool const held = seen.state() == page_state::valid;
    if (held) {
      touch(frame, seen);
      count(&cache_counters::hits);
      use(frame);
    }
    unpin(frame);
    return held;
  }

  /// Forgets `page`, so that the next access reads it from the drive. `no_frame`: a thread has it pinned. If the page
  /// has to be written back first, waits for that; if the write-back fails, returns its status.
  FOREBAY_DEVICE status invalidate(std::uint64_t page, std::uint64_t deadline_ns) const {
    page_location const at = mapping_.locate(page);
    for (;;) {
      if (!lock(at.set, deadline_ns)) return fault::timed_out;
      std::uint32_t const frame = find_locked(at, look_at(at));
      page_word seen;
      if (frame != none) seen = look(frame);
      bool const gone = frame == none || seen.is_free() || (seen.is_evictable() && drop(frame, seen));
      if (gone && s_->host.groups != 0) host().forget(at);
      unlock(at.set);
      if (gone) return {};
      // Another thread has changed the word meanwhile, if only a hint in it.
      if (seen.is_evictable()) continue;
      bool const may_go = seen.state() == page_state::busy || seen.is_writing() || seen.is_dirty();
      if (seen.pins() != 0 || !may_go) return fault::no_frame;
      if (!seen.is_dirty() && !settle(frame, until::idle, deadline_ns)) return fault::timed_out;
      if (seen.is_dirty()) {
        status const cleaned = clean(frame, deadline_ns);
        if (!cleaned.ok()) return cleaned;
      }
    }
  }

  /// How many pages may be prefetched before the first of them is used. If there are more, later ones evict earlier
  /// ones or find no room. It is half of what the cache holds: the rest is for pages in use, and pages at random do not
  /// fill all sets alike.
  FOREBAY_DEVICE std::uint64_t prefetch_distance_max() const { return std::uint64_t{mapping_.sets()} * cache_ways / 2; }
};

/// Traits for code that works on frames without asking the policy, whether the frames are staged or not.
template <class Rules = cache_rules>
struct policy_free : cached {
  using policy = replacement::no_policy;
  using pools = frame_pools<no_sharing, replacement::no_policy, staged_frames>;
  using cache_rules = Rules;
};

}  // namespace forebay
