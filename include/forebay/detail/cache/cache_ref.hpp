// SPDX-License-Identifier: Apache-2.0
//! \file
//! The directory of pages: which frame holds which page of the drives, and how pages come and go.
//!
//! docs/internals/cache.md tells how the invariants C1 to C6 follow; each memory order below names what it pairs with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/cache/cache_rules.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/fingerprints.hpp"
#include "forebay/detail/cache/no_policy.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// What a pinned page will be used for.
enum class access : std::uint8_t {
  read,
  write,
  overwrite  ///< all of it is written before anything is read: it need not come from its drive
};
/// What a pin does where other pins hold every frame that could take the page.
enum class when_full : std::uint8_t { fail, wait };

/// A pinned page, or why there is none.
struct page_pin {
  std::uint32_t frame = ~0u;
  status outcome;
};

/// A page that a thread has pinned by sharing a buffer.
struct page_share {
  page_pin pinned;
  std::uint32_t ticket = 0;  ///< not 0: the buffer is the page's frame; 0: another frame is
};

/// Trivially copyable: kernels take it by value. Thread-safe. Functions that wait say so; their waits help: they
/// consume completions for all threads, and depend on nothing but the controllers and on locks that are held for a few
/// steps.
///
/// `page` numbers the pages of the whole storage, from 0; who calls has made sure that it exists.
template <class M, cached_traits Traits>
class cache_ref {
 public:
  using machine = M;
  using traits = Traits;
  using policy_type = typename Traits::policy;
  using pools_type = typename Traits::pools;
  using targets_type = cache_targets<M>;
  using queue_rules_type = typename Traits::queue_rules;
  using queues_type = io_queues_ref<M, queue_rules_type, targets_type>;
  static constexpr std::uint32_t none = ~0u;

  cache_ref() = default;
  /// The other arguments repeat what `*state` says, so that no thread has to load it.
  FOREBAY_DEVICE cache_ref(cache_state* state, std::uint64_t* words, std::uint64_t* fingerprint_words,
                           std::byte* frames, page_sets mapping, std::uint32_t page_shift)
      : s_(state),
        words_(words),
        fingerprints_(fingerprint_words),
        frames_(frames),
        mapping_(mapping),
        page_shift_(page_shift) {}

  FOREBAY_DEVICE std::uint32_t page_shift() const { return page_shift_; }
  FOREBAY_DEVICE std::byte* frame_data(std::uint32_t frame) const {
    if constexpr (pools_type::has_users) {
      if (frame >= first_user()) return s_->users[frame - first_user()].buffer.data();
    }
    return frames_ + (std::uint64_t{frame} << page_shift_);
  }
  FOREBAY_DEVICE cache_state* state() const { return s_; }

  /// Pins `page`, and reads it from its drive where it is not in a frame. Waits, for the storage's default time. The
  /// caller unpins it. For `access::write` the page counts as written from now on. For `access::overwrite` the caller
  /// writes the whole page and calls publish(), and does not wait before that. `no_frame`: every frame that could take
  /// the page is pinned; with `when_full::wait`, still after the default time.
  FOREBAY_DEVICE page_pin pin(std::uint64_t page, access how, when_full full = when_full::fail) const {
    page_location const at = mapping_.locate(page);
    std::uint32_t const frame = find(at);
    std::uint32_t joined = none;
    if (frame != none) {
      page_word const word = add_pin(frame);
      if (!rules::pin_holds(word, at.tag)) {
        unpin(frame);
      } else if (word.state() == page_state::valid) {
        touch(frame, word);
        if (how != access::read) mark_dirty(frame, word);
        count<&cache_counters::hits>();
        return {frame, {}};
      } else {
        joined = frame;
      }
    }
    return pin_missing(page, how, full, joined);
  }

  /// The same for a page that was just seen to be in no frame; `joined`: but for this one, which the caller pinned
  /// while the page was being read into it. Lanes that come together wait together.
  FOREBAY_DEVICE page_pin pin_missing(std::uint64_t page, access how, when_full full = when_full::fail,
                                      std::uint32_t joined = none) const {
    auto const here = M::converged();
    begun_read begun;
    if (how != access::overwrite) {
      begun = joined != none ? begun_read{joined, begun_read::by::other} : simt::out_of_line(&begin_read)(s_, page);
    }
    // Whoever has claimed a frame here has yet to submit its read. That is no harm, since on the way to this line
    // nobody waits but for locks, whose holders do not wait; and lanes that submit together ring once.
    here.sync();
    if (begun.who == begun_read::by::caller) simt::out_of_line (&submit_read)(s_, page, begun.frame);
    // Each has submitted before any of them waits, and they wait for controllers only: whoever may have to wait for
    // others' pins does so by itself.
    std::uint32_t const reads = here.ballot(begun.frame != none);
    if (begun.frame != none) {
      page_pin pinned;
      if (simt::out_of_line(&finish_read)(s_, here.subset(reads), begun, how, pinned)) return pinned;
      joined = none;
    }
    return simt::out_of_line(&pin_slowly)(s_, page, how, full, joined);
  }

  /// A pinned page that was pinned to be read will be written.
  FOREBAY_DEVICE void mark_written(std::uint32_t frame) const { mark_dirty(frame, look(frame)); }

  /// What was read through the pin has been used; what was written is there for whoever pins the page next.
  FOREBAY_DEVICE void unpin(std::uint32_t frame) const {
    trace().unpinned(frame);
    // Release pairs with the acquire of a claim, of a write-back and of later pins.
    word(frame).fetch_sub(page_word::one_pin, simt::order::release);
  }

  /// A page that was pinned for `access::overwrite` has been written whole.
  FOREBAY_DEVICE void publish(std::uint32_t frame) const {
    // Where the page was in a frame already, the pin has made it dirty. Release pairs with the acquire of whoever waits
    // for the page: its bytes.
    if (look(frame).state() == page_state::busy)
      word(frame).fetch_or(page_word::busy_to_valid | page_word::dirty, simt::order::release);
  }

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
    count<&cache_counters::hits>();
    return true;
  }

  /// Where a frame has `page`, or it is being read into one: counts as a hit to the replacement policy. Whether one
  /// has.
  FOREBAY_DEVICE bool touch_page(std::uint64_t page) const {
    std::uint32_t const frame = find(mapping_.locate(page));
    if (frame == none) return false;
    page_word const seen = look(frame);
    // One that was prefetched and not used yet is protected anyhow.
    if (!seen.is_unused()) touch(frame, seen);
    return true;
  }

  /// The same, and starts reading it where it is in no frame. Never waits. False if there was no room for it: in its
  /// set, or in the queues.
  FOREBAY_DEVICE bool prefetch(std::uint64_t page) const {
    return touch_page(page) || simt::out_of_line(&prefetch_slowly)(s_, page);
  }

  /// Writes the page in `frame` back if it has been written, and waits until that is done: then every write to it that
  /// came before the call is on the drive, though perhaps not durable.
  FOREBAY_DEVICE status clean(std::uint32_t frame, std::uint64_t deadline_ns) const {
    bool tried = false;
    for (std::uint64_t failed_before = 0;;) {
      // Acquire pairs with the release of the writers' unpin: they came before; and with that of a failed write-back.
      page_word const seen{word(frame).load(simt::order::acquire)};
      if (seen.state() != page_state::valid) return {};
      if (seen.is_writing()) {
        if (!settle(frame, until::idle, deadline_ns)) return fault::timed_out;
        continue;
      }
      if (!seen.is_dirty()) return {};
      if (tried) {
        // Written again since, unless some write-back failed.
        if (failed_write_backs() == failed_before) return {};
        status const failure = failure_of(frame);
        if (!failure.ok()) return failure;
        // Not known: it may be ours that failed, and another one that has begun since. So once more.
      }
      failed_before = failed_write_backs();
      if (!begin_write_back(frame, seen)) continue;
      tried = true;
      status const sent = submit_write_back(frame, seen, deadline_ns);
      if (!sent.ok()) return sent;
    }
  }

  /// Begins to write a page that is in a frame back, if it has been written. Never waits: clean_page() does what this
  /// could not.
  FOREBAY_DEVICE void start_cleaning(std::uint32_t frame) const {
    page_word const seen = look(frame);
    if (seen.state() != page_state::valid || !seen.is_dirty() || seen.is_writing()) return;
    if (begin_write_back(frame, seen)) (void)submit_write_back(frame, seen, 0);
  }
  /// The same of a page, where a frame of its set has it.
  FOREBAY_DEVICE void start_cleaning_page(std::uint64_t page) const {
    std::uint32_t const frame = find(mapping_.locate(page));
    if (frame != none) start_cleaning(frame);
  }
  /// Waits until every write to `page` that came before the call is on the drive, wherever the page is now.
  FOREBAY_DEVICE status clean_page(std::uint64_t page, std::uint64_t deadline_ns) const {
    page_location const at = mapping_.locate(page);
    std::uint32_t frame = find(at);
    // Pinned, so that the frame stays this page's: what another page's write-back fails with is not for the caller.
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
  /// Calls `use(frame)` while `page` is pinned, if a frame holds it. If not, its drive has every write that came before
  /// the call. Never waits.
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
      // Whoever holds the lock of a set lets go of it after a few steps, none of which is a wait.
      (void)lock(at.set, simt::no_deadline);
      frame = find_locked(at, look_at(at));
      if (frame != none) seen = add_pin(frame);
      unlock(at.set);
    }
    if (frame == none) return false;
    bool const held = seen.state() == page_state::valid;
    if (held) {
      touch(frame, seen);
      count<&cache_counters::hits>();
      use(frame);
    }
    unpin(frame);
    return held;
  }

  /// Forgets `page`, so that the next access reads it from the drive. `no_frame`: a thread has it pinned. Waits where
  /// it has to be written back first, and where that fails says why.
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
      // Somebody changed the word meanwhile, if only a hint in it.
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

  /// Pins `page`, and makes `buffer`, which holds a page, its frame where no frame has it and the sharing policy
  /// agrees. For `sharing_use::overwrite` the buffer holds what the page shall be; where it did not become the frame
  /// the caller copies that into the frame and calls publish(). May wait; not for the read of a page, which
  /// wait_for_shared() does. Whoever gets a ticket calls let_go() or take_back() once; else unpin().
  FOREBAY_DEVICE page_share share(std::uint64_t page, buffer_ref const& buffer, sharing_use use) const {
    return simt::out_of_line(&share_slowly)(s_, page, buffer, use);
  }
  /// Waits until the page that was shared for `sharing_use::read` has been read. Where that fails, or the deadline
  /// passes, it is pinned no more, unless the caller has a ticket.
  FOREBAY_DEVICE status wait_for_shared(std::uint64_t page, page_share& shared, std::uint64_t deadline_ns) const {
    std::uint32_t const frame = shared.pinned.frame;
    if (shared.ticket == 0) {
      // Acquire pairs with the completion of the read.
      page_word const seen{word(frame).load(simt::order::acquire)};
      if (seen.state() != page_state::valid &&
          !simt::out_of_line(&wait_for_page)(s_, frame, true, access::read, deadline_ns, shared.pinned)) {
        shared.pinned = pin(page, access::read, when_full::wait);
      }
      return shared.pinned.outcome;
    }
    if (!settle(frame, until::read, deadline_ns)) return fault::timed_out;
    return look(frame).state() == page_state::failed ? failure_of(frame) : status();
  }
  /// The owner of a shared buffer no longer has it pinned. It stays the page's frame, until take_back() or until its
  /// place is wanted for another buffer. Of several calls for one ticket the first counts.
  FOREBAY_DEVICE void let_go(std::uint32_t frame, std::uint32_t ticket) const {
    std::uint32_t owner = ticket;
    // Relaxed: who takes the ownership away takes the pin with it, and unpin() releases.
    bool const was_owner =
        simt::atomic<M>(s_->users[frame - first_user()].owner).compare_exchange(owner, 0, simt::order::relaxed);
    if (rules::takes_owners_pin(was_owner)) unpin(frame);
  }
  /// The same, and waits until the buffer is no page's frame: it has been written back, and nobody has it pinned. Where
  /// that fails, or the deadline passes, the buffer still belongs to the cache. `no_frame`: another thread had it
  /// pinned until then.
  FOREBAY_DEVICE status take_back(std::uint32_t frame, std::uint32_t ticket, std::uint64_t deadline_ns) const {
    return simt::out_of_line(&take_back_slowly)(s_, frame, ticket, deadline_ns);
  }

  static constexpr std::uint64_t no_page = outside_frame::no_page;
  FOREBAY_DEVICE std::uint32_t drive_of(std::uint64_t page) const {
    return s_->layout.piece_at(page << page_shift_, 1).drive;
  }
  /// The page in a frame that has to be written back or is being, `no_page` where there is none.
  FOREBAY_DEVICE std::uint64_t page_to_clean(std::uint32_t frame) const {
    page_word const seen = look(frame);
    bool const unclean = seen.state() == page_state::valid && (seen.is_dirty() || seen.is_writing());
    return unclean ? page_in(frame, seen) : no_page;
  }
  /// The page of a frame outside the sets, `no_page` where it has none.
  FOREBAY_DEVICE std::uint64_t page_outside(std::uint32_t frame) const {
    // Relaxed: a look.
    return simt::atomic<M>(s_->outside[frame - first_outside()].page).load(simt::order::relaxed);
  }

  /// The frames that users' buffers may be, and of the `k`-th of them: the bytes, and the ticket, that it had last.
  FOREBAY_DEVICE std::uint32_t first_user() const { return first_outside() + s_->overflow_count; }
  FOREBAY_DEVICE std::uint32_t user_count() const { return s_->user_count; }
  FOREBAY_DEVICE std::byte const* user_data(std::uint32_t k) const { return s_->users[k].buffer.data(); }
  FOREBAY_DEVICE std::uint32_t user_ticket(std::uint32_t k) const {
    // Acquire pairs with the release in take_user_frame().
    return simt::atomic<M>(s_->users[k].ticket).load(simt::order::acquire);
  }

  /// How many pages may be prefetched before the first of them is used: of more, those that came first would have to
  /// make room for others, or the others find none. Half of what the cache holds: the rest is for pages in use, and
  /// because pages at random do not fill all sets alike.
  FOREBAY_DEVICE std::uint64_t prefetch_distance_max() const { return std::uint64_t{mapping_.sets()} * cache_ways / 2; }

  FOREBAY_DEVICE queues_type queues() const {
    io_queues_state* const q = s_->queues;
    return queues_type(q, q->pairs, targets());
  }
  FOREBAY_DEVICE targets_type targets() const {
    io_queues_state* const q = s_->queues;
    return targets_type(record_pool<M>(q->records, q->free_records), s_);
  }
  FOREBAY_DEVICE std::uint64_t default_deadline_ns() const { return M::clock_ns() + s_->queues->limits.timeout_ns; }

 private:
  using rules = typename Traits::cache_rules;

  enum class until : std::uint8_t { read, idle };

  /// What one look under a set's lock came to.
  struct claim {
    enum class result : std::uint8_t {
      contended,  ///< another thread holds the lock
      found,      ///< `frame` is for the page already, and was pinned unless this is a prefetch
      claimed,    ///< `frame` is now busy with the page, which is to be read
      failed,     ///< the page is in `frame`, could not be read, and others are still looking at that
      no_room,
    };
    result what = result::contended;
    std::uint32_t frame = none;
    std::uint32_t to_clean = none;   ///< a frame whose write-back began, and is to be submitted
    page_word clean_word;            ///< its word before
    std::uint32_t from_host = none;  ///< of the host pool: the way that the page is copied from
    std::uint32_t to_host = none;    ///< the way that the page that was in the frame is copied to
    std::uint32_t unsettled = none;  ///< a frame of the set that is being read or written
    status failure;                  ///< of `failed`
  };

  /// A page that is read into a frame, which the caller has pinned.
  struct begun_read {
    enum class by : std::uint8_t { other, caller, host_pool };
    std::uint32_t frame = none;
    by who = by::other;
  };

  /// What a look under a set's lock is for.
  enum class purpose : std::uint8_t { read, overwrite, prefetch, share };

  FOREBAY_DEVICE std::uint32_t first_outside() const { return mapping_.sets() * cache_ways; }
  FOREBAY_DEVICE auto host() const { return host_pool<M, typename pools_type::host_policy>(s_->host); }

  // Words
  // --------------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE cache_set<policy_type>& set_at(std::uint32_t set) const {
    return *reinterpret_cast<cache_set<policy_type>*>(s_->sets + std::uint64_t{set} * s_->set_bytes);
  }
  FOREBAY_DEVICE auto word(std::uint32_t frame) const { return simt::atomic<M>(words_[frame]); }
  FOREBAY_DEVICE page_word look(std::uint32_t frame) const {
    // Relaxed: whoever acts on it compares and swaps.
    return {word(frame).load(simt::order::relaxed)};
  }
  FOREBAY_DEVICE page_word add_pin(std::uint32_t frame) const {
    // Acquire pairs with the completion of the read, and with the unpin of those who wrote: the page's bytes.
    page_word const before{word(frame).fetch_add(page_word::one_pin, simt::order::acquire)};
    trace().pinned(frame);
    return before;
  }
  /// By a thread that has pinned the frame, whose word was `seen` then.
  FOREBAY_DEVICE void mark_dirty(std::uint32_t frame, page_word seen) const {
    // A page that was dirty when it was pinned stays so, because it is pinned. Relaxed: the pin came first on the same
    // word, and our unpin releases what we write.
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

  /// The ways of a set that may be for the page. Where none is, and the calling thread has not heard of a frame outside
  /// the set, then every write to the page that came before the call is on the drive: whoever wrote had pinned a frame,
  /// which he found by its fingerprint or under the lock under which that was written; so the fingerprint came before,
  /// too.
  FOREBAY_DEVICE std::uint32_t ways_of(page_location at) const {
    simt::vec16 const both = M::load_pair(fingerprints_ + std::uint64_t{at.set} * fingerprints::words_per_set);
    return fingerprints::ways_of(both.low, both.high, at.tag);
  }
  /// Under the lock of the set, by whoever has claimed `way`; `words`: what the words of the set's frames were under
  /// it.
  FOREBAY_DEVICE void write_fingerprint(page_location at, std::uint32_t way, page_word const* words) const {
    std::uint32_t const first = way / 8 * 8;
    std::uint64_t all = 0;
    for (std::uint32_t w = 0; w < 8; ++w) {
      // Of what the caller knows, which is cheaper than to load the old word.
      all |= fingerprints::byte_of(w, fingerprints::of(first + w == way ? at.tag : words[first + w].tag()));
    }
    // Relaxed: a hint, and nobody else writes it without the lock.
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
  /// The frame that holds the page, and its word.
  FOREBAY_DEVICE std::uint32_t find_valid(page_location at, page_word& found) const {
    FOREBAY_ROLLED
    for (std::uint32_t ways = ways_of(at); ways != 0; ways &= ways - 1) {
      std::uint32_t const frame = at.set * cache_ways + simt::lowest_bit(ways);
      // Acquire pairs with the completion of the read, and with the unpin of those who wrote: the page's bytes.
      found = {word(frame).load(rules::first_look)};
      if (found.holds(at.tag)) return frame;
    }
    return none;
  }
  /// `Batch` words are on their way at a time.
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

  FOREBAY_DEVICE wait_trace<M> trace() const {
    if constexpr (debug_waits) return wait_trace<M>(&s_->queues->waits);
    return wait_trace<M>(nullptr);
  }

  // Locks
  // --------------------------------------------------------------------------------------------------------------

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
  /// Waits until a frame that could take a page of the set is not pinned: a way of it, or an overflow frame, whose
  /// number among them `overflow` then is. Those who hold pins wait for none of ours, unless we hold some.
  FOREBAY_DEVICE bool wait_for_unpinned(std::uint32_t set, std::uint64_t deadline_ns, std::uint32_t& overflow) const {
    return simt::out_of_line(&wait_for_unpinned_in)(s_, set, deadline_ns, overflow);
  }
  FOREBAY_COLD static bool wait_for_unpinned_in(cache_state* state, std::uint32_t set, std::uint64_t deadline_ns,
                                                std::uint32_t& overflow) {
    cache_ref const self = from(state);
    [[maybe_unused]] auto const noted = self.trace().waits_for(wait_kind::unpinned_frame, set);
    std::uint32_t const count = state->overflow_count;
    std::uint32_t next = count != 0 ? M::thread_rank() % count : 0;
    auto const finds_overflow = [&](std::uint32_t looks) {
      if (!rules::waits_outside_the_set) return false;
      if (state->free_overflow.template seems_free<M>()) return true;
      FOREBAY_ROLLED
      for (; looks != 0; --looks) {
        std::uint32_t const k = next;
        next = next + 1 < count ? next + 1 : 0;
        page_word const seen = self.look(self.first_outside() + k);
        // One that holds no page is in the pool, or somebody's.
        if (seen.pins() != 0 || seen.state() == page_state::invalid) continue;
        overflow = k;
        return true;
      }
      return false;
    };
    // Most waits end within the time of one command, in the set. If every waiter looked at all overflow frames
    // meanwhile, they would slow down those who pin and unpin. So each looks at a few of them now and then, from a
    // start of its own.
    constexpr std::uint32_t turn = M::asks_again_and_again ? outside_turn : 1;
    std::uint32_t const looks = M::asks_again_and_again && count > turn ? turn : count;
    std::uint32_t calls = 0;
    bool const found = M::wait_until(
        [&] {
          bool any = false;
          self.template scan<cache_ways / 2>(set,
                                             [&](std::uint32_t, page_word seen) { any = any || seen.pins() == 0; });
          return any || (++calls % turn == 0 && finds_overflow(looks));
        },
        deadline_ns);
    // At the end at all of them: a thread may have been held up past its deadline.
    return found || finds_overflow(count);
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
  // --------------------------------------------------------------------------------------------------------------

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
  /// The lock is held for as long as the loads take that must wait for one another: so those that need not are all
  /// begun before the first has come.
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

  /// What a policy sees of a set: `view` of it, as it was found.
  class locked_set {
   public:
    FOREBAY_DEVICE locked_set(cache_ref const& cache, std::uint32_t first_frame, replacement::set_view& view)
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
    cache_ref const& cache_;
    std::uint32_t first_;
    replacement::set_view& view_;
  };

  /// Pages that may come to a set after a prefetched one before that counts as abandoned.
  static constexpr std::uint32_t prefetch_ages = 4 * cache_ways;
  /// Frames that a set should have clean: with fewer, whoever takes one begins to write another back.
  static constexpr std::uint32_t clean_wanted = cache_ways / 4;

  /// Whether a frame outside the set may hold a page of it. If not, and no frame of the set does, then every write to
  /// the page that came before the call is on the drive.
  FOREBAY_DEVICE bool has_outside(page_location at) const {
    // Relaxed: who wrote to a page in such a frame came after the store that put the frame into the list.
    return simt::atomic<M>(set_at(at.set).outside).load(simt::order::relaxed) != 0;
  }
  /// The outside frame that is for the page, in whatever state but free; `k`: the head of the list.
  FOREBAY_DEVICE std::uint32_t find_outside(page_location at, std::uint32_t k) const {
    std::uint32_t const after = first_outside();
    FOREBAY_ROLLED
    for (; k != 0; k = after_in_list(k)) {
      page_word const seen = look(after + k - 1);
      if (seen.names(at.tag) && !seen.is_free()) return after + k - 1;
    }
    return none;
  }
  /// The frame after the `k`-th of a set's list, 1 + its number as `k` is; 0: none.
  FOREBAY_DEVICE std::uint32_t after_in_list(std::uint32_t k) const {
    // Relaxed: whoever acts on the list holds its set's lock, and who only looks makes sure of what it finds.
    return simt::atomic<M>(s_->outside[k - 1].next).load(simt::order::relaxed);
  }
  /// Frames of a set's list that a look without its lock visits: the lists of all but the smallest caches are shorter.
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
  /// The same, pinned: pages that many threads want at a time would pass through their set's lock one by one.
  FOREBAY_DEVICE std::uint32_t pin_outside_unlocked(page_location at, std::uint64_t page) const {
    std::uint32_t const frame = find_outside_unlocked(at, page);
    if (frame == none) return none;
    page_word const seen = add_pin(frame);
    // The word names no set, so the frame may hold another set's page of the same tag by now. Who hung it up said which
    // before it could become valid, and the pin acquires that; as long as it is pinned it stays that page's.
    if (rules::pin_holds(seen, at.tag) && seen.state() == page_state::valid && is_for(frame, page)) return frame;
    unpin(frame);
    return none;
  }
  FOREBAY_DEVICE bool is_for(std::uint32_t outside_frame, std::uint64_t page) const {
    // Relaxed: where it matters, a pin has acquired it.
    return simt::atomic<M>(s_->outside[outside_frame - first_outside()].page).load(simt::order::relaxed) == page;
  }
  FOREBAY_DEVICE std::uint32_t find_locked(page_location at, survey const& seen) const {
    return seen.match != 0 ? at.set * cache_ways + simt::lowest_bit(seen.match) : find_outside(at, seen.outside);
  }

  /// Takes a frame for the page, if it may take one: `spare`, an outside frame of the caller's, where no way can be
  /// had, or where the caller is to share it.
  FOREBAY_DEVICE claim try_claim(page_location at, purpose why, std::uint32_t spare, bool last_resort) const {
    bool const prefetch = why == purpose::prefetch;
    claim out;
    if (!try_lock(at.set)) return out;
    survey seen_set = look_at(at);
    out.frame = rules::look_again ? find_locked(at, seen_set) : none;
    if (out.frame != none) {
      out.what = claim::result::found;
      // Pinned before the lock goes, or it could be evicted again.
      page_word const seen = prefetch ? look(out.frame) : add_pin(out.frame);
      if (seen.state() == page_state::failed && !prefetch) {
        // Not one more who holds the failure up, or it might stay for ever.
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
          // Afterwards, lest the page that is wanted make room itself. A tag has 28 bits, so it is not `none`.
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
        count<&cache_counters::evictions>();
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
    // Relaxed, all: nobody else takes a frame that is in no set's list; the lock orders page and list for those who act
    // on them. Added, for others may pin the frame for a moment, taking it for the page that it held: but for their
    // pins the word is the caller's.
    std::uint64_t const before = look(spare).bits & (page_word::one_pin - 1);
    word(spare).fetch_add(page_word{before}.claimed_for(at.tag, pins, false).bits - before, simt::order::relaxed);
    simt::atomic<M>(frame.next).store(head.load(simt::order::relaxed), simt::order::relaxed);
    simt::atomic<M>(frame.page).store(mapping_.page_of(at), simt::order::relaxed);
    head.store(spare - first_outside() + 1, simt::order::relaxed);
    out.what = claim::result::claimed;
    out.frame = spare;
  }

  /// Begins to write one of the frames in the mask back, another one each time.
  FOREBAY_DEVICE void begin_cleaning(claim& out, std::uint32_t first, std::uint32_t cleanable,
                                     std::uint32_t tick) const {
    // Turned, so that the ways from the tick on come first.
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

  /// Makes the frame busy with the page `tag`, if it is still `free`, or else evictable. `old`: what its word was when
  /// it was looked at; then what it was before this.
  FOREBAY_DEVICE bool try_take(std::uint32_t frame, std::uint32_t tag, std::uint32_t pins, bool prefetch, bool free,
                               page_word& old) const {
    while (free ? old.is_free() : rules::evictable(old)) {
      // Acquire pairs with the release of unpins and of write-backs: the old page's readers and writers are done. A
      // failure says that somebody has changed the word.
      if (word(frame).compare_exchange(old.bits, old.claimed_for(tag, pins, prefetch).bits, simt::order::acquire))
        return true;
    }
    return false;
  }
  /// Makes an evictable frame free. Under the lock of its set.
  FOREBAY_DEVICE bool drop(std::uint32_t frame, page_word seen) const {
    page_word const gone{seen.claimed_for(seen.tag(), 0, false).bits & ~page_word::state_mask};
    // Acquire as in try_take().
    return word(frame).compare_exchange(seen.bits, gone.bits, simt::order::acquire);
  }

  // Commands
  // -----------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE io_command command_for(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t frame) const {
    storage_layout const& layout = s_->layout;
    std::uint64_t const first = page << page_shift_;
    std::uint64_t bytes = std::uint64_t{1} << page_shift_;
    // The last page of a storage may be a short one.
    if (bytes > layout.size_bytes - first) bytes = layout.size_bytes - first;
    storage_layout::piece const p = layout.piece_at(first, bytes);
    io_command command;
    command.opcode = opcode;
    command.nsid = layout.nsid;
    command.slba = p.byte_on_drive >> layout.block_shift;
    command.blocks = static_cast<std::uint32_t>(p.bytes >> layout.block_shift);
    command.bytes = p.bytes;
    command.buffer = frame < first_user() ? s_->frame_memory.subspan(std::uint64_t{frame} << page_shift_, p.bytes)
                                          : s_->users[frame - first_user()].buffer.subspan(0, p.bytes);
    return command;
  }

  /// A command for a page, and the queue pair of its drive that it goes to.
  struct page_command {
    nvme::io_opcode opcode;
    std::uint32_t frame;
    std::uint32_t target;
    std::uint32_t home;   ///< among the drive's; `none`: not known yet
    std::uint32_t noted;  ///< the one that the frame's note names, or `none`
    std::uint64_t page;
    std::uint64_t deadline_ns;
    bool helped = false;  ///< whether submit_once() delivered anything
  };

  /// Waits for room in the queues until the deadline; with deadline 0 it does not wait.
  FOREBAY_DEVICE status submit(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t frame, std::uint32_t target,
                               std::uint64_t deadline_ns) const {
    return simt::out_of_line(&submit_for)(s_, opcode, page, frame, target, deadline_ns);
  }
  FOREBAY_COLD static status submit_for(cache_state* state, nvme::io_opcode opcode, std::uint64_t page,
                                        std::uint32_t frame, std::uint32_t target, std::uint64_t deadline_ns) {
    return from(state).submit_here(opcode, page, frame, target, deadline_ns);
  }
  FOREBAY_DEVICE status submit_here(nvme::io_opcode opcode, std::uint64_t page, std::uint32_t frame,
                                    std::uint32_t target, std::uint64_t deadline_ns) const {
    page_command command{opcode, frame, target, none, none, page, deadline_ns};
    status const result = simt::out_of_line(&submit_once)(s_, command, command.helped);
    // Most find room at once, and do not pay for the stack of the slow way.
    return result.kind() != fault::busy ? result : simt::out_of_line(&submit_slowly)(s_, command);
  }
  /// Goes on where submit_here() has found no room. No function that it calls, directly or not, has the same prototype
  /// (find_spare() says why).
  FOREBAY_COLD static status submit_slowly(cache_state* state, page_command& command) {
    cache_ref const self = from(state);
    status result = fault::busy;
    // PRP lists may all be held by commands of other drives' pairs, for which nobody waits yet (Q5).
    bool const may_help = queue_rules_type::waiters_help && self.needs_prp_list();
    auto const help_others = [&] {
      FOREBAY_ROLLED
      for (std::uint32_t pair = 0; may_help && pair < state->queues->pair_count; ++pair) {
        command.helped = simt::out_of_line(&help_for)(state, pair) || command.helped;
      }
      return command.helped;
    };
    if (command.deadline_ns == 0)
      return help_others() ? simt::out_of_line(&submit_once)(state, command, command.helped) : result;
    if (command.deadline_ns == default_time) command.deadline_ns = self.default_deadline_ns();
    [[maybe_unused]] auto const noted = self.trace().waits_for(wait_kind::frame_command, command.frame);
    bool const decided = M::wait_until(
        [&] {
          FOREBAY_ROLLED
          for (std::uint32_t late_helps = 0;;) {
            command.helped = false;
            result = simt::out_of_line(&submit_once)(state, command, command.helped);
            if (result.kind() != fault::busy) return true;
            // Round again, rather than stay at a pair: a busy one shall not keep the thread from the others. A thread
            // that goes to sleep must have seen each ring empty.
            if (!help_others()) return false;
            if (M::clock_ns() >= command.deadline_ns && ++late_helps == simt::late_helps_max) return false;
          }
        },
        command.deadline_ns);
    // Nobody may be waiting for those that take the room: prefetches, requests that were detached.
    if (rules::asks_for_room && !decided) {
      pair_range const in_the_way = self.needs_prp_list() ? pair_range{0, state->queues->pair_count}
                                                          : state->layout.pairs_of(self.drive_of(command.page));
      FOREBAY_ROLLED
      for (std::uint32_t k = 0; k < in_the_way.count; ++k) {
        simt::out_of_line (&ask_for_recovery)(state, in_the_way.at(k), none);
      }
    }
    return result;
  }
  FOREBAY_DEVICE bool needs_prp_list() const {
    return std::uint64_t{1} << page_shift_ > s_->queues->prp_pages.page_bytes;
  }
  /// A deadline after the default time, from when it is known that there is something to wait for.
  static constexpr std::uint64_t default_time = 1;

  /// As io_queues_ref::submit() does, in parts that each need few registers: tries each pair of the page's drive, and
  /// helps once where it has no room. `busy`, or `cancelled` where all pairs are dead. Sets `helped`, where it
  /// delivered anything.
  FOREBAY_COLD static status submit_once(cache_state* state, page_command& command, bool& helped) {
    pair_range const of_drive =
        state->layout.pairs_of(state->layout.piece_at(command.page << state->page_shift, 1).drive);
    std::uint32_t const first = of_drive.first, pairs = of_drive.count;
    if (command.home == none) command.home = home_pair<M>(pairs);
    std::uint32_t dead_pairs = 0;
    FOREBAY_ROLLED
    for (std::uint32_t k = 0; k < pairs; ++k) {
      std::uint32_t const pair = first + command.home;
      // Before the command: once it is there it may complete, and the frame may be another command's, whose note it
      // would spoil. Relaxed: only where to help, until the word says more.
      if (command.noted != command.home) {
        simt::atomic<M>(state->notes[command.frame]).store(pair, simt::order::relaxed);
      }
      command.noted = command.home;
      submission outcome = simt::out_of_line(&send_for)(state, command, pair);
      if (outcome == submission::no_room && simt::out_of_line(&help_for)(state, pair)) {
        helped = true;
        outcome = simt::out_of_line(&send_for)(state, command, pair);
      }
      if (outcome == submission::yes) return {};
      if (outcome == submission::dead) ++dead_pairs;
      command.home = command.home + 1 < pairs ? command.home + 1 : 0;
    }
    return dead_pairs == pairs ? fault::cancelled : fault::busy;
  }

  enum class submission : std::uint8_t { yes, no_room, dead };
  FOREBAY_COLD static submission send_for(cache_state* state, page_command const& command, std::uint32_t pair) {
    auto const queue = typename queues_type::pair_type{state->queues->pairs + pair};
    io_command const io = from(state).command_for(command.opcode, command.page, command.frame);
    if (queue.try_submit(io, state->queues->prp_pages, command.target)) return submission::yes;
    return queue.dead() ? submission::dead : submission::no_room;
  }
  /// Whether there was anything to deliver; nothing, where a service is there for that.
  FOREBAY_COLD static bool help_for(cache_state* state, std::uint32_t pair) {
    if constexpr (queue_rules_type::waiters_help) {
      return from(state).queues().help(pair);
    } else {
      return false;
    }
  }
  FOREBAY_DEVICE std::uint64_t page_in(std::uint32_t frame, page_word seen) const {
    // Outside the sets: the frame holds a page, and keeps it while it is being written.
    return frame < first_outside() ? mapping_.page_of({frame / cache_ways, seen.tag()}) : page_outside(frame);
  }

  /// From here on whoever got true owes the submission of the write.
  FOREBAY_DEVICE bool begin_write_back(std::uint32_t frame, page_word seen) const {
    // Acquire pairs with the release of the writers' unpins: the command reads what they wrote.
    return word(frame).compare_exchange(seen.bits, rules::written_back(seen).bits, simt::order::acquire);
  }
  /// With deadline 0 it does not wait. Where the command could not be sent the page is dirty as before.
  FOREBAY_DEVICE status submit_write_back(std::uint32_t frame, page_word seen, std::uint64_t deadline_ns) const {
    status const sent =
        submit(nvme::io_opcode::write, page_in(frame, seen), frame, targets_type::write_back(frame), deadline_ns);
    if (sent.ok()) {
      count<&cache_counters::write_backs>();
    } else {
      // Dirty first: a frame that is neither would be clean. Relaxed, then release, which pairs with the acquire of
      // those who wait for the write-back.
      word(frame).fetch_or(page_word::dirty, simt::order::relaxed);
      word(frame).fetch_and(~page_word::writing, simt::order::release);
    }
    return sent;
  }

  /// Waits until the frame is not being read (`until::read`), or neither read nor written; helps meanwhile. False at
  /// the deadline: recovery has been asked for.
  FOREBAY_DEVICE bool settle(std::uint32_t frame, until what, std::uint64_t deadline_ns) const {
    return simt::out_of_line(&settle_for)(s_, frame, what, deadline_ns);
  }
  FOREBAY_COLD static bool settle_for(cache_state* state, std::uint32_t frame, until what, std::uint64_t deadline_ns) {
    return from(state).settle_here(frame, what, deadline_ns);
  }
  FOREBAY_DEVICE bool settle_here(std::uint32_t frame, until what, std::uint64_t deadline_ns) const {
    auto const settled = [&] { return is_settled(frame, what); };
    [[maybe_unused]] auto const noted =
        trace().waits_for(what == until::read ? wait_kind::page_read : wait_kind::page_settled, frame);
    bool const done = M::wait_until(
        [&] {
          if (settled()) return true;
          std::uint32_t const pair = pair_of_command(frame);
          if ((pair & cache_core::note_is_status) != 0) return settled();
          std::uint32_t late_helps = 0;
          do {
            if (!simt::out_of_line(&help_for)(s_, pair)) break;
          } while (!settled() && (M::clock_ns() < deadline_ns || ++late_helps != simt::late_helps_max));
          return settled();
        },
        deadline_ns);
    if (!done) ask_for_recovery_of(frame);
    return done;
  }
  FOREBAY_DEVICE bool is_settled(std::uint32_t frame, until what) const {
    // Acquire pairs with the release of the completion.
    page_word const seen{word(frame).load(simt::order::acquire)};
    return seen.state() != page_state::busy && (what == until::read || !seen.is_writing());
  }
  FOREBAY_DEVICE std::uint32_t pair_of_command(std::uint32_t frame) const {
    // Relaxed: where to help.
    return simt::atomic<M>(s_->notes[frame]).load(simt::order::relaxed);
  }
  FOREBAY_DEVICE void ask_for_recovery_of(std::uint32_t frame) const {
    std::uint32_t const pair = pair_of_command(frame);
    if ((pair & cache_core::note_is_status) == 0) simt::out_of_line (&ask_for_recovery)(s_, pair, frame);
  }

  /// Of the commands of `frame`, or, with `none`, of all.
  FOREBAY_COLD static void ask_for_recovery(cache_state* state, std::uint32_t pair, std::uint32_t frame) {
    auto const q = from(state).queues();
    if (frame == none) return q.ask_for_recovery(pair);
    q.ask_for_recovery(pair, targets_type::fill(frame));
    q.ask_for_recovery(pair, targets_type::write_back(frame));
  }

  FOREBAY_DEVICE std::uint64_t failed_write_backs() const {
    // Relaxed: the word, which is released after the count has grown, was acquired.
    return simt::atomic<M>(s_->failed_write_backs).load(simt::order::relaxed);
  }
  /// What the last command on the frame failed with, if it did.
  FOREBAY_DEVICE status failure_of(std::uint32_t frame) const {
    // Relaxed: settle() or a pin acquired it.
    std::uint32_t const note = simt::atomic<M>(s_->notes[frame]).load(simt::order::relaxed);
    return (note & cache_core::note_is_status) != 0 ? status::from_bits(note & ~cache_core::note_is_status) : status();
  }

  // Outside frames
  // ------------------------------------------------------------------------------------------------------

  /// Frames that a look for one to take back visits.
  static constexpr std::uint32_t outside_looks = 64;
  /// After this many looks at its set, a thread that waits for a frame looks at this many overflow frames.
  static constexpr std::uint32_t outside_turn = 16;

  /// An overflow frame that is in no set's list, or `none`. `look_from`: the number among them of one that was not
  /// pinned, for which the caller waits for a lock and for room in the queues; `none`: it waits for nothing.
  FOREBAY_DEVICE std::uint32_t take_overflow_frame(std::uint32_t look_from) const {
    return take_outside_frame(s_->free_overflow, 0, s_->overflow_count, look_from);
  }
  /// A frame of `pool`, whose frames are `count` from the `first`-th outside frame on; else one of them that nobody
  /// uses any more.
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
        // For the frame that it wants the caller waits for room, too: else nobody would ask what takes it.
        (void)submit_write_back(frame, seen, k == look_from ? default_time : 0);
      }
      k = k + 1 < count ? k + 1 : 0;
    }
    return none;
  }
  FOREBAY_DEVICE void give_overflow_frame(std::uint32_t frame) const {
    s_->free_overflow.template give<M>(frame - first_outside());
  }
  /// Takes an outside frame that nobody uses out of its set's list. Waits for the set's lock, or needs it at once.
  FOREBAY_DEVICE bool try_unlink(std::uint32_t k, bool waits) const {
    auto page = simt::atomic<M>(s_->outside[k].page);
    // Relaxed: looked at again under the lock.
    std::uint64_t const seen_page = page.load(simt::order::relaxed);
    if (seen_page == outside_frame::no_page) return false;
    std::uint32_t const set = mapping_.locate(seen_page).set;
    // Many who look through a set for room hold its lock in turn: who tries only may never have it.
    if (!(waits ? lock(set, simt::no_deadline) : try_lock(set))) return false;
    bool taken = false;
    std::uint32_t const frame = first_outside() + k;
    // Relaxed: under the lock of the set that it names, nobody changes it.
    if (page.load(simt::order::relaxed) == seen_page) {
      page_word const seen = look(frame);
      taken = (seen.is_evictable() || seen.is_free()) && drop(frame, seen);
      if (taken) unlink(set, k);
    }
    unlock(set);
    return taken;
  }
  /// Under the lock of the set.
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
    // Release pairs with the acquire in take_back_slowly(): nobody uses the frame any more.
    simt::atomic<M>(s_->outside[k].page).store(outside_frame::no_page, simt::order::release);
  }

  // Users' buffers
  // ------------------------------------------------------------------------------------------------------

  FOREBAY_COLD static page_share share_slowly(cache_state* state, std::uint64_t page, buffer_ref const& buffer,
                                              sharing_use use) {
    cache_ref const self = from(state);
    access const how = use == sharing_use::overwrite ? access::overwrite : access::read;
    std::uint64_t const deadline_ns = self.default_deadline_ns();
    page_share out;
    std::uint32_t mine = none;
    if constexpr (pools_type::has_users) {
      if (pools_type::sharing::template joins<M>(page, use)) mine = self.take_user_frame(buffer);
    }
    if (mine == none) {
      out.pinned = self.pin(page, how, when_full::wait);
      return out;
    }
    user_frame& user = state->users[mine - self.first_user()];
    for (;;) {
      claim const c = simt::out_of_line(&claim_for)(state, page, purpose::share, mine, false);
      if (c.what == claim::result::contended) {
        if (self.wait_for_lock(self.mapping_.locate(page).set, deadline_ns)) continue;
        out.pinned.outcome = fault::timed_out;
      } else if (c.what == claim::result::failed) {
        out.pinned.outcome = c.failure;
      } else if (c.what == claim::result::found && use == sharing_use::read) {
        out.pinned.frame = c.frame;
      } else if (c.what == claim::result::found) {
        if (!simt::out_of_line(&wait_for_page)(state, c.frame, true, how, deadline_ns, out.pinned)) continue;
      } else {
        self.template count<&cache_counters::shared>();
        out.pinned.frame = mine;
        // Relaxed: the frame is ours.
        out.ticket = simt::atomic<M>(user.ticket).load(simt::order::relaxed);
        if (use == sharing_use::overwrite) {
          self.publish(mine);
          return out;
        }
        self.template count<&cache_counters::misses>();
        status const sent = self.submit(nvme::io_opcode::read, page, mine, targets_type::fill(mine), deadline_ns);
        if (!sent.ok()) self.targets().filled(mine, sent);
        return out;
      }
      break;
    }
    // It was never shared: nobody has a pin for it to be taken away. Relaxed: the frame is in no list, and ours.
    simt::atomic<M>(user.owner).store(0, simt::order::relaxed);
    state->free_users.template give<M>(mine - self.first_user());
    return out;
  }

  /// A frame for a user's buffer, in no list; `none`: all are in use.
  FOREBAY_DEVICE std::uint32_t take_user_frame(buffer_ref const& buffer) const {
    if (buffer.data() == nullptr || buffer.size_bytes() < std::uint64_t{1} << page_shift_) return none;
    std::uint32_t const frame = take_outside_frame(s_->free_users, s_->overflow_count, s_->user_count, none);
    if (frame == none) return none;
    user_frame& user = s_->users[frame - first_user()];
    user.buffer = buffer;
    // Relaxed: nobody else changes it while the frame is in no list.
    std::uint32_t const last = simt::atomic<M>(user.ticket).load(simt::order::relaxed);
    std::uint32_t const ticket = last + 1 != 0 ? last + 1 : 1;
    simt::atomic<M>(user.owner).store(ticket, simt::order::relaxed);
    // Release pairs with the acquire in take_back_slowly(): what was done with the frame's last buffer is over.
    simt::atomic<M>(user.ticket).store(ticket, simt::order::release);
    return frame;
  }

  FOREBAY_COLD static status take_back_slowly(cache_state* state, std::uint32_t frame, std::uint32_t ticket,
                                              std::uint64_t deadline_ns) {
    cache_ref const self = from(state);
    self.let_go(frame, ticket);
    std::uint32_t const k = frame - self.first_outside();
    user_frame& user = state->users[frame - self.first_user()];
    // Acquire, both: pair with the release in take_user_frame(), and with that in unlink().
    auto const page_of_frame = [&] { return simt::atomic<M>(state->outside[k].page).load(simt::order::acquire); };
    auto const is_back = [&] {
      return simt::atomic<M>(user.ticket).load(simt::order::acquire) != ticket ||
             page_of_frame() == outside_frame::no_page;
    };
    for (;;) {
      std::uint64_t const page = page_of_frame();
      if (is_back() || page == outside_frame::no_page) return {};
      page_word const seen = self.look(frame);
      if (seen.is_evictable() || seen.is_free()) {
        if (self.try_unlink(k, false)) {
          state->free_users.template give<M>(frame - self.first_user());
          return {};
        }
        if (!self.wait_for_lock(self.mapping_.locate(page).set, deadline_ns)) return fault::timed_out;
      } else if (seen.state() == page_state::busy || seen.is_writing()) {
        if (!self.settle(frame, until::idle, deadline_ns)) return fault::timed_out;
      } else if (seen.pins() != 0) {
        [[maybe_unused]] auto const noted = self.trace().waits_for(wait_kind::page_unpinned, frame);
        bool const free = M::wait_until([&] { return is_back() || self.look(frame).pins() == 0; }, deadline_ns);
        if (!free) return fault::no_frame;
      } else {
        status const cleaned = self.clean(frame, deadline_ns);
        if (!cleaned.ok()) return cleaned;
      }
    }
  }

  // The ways of a miss
  // --------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE static cache_ref from(cache_state* state) {
    return cache_ref(state, state->words, state->fingerprints, state->frame_memory.data(), state->mapping,
                     state->page_shift);
  }

  FOREBAY_COLD static claim claim_for(cache_state* state, std::uint64_t page, purpose why, std::uint32_t spare,
                                      bool last_resort) {
    cache_ref const self = from(state);
    return self.try_claim(self.mapping_.locate(page), why, spare, last_resort);
  }

  /// After a frame was claimed: copies the page that was in it to the host pool, and the one that it is for from there.
  /// Whether that has been read now.
  FOREBAY_COLD static bool move_through_host(cache_state* state, claim const& c) {
    cache_ref const self = from(state);
    std::uint64_t const bytes = std::uint64_t{1} << self.page_shift_;
    if (c.to_host != none) {
      M::copy(state->host.frames + c.to_host * bytes, self.frame_data(c.frame), bytes);
      self.host().arrived(c.to_host);
      self.template count<&cache_counters::to_host>();
    }
    if (c.from_host == none) return false;
    M::copy(self.frame_data(c.frame), state->host.frames + c.from_host * bytes, bytes);
    self.host().left(c.from_host);
    // Release pairs with the acquire of whoever pins the frame, or reads it without: filled() stores relaxed.
    M::fence(simt::scope::device, simt::order::release);
    self.targets().filled(c.frame, status());
    self.template count<&cache_counters::from_host>();
    return true;
  }
  /// What a miss has tried so far.
  struct effort {
    std::uint32_t spare = none;  ///< an overflow frame that nobody uses yet
    std::uint32_t failed_cleanings = 0;
    std::uint32_t unpinned_overflow = none;  ///< the number of an overflow frame that was not pinned
    bool looked_for_spare = false;
    bool last_resort = false;
    bool waited = false;  ///< for a frame that is not pinned
  };

  /// Its arguments are such that no function below it is called with the like: ptxas takes each function whose address
  /// is taken for a target of every such call, and cannot tell the stack that a kernel needs where that makes a circle.
  FOREBAY_COLD static void find_spare(cache_state* state, effort& tried) {
    tried.spare = from(state).take_overflow_frame(tried.unpinned_overflow);
  }

  /// After a claim that took no frame: whether it is worth another one. If not, `outcome` says why.
  FOREBAY_COLD static bool make_room(cache_state* state, claim const& c, std::uint64_t page, when_full full,
                                     std::uint64_t deadline_ns, effort& tried, status& outcome) {
    cache_ref const self = from(state);
    std::uint32_t const set = self.mapping_.locate(page).set;
    if (c.what == claim::result::contended) {
      if (self.wait_for_lock(set, deadline_ns)) return true;
      outcome = fault::timed_out;
      return false;
    }
    if (c.what == claim::result::failed) {
      outcome = c.failure;
      return false;
    }
    // An overflow frame costs nothing but the frame; then a page that is clean again; then one that was prefetched and
    // not used; and only then a wait for what is under way.
    if (c.to_clean != none) {
      bool const may_wait = tried.looked_for_spare && tried.last_resort;
      status const sent = self.submit_write_back(c.to_clean, c.clean_word, may_wait ? deadline_ns : 0);
      if (may_wait && !sent.ok()) {
        outcome = sent;
        return false;
      }
    }
    if (!tried.looked_for_spare) {
      simt::out_of_line (&find_spare)(state, tried);
      tried.looked_for_spare = true;
      return true;
    }
    if (!tried.last_resort) {
      tried.last_resort = true;
      return true;
    }
    std::uint32_t const wait_for = c.to_clean != none ? c.to_clean : c.unsettled;
    if (wait_for == none) {
      // Frames that others take again and again are no reason to go on for ever.
      bool const too_late = tried.waited && M::clock_ns() >= deadline_ns;
      tried.waited = true;
      tried.unpinned_overflow = none;
      if (full == when_full::fail || too_late || !self.wait_for_unpinned(set, deadline_ns, tried.unpinned_overflow)) {
        outcome = fault::no_frame;
        return false;
      }
      // It may be on its way to or from its drive still; what it was written with is written back by who takes it.
      if (tried.unpinned_overflow != none &&
          !self.settle(self.first_outside() + tried.unpinned_overflow, until::idle, deadline_ns)) {
        outcome = fault::timed_out;
        return false;
      }
    } else if (!self.settle(wait_for, until::idle, deadline_ns)) {
      outcome = fault::timed_out;
      return false;
    } else if (c.to_clean != none) {
      // Of a drive that takes no writes, no page can make room, however often it is asked to.
      status const failure = self.failure_of(c.to_clean);
      if (!failure.ok() && ++tried.failed_cleanings == cache_ways) {
        outcome = failure;
        return false;
      }
    }
    tried.looked_for_spare = tried.last_resort = false;
    return true;
  }

  /// Waits until the page in a pinned frame has been read. False, and the frame is unpinned, if a prefetch gave its
  /// claim on it back. `found`: another thread reads it.
  FOREBAY_COLD static bool wait_for_page(cache_state* state, std::uint32_t frame, bool found, access how,
                                         std::uint64_t deadline_ns, page_pin& pinned) {
    cache_ref const self = from(state);
    if (self.settle(frame, until::read, deadline_ns))
      return self.accept({frame, found ? begun_read::by::other : begun_read::by::caller}, how, pinned);
    self.unpin(frame);
    pinned.outcome = fault::timed_out;
    return true;
  }
  /// The same for lanes that call this together, and go on together.
  FOREBAY_COLD static bool finish_read(cache_state* state, typename M::warp const lanes, begun_read begun, access how,
                                       page_pin& pinned) {
    cache_ref const self = from(state);
    [[maybe_unused]] auto const noted = self.trace().waits_for(wait_kind::page_read, begun.frame);
    bool const read = M::wait_together(
        lanes, [&] { return self.is_settled(begun.frame, until::read); },
        [&] {
          std::uint32_t const pair = self.pair_of_command(begun.frame);
          return (pair & cache_core::note_is_status) == 0 && simt::out_of_line(&help_for)(state, pair);
        },
        self.default_deadline_ns());
    if (read) return self.accept(begun, how, pinned);
    self.ask_for_recovery_of(begun.frame);
    self.unpin(begun.frame);
    pinned.outcome = fault::timed_out;
    return true;
  }
  /// What has become of a read that ended.
  FOREBAY_DEVICE bool accept(begun_read begun, access how, page_pin& pinned) const {
    std::uint32_t const frame = begun.frame;
    page_word const seen = look(frame);
    if (seen.state() == page_state::valid) {
      if (begun.who == begun_read::by::other) {
        touch(frame, seen);
        count<&cache_counters::hits>();
        count<&cache_counters::merged>();
      } else {
        count<&cache_counters::misses>();
        if (frame >= first_outside()) count<&cache_counters::overflow_frames>();
      }
      if (how != access::read) mark_dirty(frame, seen);
      pinned.frame = frame;
      return true;
    }
    bool const failed = seen.state() == page_state::failed;
    if (failed) pinned.outcome = failure_of(frame);
    unpin(frame);
    return failed;
  }

  /// Finds or claims a frame for the page, and pins it, if there is one to be had. Waits for the lock of the set only.
  FOREBAY_COLD static begun_read begin_read(cache_state* state, std::uint64_t page) {
    cache_ref const self = from(state);
    claim c;
    for (bool first = true;; first = false) {
      c = simt::out_of_line(&claim_for)(state, page, purpose::read, none, false);
      if (c.what != claim::result::contended) break;
      page_location const at = self.mapping_.locate(page);
      // Once: in a small cache, whose lists are long, looking costs more than the lock.
      std::uint32_t const outside = first ? self.pin_outside_unlocked(at, page) : none;
      if (outside != none) return {outside, begun_read::by::other};
      if (!self.wait_for_lock(at.set, self.default_deadline_ns())) break;
    }
    if (c.to_clean != none) (void)self.submit_write_back(c.to_clean, c.clean_word, 0);
    if (c.what == claim::result::found) return {c.frame, begun_read::by::other};
    if (c.what != claim::result::claimed) return {};
    if constexpr (pools_type::has_host) {
      if (simt::out_of_line(&move_through_host)(state, c)) return {c.frame, begun_read::by::host_pool};
    }
    return {c.frame, begun_read::by::caller};
  }
  /// Waits for room in the queues only.
  FOREBAY_COLD static void submit_read(cache_state* state, std::uint64_t page, std::uint32_t frame) {
    cache_ref const self = from(state);
    status const sent = self.submit_here(nvme::io_opcode::read, page, frame, targets_type::fill(frame), default_time);
    if (!sent.ok()) self.targets().filled(frame, sent);
  }

  /// One pointer for an argument, so that a call of it costs the caller few registers.
  /// `joined`: a frame that was pinned while it was for the page, or `none`.
  FOREBAY_COLD static page_pin pin_slowly(cache_state* state, std::uint64_t page, access how, when_full full,
                                          std::uint32_t joined) {
    std::uint64_t const deadline_ns = from(state).default_deadline_ns();
    effort tried;
    page_pin pinned;
    for (;;) {
      claim c;
      if (joined != none) {
        c.what = claim::result::found;
        c.frame = joined;
        joined = none;
      } else {
        c = simt::out_of_line(&claim_for)(state, page, how == access::overwrite ? purpose::overwrite : purpose::read,
                                          tried.spare, tried.last_resort);
      }
      if (c.what != claim::result::claimed && c.what != claim::result::found) {
        if (simt::out_of_line(&make_room)(state, c, page, full, deadline_ns, tried, pinned.outcome)) continue;
        break;
      }
      if (c.to_clean != none) (void)from(state).submit_write_back(c.to_clean, c.clean_word, 0);
      if (c.what == claim::result::claimed) {
        if (c.frame == tried.spare) tried.spare = none;
        bool read = false;
        if constexpr (pools_type::has_host) read = simt::out_of_line(&move_through_host)(state, c);
        if (how == access::overwrite) {
          pinned.frame = c.frame;
          break;
        }
        if (!read) {
          status const sent =
              from(state).submit(nvme::io_opcode::read, page, c.frame, targets_type::fill(c.frame), deadline_ns);
          if (!sent.ok()) from(state).targets().filled(c.frame, sent);
        }
      }
      bool const found = c.what == claim::result::found;
      if (simt::out_of_line(&wait_for_page)(state, c.frame, found, how, deadline_ns, pinned)) break;
    }
    if (tried.spare != none) from(state).give_overflow_frame(tried.spare);
    return pinned;
  }

  FOREBAY_COLD static bool prefetch_slowly(cache_state* state, std::uint64_t page) {
    cache_ref const self = from(state);
    claim const c = simt::out_of_line(&claim_for)(state, page, purpose::prefetch, none, false);
    if (c.to_clean != none) (void)self.submit_write_back(c.to_clean, c.clean_word, 0);
    if (c.what == claim::result::found) return true;
    if (c.what == claim::result::contended) {
      if (self.find_outside_unlocked(self.mapping_.locate(page), page) != none) return true;
    }
    if (c.what == claim::result::claimed) {
      bool read = false;
      if constexpr (pools_type::has_host) read = simt::out_of_line(&move_through_host)(state, c);
      if (read || self.submit(nvme::io_opcode::read, page, c.frame, targets_type::fill(c.frame), 0).ok()) {
        self.template count<&cache_counters::prefetches>();
        return true;
      }
      // Gives the claim back; who waits for it looks again. Relaxed: nothing was written to the frame.
      self.word(c.frame).fetch_and(~page_word::state_mask, simt::order::relaxed);
    }
    self.template count<&cache_counters::refused_prefetches>();
    return false;
  }

  template <std::uint64_t cache_counters::* Counter>
  FOREBAY_DEVICE void count() const {
    if constexpr (Traits::counted) {
      // Relaxed: a statistic.
      simt::atomic<M>(s_->counters[M::this_block().rank % cache_core::counter_stripes].*Counter)
          .fetch_add(1, simt::order::relaxed);
    }
  }

  cache_state* s_ = nullptr;
  std::uint64_t* words_ = nullptr;
  std::uint64_t* fingerprints_ = nullptr;
  std::byte* frames_ = nullptr;
  page_sets mapping_;
  std::uint32_t page_shift_ = 12;
};

/// Of what works on frames without asking the policy.
template <class Rules = cache_rules>
struct policy_free : cached {
  using policy = replacement::no_policy;
  using cache_rules = Rules;
};

}  // namespace forebay
