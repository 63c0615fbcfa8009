// SPDX-License-Identifier: Apache-2.0
//! \file
//! Frames outside the sets: the lists of those that hold pages of a set, and how a thread gets a free one.
#pragma once

#include <cstdint>

#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/page_commands.hpp"
#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// A frame outside the sets is an overflow frame or a user's buffer. While it holds a page it is in the list of that
/// page's set; else it is in a pool, or belongs to one thread.
template <class M, cached_traits Traits>
class frames_outside : protected page_commands<M, Traits> {
  using base = page_commands<M, Traits>;

 public:
  using base::base;

 protected:
  using base::add_pin;
  using base::begin_write_back;
  using base::default_time;
  using base::drop;
  using base::first_outside;
  using base::lock;
  using base::look;
  using base::mapping_;
  using base::none;
  using base::s_;
  using base::set_at;
  using base::submit_write_back;
  using base::try_lock;
  using base::unlock;
  using base::unpin;
  using typename base::rules;
  using typename base::survey;

  /// Whether a frame outside the set may hold a page of it. If not, and if no frame of the set holds the page, then
  /// every write to the page that came before the call is on the drive.
  FOREBAY_DEVICE bool has_outside(page_location at) const {
    // Relaxed: every write to a page in such a frame came after the store that put the frame into the list.
    return simt::atomic<M>(set_at(at.set).outside).load(simt::order::relaxed) != 0;
  }
  /// The outside frame that is for the page, in any state but free; `k`: the head of the list.
  FOREBAY_DEVICE std::uint32_t find_outside(page_location at, std::uint32_t k) const {
    std::uint32_t const after = first_outside();
    FOREBAY_ROLLED
    for (; k != 0; k = after_in_list(k)) {
      page_word const seen = look(after + k - 1);
      if (seen.names(at.tag) && !seen.is_free()) return after + k - 1;
    }
    return none;
  }
  /// What follows `k` in a set's list. Both are 1 + the number of an outside frame; 0: none.
  FOREBAY_DEVICE std::uint32_t after_in_list(std::uint32_t k) const {
    // Relaxed: a thread that acts on the list holds its set's lock, and one that only looks checks what it finds.
    return simt::atomic<M>(s_->outside[k - 1].next).load(simt::order::relaxed);
  }
  /// How many frames of a set's list a look without its lock visits. Only the smallest caches have longer lists.
  static constexpr std::uint32_t unlocked_looks = 2;
  /// The outside frame that holds the page, as far as a look without the lock can tell.
  FOREBAY_DEVICE std::uint32_t find_outside_unlocked(page_location at, std::uint64_t page) const {
    // Relaxed, all: a hint.
    std::uint32_t k = simt::atomic<M>(set_at(at.set).outside).load(simt::order::relaxed);
    FOREBAY_ROLLED
    for (std::uint32_t looks = unlocked_looks; k != 0 && looks != 0; --looks, k = after_in_list(k)) {
      std::uint32_t const frame = first_outside() + k - 1;
      if (look(frame).holds(at.tag) && is_for(frame, page)) return frame;
    }
    return none;
  }
  /// The same, pinned. Without this, threads that want the same page would have to take their set's lock one by one.
  FOREBAY_DEVICE std::uint32_t pin_outside_unlocked(page_location at, std::uint64_t page) const {
    std::uint32_t const frame = find_outside_unlocked(at, page);
    if (frame == none) return none;
    page_word const seen = add_pin(frame);
    // The word does not name a set, so the frame may by now hold another set's page of the same tag. The thread that
    // put the frame into the list stored the page number before the page could become valid, and the pin acquires that
    // number. While the frame is pinned it stays that page's.
    if (rules::pin_holds(seen, at.tag) && seen.state() == page_state::valid && is_for(frame, page)) return frame;
    unpin(frame);
    return none;
  }
  FOREBAY_DEVICE bool is_for(std::uint32_t outside_frame, std::uint64_t page) const {
    // Relaxed: if the answer must be right, the caller has pinned the frame, which acquires the number.
    return simt::atomic<M>(s_->outside[outside_frame - first_outside()].page).load(simt::order::relaxed) == page;
  }
  FOREBAY_DEVICE std::uint32_t find_locked(page_location at, survey const& seen) const {
    return seen.match != 0 ? at.set * cache_ways + simt::lowest_bit(seen.match) : find_outside(at, seen.outside);
  }

  // Taking one
  // ------------------------------------------------------------------------------------------------------------------

  /// How many frames a thread looks at when it wants to take one back.
  static constexpr std::uint32_t outside_looks = 64;

  /// An overflow frame that is in no set's list, or `none`. `look_from`: the number of an overflow frame that was not
  /// pinned; for this one the caller waits for a lock and for room in the queues. `none`: the caller waits for nothing.
  FOREBAY_DEVICE std::uint32_t take_overflow_frame(std::uint32_t look_from) const {
    return take_outside_frame(s_->free_overflow, 0, s_->overflow_count, look_from);
  }
  /// A frame of `pool`, which has `count` frames from the `first`-th outside frame on. If the pool is empty, one of
  /// them that no thread uses any more.
  FOREBAY_DEVICE std::uint32_t take_outside_frame(slot_pool const& pool, std::uint32_t first, std::uint32_t count,
                                                  std::uint32_t look_from) const {
    if (count == 0) return none;
    std::uint32_t k = pool.template try_take<M>(M::thread_rank() * 7u);
    if (k != slot_pool::none) return first_outside() + first + k;
    k = look_from != none ? look_from : M::thread_rank() % count;
    FOREBAY_ROLLED
    for (std::uint32_t looks = count < outside_looks ? count : outside_looks; looks != 0; --looks) {
      std::uint32_t const frame = first_outside() + first + k;
      page_word const seen = look(frame);
      if ((seen.is_evictable() || seen.is_free()) && try_unlink(first + k, k == look_from)) return frame;
      if (seen.is_cleanable() && begin_write_back(frame, seen)) {
        // For the frame that it wants, the caller also waits for room in the queues: otherwise no thread would ask for
        // recovery of the commands that take the room.
        (void)submit_write_back(frame, seen, k == look_from ? default_time : 0);
      }
      k = k + 1 < count ? k + 1 : 0;
    }
    return none;
  }
  FOREBAY_DEVICE void give_overflow_frame(std::uint32_t frame) const {
    s_->free_overflow.template give<M>(frame - first_outside());
  }
  /// Takes an outside frame that no thread uses out of its set's list. `waits`: waits for the set's lock; if not, gives
  /// up when another thread holds it.
  FOREBAY_DEVICE bool try_unlink(std::uint32_t k, bool waits) const {
    auto page = simt::atomic<M>(s_->outside[k].page);
    // Relaxed: it is read again under the lock.
    std::uint64_t const seen_page = page.load(simt::order::relaxed);
    if (seen_page == outside_frame::no_page) return false;
    std::uint32_t const set = mapping_.locate(seen_page).set;
    // When many threads look through a set for room, they hold its lock in turn. A thread that only tries may never get
    // it.
    if (!(waits ? lock(set, simt::no_deadline) : try_lock(set))) return false;
    bool taken = false;
    std::uint32_t const frame = first_outside() + k;
    // Relaxed: `page` names the set whose lock the caller holds, and no other thread changes it then.
    if (page.load(simt::order::relaxed) == seen_page) {
      page_word const seen = look(frame);
      taken = (seen.is_evictable() || seen.is_free()) && drop(frame, seen);
      if (taken) unlink(set, k);
    }
    unlock(set);
    return taken;
  }
  /// The caller holds the lock of the set.
  FOREBAY_DEVICE void unlink(std::uint32_t set, std::uint32_t k) const {
    auto head = simt::atomic<M>(set_at(set).outside);
    std::uint32_t const next = after_in_list(k + 1);
    // Relaxed: the lock orders the list.
    std::uint32_t at = head.load(simt::order::relaxed);
    if (at == k + 1) {
      head.store(next, simt::order::relaxed);
    } else {
      while (after_in_list(at) != k + 1) at = after_in_list(at);
      simt::atomic<M>(s_->outside[at - 1].next).store(next, simt::order::relaxed);
    }
    // Release pairs with the acquire in take_back_slowly(): no thread uses the frame any more.
    simt::atomic<M>(s_->outside[k].page).store(outside_frame::no_page, simt::order::release);
  }
};

}  // namespace forebay
