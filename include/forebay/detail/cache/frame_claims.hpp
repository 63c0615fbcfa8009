// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a page that is in no frame gets one: under the lock of its set.
#pragma once

#include <cstdint>

#include "forebay/cache_counters.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/frames_outside.hpp"
#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"
#include "forebay/status.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// A thread that claims a frame for a page must then read the page into it, or write its bytes.
template <class M, cached_traits Traits>
class frame_claims : protected frames_outside<M, Traits> {
  using base = frames_outside<M, Traits>;

 public:
  using base::base;

 protected:
  using base::add_pin;
  using base::begin_write_back;
  using base::count;
  using base::failure_of;
  using base::find_locked;
  using base::first_outside;
  using base::host;
  using base::look;
  using base::look_at;
  using base::mapping_;
  using base::none;
  using base::s_;
  using base::set_at;
  using base::trace;
  using base::try_lock;
  using base::unlock;
  using base::unpin;
  using base::word;
  using base::write_fingerprint;
  using typename base::policy_type;
  using typename base::pools_type;
  using typename base::rules;
  using typename base::survey;

  /// What a look under a set's lock is for.
  enum class purpose : std::uint8_t { read, overwrite, prefetch, share };

  /// The outcome of one look under a set's lock.
  struct claim {
    enum class result : std::uint8_t {
      contended,  ///< another thread holds the lock
      found,      ///< `frame` is for the page already, and was pinned unless this is a prefetch
      claimed,    ///< `frame` is now busy with the page, which is to be read
      failed,     ///< the page is in `frame` and could not be read; others still have the frame pinned
      no_room,
    };
    result what = result::contended;
    std::uint32_t frame = none;
    std::uint32_t to_clean = none;   ///< a frame whose write-back began, and which the caller is to submit
    page_word clean_word;            ///< its word before
    std::uint32_t from_host = none;  ///< the way of the host pool that the page is copied from
    std::uint32_t to_host = none;    ///< the way of the host pool that the frame's old page is copied to
    std::uint32_t unsettled = none;  ///< a frame of the set that is being read or written
    status failure;                  ///< of `failed`
  };

  /// What a policy sees of a set: its ways, and `view`, the state in which it was found.
  class locked_set {
   public:
    FOREBAY_DEVICE locked_set(frame_claims const& cache, std::uint32_t first_frame, replacement::set_view& view)
        : cache_(cache), first_(first_frame), view_(view) {}
    FOREBAY_DEVICE static constexpr std::uint32_t ways() { return cache_ways; }
    FOREBAY_DEVICE replacement::set_view look() const { return view_; }
    FOREBAY_DEVICE void unmark(std::uint32_t ways, std::uint32_t marks) const {
      for (std::uint32_t b = 0; b != policy_type::mark_bits; ++b) {
        if ((marks >> b & 1) != 0) view_.marked[b] &= ~ways;
      }
      FOREBAY_ROLLED
      for (; ways != 0; ways &= ways - 1) {
        // Relaxed: marks are hints.
        cache_.word(first_ + simt::lowest_bit(ways))
            .fetch_and(~(std::uint64_t{marks} << page_word::mark_shift), simt::order::relaxed);
      }
    }

   private:
    frame_claims const& cache_;
    std::uint32_t first_;
    replacement::set_view& view_;
  };

  /// After this many more pages have come to its set, a prefetched page counts as abandoned.
  static constexpr std::uint32_t prefetch_ages = 4 * cache_ways;
  /// Frames that a set should have clean: with fewer, a thread that takes one begins to write another frame back.
  static constexpr std::uint32_t clean_wanted = cache_ways / 4;

  /// Takes a frame for the page, if it may take one. `spare`: an outside frame that the caller has, for the case that
  /// no way is available, or as the frame that the caller is to share.
  FOREBAY_DEVICE claim try_claim(page_location at, purpose why, std::uint32_t spare, bool last_resort) const {
    bool const prefetch = why == purpose::prefetch;
    claim out;
    if (!try_lock(at.set)) return out;
    survey seen_set = look_at(at);
    out.frame = rules::look_again ? find_locked(at, seen_set) : none;
    if (out.frame != none) {
      out.what = claim::result::found;
      // Pinned before the lock is released; otherwise it could be evicted again.
      page_word const seen = prefetch ? look(out.frame) : add_pin(out.frame);
      if (seen.state() == page_state::failed && !prefetch) {
        // The caller must not keep this pin too: while any thread has the frame pinned, the failure stays.
        out.what = claim::result::failed;
        out.failure = failure_of(out.frame);
        unpin(out.frame);
      }
    } else {
      if (why == purpose::share) {
        hang(out, at, spare, 1);
      } else {
        take_frame(out, at, seen_set, prefetch, spare, last_resort);
      }
      if constexpr (pools_type::has_host) {
        // The page is in a frame from now on, so it must not be in the host pool.
        if (out.what == claim::result::claimed) {
          if (why == purpose::read || prefetch) {
            out.from_host = host().take(at);
          } else {
            host().forget(at);
          }
          // After the line above, so that the wanted page is not the one that makes room. A tag has 28 bits, so it is
          // not `none`.
          if (out.to_host != none) out.to_host = host().make_room({at.set, out.to_host});
        }
      }
      if (out.what == claim::result::claimed && !prefetch) trace().pinned(out.frame);
    }
    if (out.what == claim::result::claimed && out.frame < first_outside()) {
      write_fingerprint(at, out.frame % cache_ways, seen_set.words);
    }
    unlock(at.set);
    return out;
  }

  FOREBAY_DEVICE void take_frame(claim& out, page_location at, survey& seen, bool prefetch, std::uint32_t spare,
                                 bool last_resort) const {
    cache_set<policy_type>& set = set_at(at.set);
    std::uint32_t const first = at.set * cache_ways;
    std::uint32_t const room = simt::count_bits(seen.free | seen.view.evictable);
    bool const to_clean = room <= clean_wanted && seen.cleanable != 0;
    std::uint32_t tick = 0;
    if (prefetch || to_clean || seen.unused != 0) {
      tick = M::ld(&set.tick) + 1;
      M::st(&set.tick, tick);
    }
    std::uint32_t guarded = 0;
    FOREBAY_ROLLED
    for (std::uint32_t left = seen.unused; left != 0; left &= left - 1) {
      std::uint32_t const way = simt::lowest_bit(left);
      if (static_cast<std::uint8_t>(tick - M::ld(&set.prefetched_at[way])) < prefetch_ages) {
        guarded |= 1u << way;
      } else {
        // Relaxed: a hint.
        word(first + way).fetch_and(~page_word::unused, simt::order::relaxed);
      }
    }
    if (!last_resort) seen.view.evictable &= ~guarded;
    if (seen.unsettled != 0) out.unsettled = first + simt::lowest_bit(seen.unsettled);
    std::uint32_t const pins = prefetch ? 0 : 1;
    std::uint32_t way = none;
    FOREBAY_ROLLED
    for (; seen.free != 0 && way == none; seen.free &= seen.free - 1) {
      std::uint32_t const free = simt::lowest_bit(seen.free);
      if (try_take(first + free, at.tag, pins, prefetch, true, seen.words[free])) way = free;
    }
    locked_set const view(*this, first, seen.view);
    FOREBAY_ROLLED
    while (way == none && seen.view.evictable != 0) {
      std::uint32_t const victim = policy_type::template victim<M>(view, &set.policy);
      if (victim == replacement::no_way) break;
      page_word& old = seen.words[victim];
      if (try_take(first + victim, at.tag, pins, prefetch, false, old)) {
        policy_type::template evicted<M>(view, &set.policy, victim, old.tag(), old.marks());
        count(&cache_counters::evictions);
        if constexpr (pools_type::has_host) out.to_host = old.tag();  // try_claim() makes room for it
        way = victim;
      } else {
        seen.view.evictable &= ~(1u << victim);
      }
    }
    if (way != none) {
      std::uint32_t const marks = policy_type::template filled<M>(view, &set.policy, way, at.tag);
      // Relaxed: hints.
      if (marks != 0) {
        word(first + way).fetch_or(std::uint64_t{marks} << page_word::mark_shift, simt::order::relaxed);
      }
      if (prefetch) M::st(&set.prefetched_at[way], static_cast<std::uint8_t>(tick));
      out.what = claim::result::claimed;
      out.frame = first + way;
    } else if (spare != none) {
      hang(out, at, spare, pins);
    } else {
      out.what = claim::result::no_room;
    }
    if (to_clean) begin_cleaning(out, first, seen.cleanable, tick);
  }

  /// Makes `spare`, an outside frame that is in no list, the frame of the page.
  FOREBAY_DEVICE void hang(claim& out, page_location at, std::uint32_t spare, std::uint32_t pins) const {
    outside_frame& frame = s_->outside[spare - first_outside()];
    auto head = simt::atomic<M>(set_at(at.set).outside);
    // Relaxed, all: a frame that is in no set's list is no other thread's to take, and the lock orders page and list
    // for the threads that act on them. The word is changed by an addition, since other threads may pin the frame for a
    // moment, taking it for the page that it held. But for their pins the word is the caller's.
    std::uint64_t const before = look(spare).bits & (page_word::one_pin - 1);
    word(spare).fetch_add(page_word{before}.claimed_for(at.tag, pins, false).bits - before, simt::order::relaxed);
    simt::atomic<M>(frame.next).store(head.load(simt::order::relaxed), simt::order::relaxed);
    simt::atomic<M>(frame.page).store(mapping_.page_of(at), simt::order::relaxed);
    head.store(spare - first_outside() + 1, simt::order::relaxed);
    out.what = claim::result::claimed;
    out.frame = spare;
  }

  /// Begins to write back one of the frames in the mask, a different one each time.
  FOREBAY_DEVICE void begin_cleaning(claim& out, std::uint32_t first, std::uint32_t cleanable,
                                     std::uint32_t tick) const {
    // Rotated, so that the search starts at way `tick % cache_ways`.
    std::uint32_t const turn = tick % cache_ways;
    std::uint32_t turned = ((cleanable | cleanable << cache_ways) >> turn) & ((1u << cache_ways) - 1);
    FOREBAY_ROLLED
    for (; turned != 0; turned &= turned - 1) {
      std::uint32_t const way = (simt::lowest_bit(turned) + turn) % cache_ways;
      page_word const seen = look(first + way);
      if (!seen.is_cleanable() || !begin_write_back(first + way, seen)) continue;
      out.to_clean = first + way;
      out.clean_word = seen;
      return;
    }
  }

  /// Makes the frame busy with the page `tag`, if it is still `free`, or else evictable. `old`: in, the word as the
  /// caller saw it; out, the word before the change.
  FOREBAY_DEVICE bool try_take(std::uint32_t frame, std::uint32_t tag, std::uint32_t pins, bool prefetch, bool free,
                               page_word& old) const {
    while (free ? old.is_free() : rules::evictable(old)) {
      // Acquire pairs with the release of unpins and of write-backs: the old page's readers and writers are done. A
      // failure says that another thread has changed the word.
      if (word(frame).compare_exchange(old.bits, old.claimed_for(tag, pins, prefetch).bits, simt::order::acquire))
        return true;
    }
    return false;
  }

  FOREBAY_DEVICE static frame_claims from(cache_state* state) { return base::template part_of<frame_claims>(state); }

  FOREBAY_COLD static claim claim_for(cache_state* state, std::uint64_t page, purpose why, std::uint32_t spare,
                                      bool last_resort) {
    frame_claims const self = from(state);
    return self.try_claim(self.mapping_.locate(page), why, spare, last_resort);
  }
};

}  // namespace forebay
