// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a page is pinned, and what a miss does: it makes room, reads the page, and waits for it.
#pragma once

#include <cstdint>

#include "forebay/cache_counters.hpp"
#include "forebay/detail/cache/cache_core.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/frame_claims.hpp"
#include "forebay/detail/cache/page_sets.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// What a pinned page will be used for.
enum class access : std::uint8_t {
  read,
  write,
  overwrite  ///< all of it is written before anything is read, so that it need not be read from its drive
};
/// What a pin does if other pins hold every frame that could take the page.
enum class when_full : std::uint8_t { fail, wait };

/// A pinned page, or why there is none.
struct page_pin {
  std::uint32_t frame = ~0u;
  status outcome;
};

/// Lanes that miss together claim, submit and wait in step. The functions that a miss calls are called through
/// `simt::out_of_line`; docs/internals/design.md, "cache", says why.
template <class M, cached_traits Traits>
class cache_misses : protected frame_claims<M, Traits> {
  using base = frame_claims<M, Traits>;

 public:
  using base::base;

 protected:
  using base::add_pin;
  using base::claim_for;
  using base::count;
  using base::default_time;
  using base::failure_of;
  using base::find;
  using base::first_outside;
  using base::help_for;
  using base::look;
  using base::mapping_;
  using base::mark_dirty;
  using base::none;
  using base::s_;
  using base::scan;
  using base::touch;
  using base::unpin;
  using typename base::claim;
  using typename base::pools_type;
  using typename base::purpose;
  using typename base::rules;
  using typename base::targets_type;
  using typename base::until;

  /// Pins `page`, and reads it from its drive if it is in no frame. Waits up to the storage's default time. The caller
  /// unpins it. For `access::write` the page counts as written from now on. For `access::overwrite` the caller writes
  /// the whole page and calls publish(), and does not wait before that. `no_frame`: every frame that could take the
  /// page is pinned; with `when_full::wait`, they still are after the default time.
  FOREBAY_DEVICE page_pin pin(std::uint64_t page, access how, when_full full = when_full::fail) const {
    page_location const at = mapping_.locate(page);
    std::uint32_t const frame = find(at);
    std::uint32_t joined = none;
    if (frame != none) {
      page_word const seen = add_pin(frame);
      if (!rules::pin_holds(seen, at.tag)) {
        unpin(frame);
      } else if (seen.state() == page_state::valid) {
        touch(frame, seen);
        if (how != access::read) mark_dirty(frame, seen);
        count(&cache_counters::hits);
        return {frame, {}};
      } else {
        joined = frame;
      }
    }
    return pin_missing(page, how, full, joined);
  }

  /// The same for a page that the caller has just found in no frame. `joined`: `none`, or a frame that the page was
  /// being read into when the caller pinned it. Lanes that come together wait together.
  FOREBAY_DEVICE page_pin pin_missing(std::uint64_t page, access how, when_full full = when_full::fail,
                                      std::uint32_t joined = none) const {
    auto const here = M::converged();
    begun_read begun;
    if (how != access::overwrite) {
      begun = joined != none ? begun_read{joined, begun_read::by::other} : simt::out_of_line(&begin_read)(s_, page);
    }
    // A lane that has claimed a frame here has not submitted its read yet. That does no harm: up to this line lanes
    // wait only for locks, whose holders do not wait, and lanes that submit together ring the doorbell once.
    here.sync();
    if (begun.who == begun_read::by::caller) simt::out_of_line (&submit_read)(s_, page, begun.frame);
    // All lanes submit before any of them waits, and they wait for controllers only. A lane that may have to wait for
    // other threads' pins does so alone.
    std::uint32_t const reads = here.ballot(begun.frame != none);
    if (begun.frame != none) {
      page_pin pinned;
      if (simt::out_of_line(&finish_read)(s_, here.subset(reads), begun, how, pinned)) return pinned;
      joined = none;
    }
    return simt::out_of_line(&pin_slowly)(s_, page, how, full, joined);
  }

  FOREBAY_DEVICE static cache_misses from(cache_state* state) { return base::template part_of<cache_misses>(state); }

  /// A page that is being read into a frame, or has been; the caller has pinned the frame.
  struct begun_read {
    enum class by : std::uint8_t { other, caller, host_pool };
    std::uint32_t frame = none;
    by who = by::other;
  };

  /// What a miss has tried so far.
  struct effort {
    std::uint32_t spare = none;  ///< an overflow frame that no thread uses yet
    std::uint32_t failed_cleanings = 0;
    std::uint32_t unpinned_overflow = none;  ///< the number of an overflow frame that was not pinned
    bool looked_for_spare = false;
    bool last_resort = false;
    bool waited = false;  ///< for a frame to be unpinned
  };

  /// After this many looks at its set, a thread that waits for a frame looks at this many overflow frames.
  static constexpr std::uint32_t outside_turn = 16;
  /// Waits until a frame that could take a page of the set is unpinned. That is a way of the set, or an overflow frame;
  /// `overflow` is then its number among the overflow frames. The threads that hold those pins do not wait for pins of
  /// the caller's, unless the caller holds some.
  FOREBAY_DEVICE bool wait_for_unpinned(std::uint32_t set, std::uint64_t deadline_ns, std::uint32_t& overflow) const {
    return simt::out_of_line(&wait_for_unpinned_in)(s_, set, deadline_ns, overflow);
  }
  FOREBAY_COLD static bool wait_for_unpinned_in(cache_state* state, std::uint32_t set, std::uint64_t deadline_ns,
                                                std::uint32_t& overflow) {
    cache_misses const self = from(state);
    [[maybe_unused]] auto const noted = self.trace().waits_for(wait_kind::unpinned_frame, set);
    std::uint32_t const count = state->overflow_count;
    std::uint32_t const first = count != 0 ? M::thread_rank() % count : 0;
    std::uint32_t next = first;
    auto const finds_overflow = [&](std::uint32_t looks) {
      if (!rules::waits_outside_the_set) return false;
      if (state->free_overflow.template seems_free<M>()) return true;
      if (!rules::looks_go_on) next = first;
      FOREBAY_ROLLED
      for (; looks != 0; --looks) {
        std::uint32_t const k = next;
        next = next + 1 < count ? next + 1 : 0;
        page_word const seen = self.look(self.first_outside() + k);
        // A frame without a page is in the pool, or some thread has taken it.
        if (seen.pins() != 0 || seen.state() == page_state::invalid) continue;
        overflow = k;
        return true;
      }
      return false;
    };
    // Most waits end within the time of one command, in the set. If every waiter looked at all overflow frames
    // meanwhile, they would slow down the threads that pin and unpin. So each looks at a few of them now and then, and
    // starts at a frame of its own.
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
    // At the end it looks at all of them: a thread may have been held up past its deadline.
    return found || finds_overflow(count);
  }

  /// Copies, after a claim, the frame's old page to the host pool and the new page from it. Returns whether the new
  /// page came from there, so that the frame now holds it.
  FOREBAY_COLD static bool move_through_host(cache_state* state, claim const& c) {
    cache_misses const self = from(state);
    std::uint64_t const bytes = std::uint64_t{1} << self.page_shift_;
    if (c.to_host != none) {
      M::copy(state->host.frames + c.to_host * bytes, self.frame_data(c.frame), bytes);
      self.host().arrived(c.to_host);
      self.count(&cache_counters::to_host);
    }
    if (c.from_host == none) return false;
    M::copy(self.frame_data(c.frame), state->host.frames + c.from_host * bytes, bytes);
    self.host().left(c.from_host);
    // Release pairs with the acquire of each thread that pins the frame or reads it without a pin: filled() is relaxed.
    M::fence(simt::scope::device, simt::order::release);
    self.targets().filled(c.frame, status());
    self.count(&cache_counters::from_host);
    return true;
  }

  /// No function that this one calls, directly or not, is called through a pointer with these argument types. For an
  /// indirect call ptxas assumes every function of that type whose address is taken. If such calls form a circle, it
  /// cannot tell how much stack a kernel needs.
  FOREBAY_COLD static void find_spare(cache_state* state, effort& tried) {
    tried.spare = from(state).take_overflow_frame(tried.unpinned_overflow);
  }

  /// After a claim that took no frame: returns whether another claim is worth trying. If not, `outcome` says why.
  FOREBAY_COLD static bool make_room(cache_state* state, claim const& c, std::uint64_t page, when_full full,
                                     std::uint64_t deadline_ns, effort& tried, status& outcome) {
    cache_misses const self = from(state);
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
    // The order of what is tried: an overflow frame, which costs nothing but the frame; a page that is clean again; a
    // page that was prefetched and not used; and only then a wait for reads and writes under way.
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
      // A deadline ends this even if other threads take the unpinned frames again and again.
      bool const too_late = tried.waited && M::clock_ns() >= deadline_ns;
      tried.waited = true;
      tried.unpinned_overflow = none;
      if (full == when_full::fail || too_late || !self.wait_for_unpinned(set, deadline_ns, tried.unpinned_overflow)) {
        outcome = fault::no_frame;
        return false;
      }
      // The frame's page may still be on its way to or from its drive. The thread that takes the frame writes back what
      // was written to it.
      if (tried.unpinned_overflow != none &&
          !self.settle(self.first_outside() + tried.unpinned_overflow, until::idle, deadline_ns)) {
        outcome = fault::timed_out;
        return false;
      }
    } else if (!self.settle(wait_for, until::idle, deadline_ns)) {
      outcome = fault::timed_out;
      return false;
    } else if (c.to_clean != none) {
      // If a drive takes no writes, none of its pages can make room, however often it is asked to.
      status const failure = self.failure_of(c.to_clean);
      if (!failure.ok() && ++tried.failed_cleanings == cache_ways) {
        outcome = failure;
        return false;
      }
    }
    tried.looked_for_spare = tried.last_resort = false;
    return true;
  }

  /// Waits until the page in a pinned frame has been read. If a prefetch gave its claim on the frame back, unpins the
  /// frame and returns false. `found`: another thread reads the page.
  FOREBAY_COLD static bool wait_for_page(cache_state* state, std::uint32_t frame, bool found, access how,
                                         std::uint64_t deadline_ns, page_pin& pinned) {
    cache_misses const self = from(state);
    if (self.settle(frame, until::read, deadline_ns))
      return self.accept({frame, found ? begun_read::by::other : begun_read::by::caller}, how, pinned);
    self.unpin(frame);
    pinned.outcome = fault::timed_out;
    return true;
  }
  /// The same for lanes that call this together; they go on together.
  FOREBAY_COLD static bool finish_read(cache_state* state, typename M::warp const lanes, begun_read begun, access how,
                                       page_pin& pinned) {
    cache_misses const self = from(state);
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
  /// Decides what follows from a read that has ended.
  FOREBAY_DEVICE bool accept(begun_read begun, access how, page_pin& pinned) const {
    std::uint32_t const frame = begun.frame;
    page_word const seen = look(frame);
    if (seen.state() == page_state::valid) {
      if (begun.who == begun_read::by::other) {
        touch(frame, seen);
        count(&cache_counters::hits);
        count(&cache_counters::merged);
      } else {
        count(&cache_counters::misses);
        if (frame >= first_outside()) count(&cache_counters::overflow_frames);
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

  /// Finds or claims a frame for the page, and pins it, if it can get one. Waits for the lock of the set only.
  FOREBAY_COLD static begun_read begin_read(cache_state* state, std::uint64_t page) {
    cache_misses const self = from(state);
    claim c;
    for (bool first = true;; first = false) {
      c = simt::out_of_line(&claim_for)(state, page, purpose::read, none, false);
      if (c.what != claim::result::contended) break;
      page_location const at = self.mapping_.locate(page);
      // Only the first time: in a small cache, whose lists are long, this search costs more than the lock.
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
    cache_misses const self = from(state);
    status const sent = self.submit_here(nvme::io_opcode::read, page, frame, targets_type::fill(frame), default_time);
    if (!sent.ok()) self.targets().filled(frame, sent);
  }

  /// One pointer stands for the whole cache, so that a call costs the caller few registers. `joined`: a frame that was
  /// pinned while it was for the page, or `none`.
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
    cache_misses const self = from(state);
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
        self.count(&cache_counters::prefetches);
        return true;
      }
      // Gives the claim back; the threads that wait for it look again. Relaxed: nothing was written to the frame. Where
      // frames are staged, release pairs with the acquire of the next claim: this thread may have noted a staging page.
      constexpr simt::order given_back = pools_type::frames::staged ? simt::order::release : simt::order::relaxed;
      self.word(c.frame).fetch_and(~page_word::state_mask, given_back);
    }
    self.count(&cache_counters::refused_prefetches);
    return false;
  }
};

}  // namespace forebay
