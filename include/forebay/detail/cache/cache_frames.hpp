// SPDX-License-Identifier: Apache-2.0
//! \file
//! The frames of a cache: what is known of each, how pages are found and pinned in them, and the locks of their sets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/cache_counters.hpp"
#include "forebay/detail/cache/cache_core.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/fingerprints.hpp"
#include "forebay/detail/cache/host_pool.hpp"
#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/queue/wait_trace.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/policy.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// One word holds a frame's page, its state and its pins. Frames lie in sets; a page is in a frame of its set, or in
/// one outside all sets. This class has all data members of a `cache_ref`. The other parts, each of which derives from
/// the one before it, add functions.
template <class M, cached_traits Traits>
class cache_frames {
 public:
  cache_frames() = default;
  /// The other arguments repeat what `*state` says, so that no thread has to load it.
  FOREBAY_DEVICE cache_frames(cache_state* state, std::uint64_t* words, std::uint64_t* fingerprint_words,
                              std::byte* frames, page_sets mapping, std::uint32_t page_shift)
      : s_(state),
        words_(words),
        fingerprints_(fingerprint_words),
        frames_(frames),
        mapping_(mapping),
        page_shift_(page_shift) {}

 protected:
  using policy_type = typename Traits::policy;
  using pools_type = typename Traits::pools;
  using rules = typename Traits::cache_rules;
  static constexpr std::uint32_t none = ~0u;

  /// How functions that are called only on misses make their object. They get nothing but the state, since few
  /// arguments cost their callers few registers. `Part`: a class of the chain.
  template <class Part>
  FOREBAY_DEVICE static Part part_of(cache_state* state) {
    return Part(state, state->words, state->fingerprints, state->frame_memory.data(), state->mapping,
                state->page_shift);
  }

  FOREBAY_DEVICE std::uint32_t page_shift() const { return page_shift_; }
  FOREBAY_DEVICE std::byte* frame_data(std::uint32_t frame) const {
    if constexpr (pools_type::has_users) {
      if (frame >= first_user()) return s_->users[frame - first_user()].buffer.data();
    }
    return frames_ + (std::uint64_t{frame} << page_shift_);
  }
  FOREBAY_DEVICE cache_state* state() const { return s_; }
  /// The page of a frame outside the sets, `no_page` where it has none.
  FOREBAY_DEVICE std::uint64_t page_outside(std::uint32_t frame) const {
    // Relaxed: the caller only looks.
    return simt::atomic<M>(s_->outside[frame - first_outside()].page).load(simt::order::relaxed);
  }

  /// Overflow frames come after the sets' frames, then the frames that users' buffers may be.
  FOREBAY_DEVICE std::uint32_t first_outside() const { return mapping_.sets() * cache_ways; }
  FOREBAY_DEVICE std::uint32_t first_user() const { return first_outside() + s_->overflow_count; }
  FOREBAY_DEVICE auto host() const { return host_pool<M, typename pools_type::host_policy>(s_->host); }

  /// Ends a pin: the caller no longer uses what it read through it, and the next thread to pin the page sees what it
  /// wrote.
  FOREBAY_DEVICE void unpin(std::uint32_t frame) const {
    trace().unpinned(frame);
    // Release pairs with the acquire of a claim, of a write-back and of later pins.
    word(frame).fetch_sub(page_word::one_pin, simt::order::release);
  }

  /// A page that was pinned for reading is about to be written.
  FOREBAY_DEVICE void mark_written(std::uint32_t frame) const { mark_dirty(frame, look(frame)); }

  /// A page that was pinned for `access::overwrite` has been written in full.
  FOREBAY_DEVICE void publish(std::uint32_t frame) const {
    // If the page was in a frame already, the pin has made it dirty. Release pairs with the acquire of each thread that
    // waits for the page: its bytes.
    if (look(frame).state() == page_state::busy)
      word(frame).fetch_or(page_word::busy_to_valid | page_word::dirty, simt::order::release);
  }

  // Words
  // ------------------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE cache_set<policy_type>& set_at(std::uint32_t set) const {
    return *reinterpret_cast<cache_set<policy_type>*>(s_->sets + std::uint64_t{set} * s_->set_bytes);
  }
  FOREBAY_DEVICE auto word(std::uint32_t frame) const { return simt::atomic<M>(words_[frame]); }
  FOREBAY_DEVICE page_word look(std::uint32_t frame) const {
    // Relaxed: a caller that acts on the value uses compare-and-swap.
    return {word(frame).load(simt::order::relaxed)};
  }
  FOREBAY_DEVICE page_word add_pin(std::uint32_t frame) const {
    // Acquire pairs with the completion of the read, and with the unpin of the threads that wrote: the page's bytes.
    page_word const before{word(frame).fetch_add(page_word::one_pin, simt::order::acquire)};
    trace().pinned(frame);
    return before;
  }
  /// The caller has pinned the frame; `seen` is its word at that time.
  FOREBAY_DEVICE void mark_dirty(std::uint32_t frame, page_word seen) const {
    // A page that was dirty when it was pinned stays so, because it is pinned. Relaxed: the pin came first on the same
    // word, and this thread's unpin releases what it writes.
    if (!seen.is_dirty()) word(frame).fetch_or(page_word::dirty, simt::order::relaxed);
  }
  /// Tells the replacement policy of a hit.
  FOREBAY_DEVICE void touch(std::uint32_t frame, page_word seen) const {
    if (frame >= first_outside()) return;
    std::uint32_t const way = frame % cache_ways;
    std::uint32_t const marks = policy_type::template hit<M>(seen.marks(), &set_at(frame / cache_ways).policy, way);
    // Relaxed, both: hints.
    if (marks != seen.marks()) {
      word(frame).fetch_or(std::uint64_t{marks} << page_word::mark_shift, simt::order::relaxed);
    }
    if (seen.is_unused()) word(frame).fetch_and(~page_word::unused, simt::order::relaxed);
  }

  /// The ways of a set that may be for the page. If there is none, and the calling thread does not know of a frame
  /// outside the set, then every write to the page that came before the call is on the drive. Reason: the writer had
  /// pinned a frame. It found that frame by its fingerprint, or under the lock under which the fingerprint was written.
  /// So the fingerprint came before the call, too.
  FOREBAY_DEVICE std::uint32_t ways_of(page_location at) const {
    simt::vec16 const both = M::load_pair(fingerprints_ + std::uint64_t{at.set} * fingerprints::words_per_set);
    return fingerprints::ways_of(both.low, both.high, at.tag);
  }
  /// The caller holds the set's lock and has claimed `way`; `words`: the words of the set's frames, read under the
  /// lock.
  FOREBAY_DEVICE void write_fingerprint(page_location at, std::uint32_t way, page_word const* words) const {
    std::uint32_t const first = way / 8 * 8;
    std::uint64_t all = 0;
    for (std::uint32_t w = 0; w < 8; ++w) {
      // Built from what the caller knows, which is cheaper than to load the old fingerprints.
      all |= fingerprints::byte_of(w, fingerprints::of(first + w == way ? at.tag : words[first + w].tag()));
    }
    // Relaxed: a hint, and only the lock's holder writes it.
    simt::atomic<M>(fingerprints_[std::uint64_t{at.set} * fingerprints::words_per_set + way / 8])
        .store(all, simt::order::relaxed);
  }
  /// The frame that is for the page, read or being read, as far as a look without a lock can tell.
  FOREBAY_DEVICE std::uint32_t find(page_location at) const {
    FOREBAY_ROLLED
    for (std::uint32_t ways = ways_of(at); ways != 0; ways &= ways - 1) {
      std::uint32_t const frame = at.set * cache_ways + simt::lowest_bit(ways);
      page_word const seen = look(frame);
      if (seen.names(at.tag) && seen.state() != page_state::failed) return frame;
    }
    return none;
  }
  /// The frame that holds the page, or `none`, and its word.
  FOREBAY_DEVICE std::uint32_t find_valid(page_location at, page_word& found) const {
    FOREBAY_ROLLED
    for (std::uint32_t ways = ways_of(at); ways != 0; ways &= ways - 1) {
      std::uint32_t const frame = at.set * cache_ways + simt::lowest_bit(ways);
      // Acquire pairs with the completion of the read, and with the unpin of the threads that wrote: the page's bytes.
      found = {word(frame).load(rules::first_look)};
      if (found.holds(at.tag)) return frame;
    }
    return none;
  }
  /// Loads `Batch` words at a time.
  template <std::uint32_t Batch, class Visit>
  FOREBAY_DEVICE void scan(std::uint32_t set, Visit&& visit) const {
    std::uint32_t const first = set * cache_ways;
    FOREBAY_ROLLED
    for (std::uint32_t way = 0; way < cache_ways; way += Batch) {
      simt::vec16 pairs[Batch / 2];
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < Batch / 2; ++i) pairs[i] = M::load_pair(words_ + first + way + 2 * i);
      FOREBAY_UNROLL
      for (std::uint32_t i = 0; i < Batch / 2; ++i) {
        visit(first + way + 2 * i, page_word{pairs[i].low});
        visit(first + way + 2 * i + 1, page_word{pairs[i].high});
      }
    }
  }
  /// Makes an evictable frame free. The caller holds the lock of its set.
  FOREBAY_DEVICE bool drop(std::uint32_t frame, page_word seen) const {
    page_word const gone{seen.claimed_for(seen.tag(), 0, false).bits & ~page_word::state_mask};
    // Acquire as in try_take().
    return word(frame).compare_exchange(seen.bits, gone.bits, simt::order::acquire);
  }

  FOREBAY_DEVICE wait_trace<M> trace() const {
    if constexpr (debug_waits) return wait_trace<M>(&s_->queues->waits);
    return wait_trace<M>(nullptr);
  }

  /// Counts what happened, where the traits say so.
  FOREBAY_DEVICE void count(std::uint64_t cache_counters::* counter) const {
    if constexpr (Traits::counted) {
      // Relaxed: a statistic.
      simt::atomic<M>(s_->counters[M::this_block().rank % cache_core::counter_stripes].*counter)
          .fetch_add(1, simt::order::relaxed);
    }
  }

  // Locks
  // ------------------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE bool try_lock(std::uint32_t set) const {
    auto flag = simt::atomic<M>(set_at(set).lock);
    // Relaxed: a hint that spares the exchange.
    std::uint32_t holder = flag.load(simt::order::relaxed);
    // Acquire pairs with the release in unlock(): what the previous holder did to the set.
    bool const taken =
        holder == 0 && flag.compare_exchange(holder, set_lock_word(M::thread_rank()), simt::order::acquire);
    if (debug_waits && taken) trace().locked(set);
    return taken;
  }
  FOREBAY_DEVICE bool wait_for_lock(std::uint32_t set, std::uint64_t deadline_ns) const {
    [[maybe_unused]] auto const noted = trace().waits_for(wait_kind::set_lock, set);
    // Relaxed: try_lock() decides.
    return M::wait_until([&] { return simt::atomic<M>(set_at(set).lock).load(simt::order::relaxed) == 0; },
                         deadline_ns);
  }
  FOREBAY_DEVICE bool lock(std::uint32_t set, std::uint64_t deadline_ns) const {
    while (!try_lock(set)) {
      if (!wait_for_lock(set, deadline_ns)) return false;
    }
    return true;
  }
  FOREBAY_DEVICE void unlock(std::uint32_t set) const {
    trace().unlocked(set);
    // Release pairs with the acquire in try_lock().
    simt::atomic<M>(set_at(set).lock).store(0, simt::order::release);
  }

  // Under a set's lock
  // ------------------------------------------------------------------------------------------------------------------

  /// What the words of a set said when they were read, all at once: bit `w` of a mask is way `w`.
  struct survey {
    replacement::set_view view;
    std::uint32_t match = 0;  ///< for the page that is looked for, in whatever state but free
    std::uint32_t free = 0;
    std::uint32_t cleanable = 0;
    std::uint32_t unused = 0;     ///< evictable, prefetched, and not accessed yet
    std::uint32_t unsettled = 0;  ///< being read or written
    std::uint32_t outside = 0;    ///< head of the list of outside frames
    page_word words[cache_ways];
  };
  /// All loads that do not depend on one another are issued before the first value arrives, so that the thread holds
  /// the lock for a short time only.
  FOREBAY_DEVICE survey look_at(page_location at) const {
    survey out;
    // Relaxed: under the lock.
    out.outside = simt::atomic<M>(set_at(at.set).outside).load(simt::order::relaxed);
    scan<cache_ways>(at.set, [&](std::uint32_t frame, page_word seen) {
      std::uint32_t const bit = 1u << frame % cache_ways;
      out.words[frame % cache_ways] = seen;
      if (seen.is_free()) {
        out.free |= bit;
        return;
      }
      out.view.pages |= bit;
      if (seen.names(at.tag)) out.match |= bit;
      if (seen.state() == page_state::busy || seen.is_writing()) out.unsettled |= bit;
      if (seen.is_cleanable()) out.cleanable |= bit;
      if (rules::evictable(seen)) out.view.evictable |= bit;
      if (rules::evictable(seen) && seen.is_unused()) out.unused |= bit;
      for (std::uint32_t b = 0; b != policy_type::mark_bits; ++b) {
        if ((seen.marks() >> b & 1) != 0) out.view.marked[b] |= bit;
      }
    });
    return out;
  }

  cache_state* s_ = nullptr;
  std::uint64_t* words_ = nullptr;
  std::uint64_t* fingerprints_ = nullptr;
  std::byte* frames_ = nullptr;
  page_sets mapping_;
  std::uint32_t page_shift_ = 12;
};

}  // namespace forebay
