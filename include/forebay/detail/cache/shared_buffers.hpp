// SPDX-License-Identifier: Apache-2.0
//! \file
//! Users' buffers that serve as frames of the pages that they hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/cache_counters.hpp"
#include "forebay/detail/cache/cache_misses.hpp"
#include "forebay/detail/cache/cache_state.hpp"
#include "forebay/detail/cache/page_word.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/frame_pools.hpp"
#include "forebay/memory.hpp"
#include "forebay/status.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// A page that a thread has pinned by sharing a buffer.
struct page_share {
  page_pin pinned;
  std::uint32_t ticket = 0;  ///< not 0: the buffer is the page's frame; 0: another frame is
};

/// From share() to take_back(), a shared buffer is in the list of its page's set, and every thread uses it as the
/// page's frame.
template <class M, cached_traits Traits>
class shared_buffers : protected cache_misses<M, Traits> {
  using base = cache_misses<M, Traits>;

 public:
  using base::base;

 protected:
  using base::claim_for;
  using base::failure_of;
  using base::first_user;
  using base::look;
  using base::none;
  using base::page_shift_;
  using base::pin;
  using base::s_;
  using base::settle;
  using base::take_outside_frame;
  using base::unpin;
  using base::wait_for_page;
  using base::word;
  using typename base::claim;
  using typename base::pools_type;
  using typename base::purpose;
  using typename base::rules;
  using typename base::targets_type;
  using typename base::until;

  /// Pins `page`. If no frame has the page and the sharing policy agrees, `buffer`, which is a page long, becomes its
  /// frame. For `sharing_use::overwrite` the buffer holds the page's new bytes; if it did not become the frame, the
  /// caller copies them into the frame and calls publish(). May wait, but not for the read of a page: wait_for_shared()
  /// does. A caller that gets a ticket calls let_go() or take_back() once; one that gets none calls unpin().
  FOREBAY_DEVICE page_share share(std::uint64_t page, buffer_ref const& buffer, sharing_use use) const {
    return simt::out_of_line(&share_slowly)(s_, page, buffer, use);
  }
  /// Waits until the page that was shared for `sharing_use::read` has been read. If that fails, or the deadline passes,
  /// the page is no longer pinned, unless the caller has a ticket.
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
  /// Ends the owner's pin of a shared buffer. The buffer stays the page's frame until take_back(), or until its user
  /// frame is wanted for another buffer. Of several calls for one ticket only the first counts.
  FOREBAY_DEVICE void let_go(std::uint32_t frame, std::uint32_t ticket) const {
    std::uint32_t owner = ticket;
    // Relaxed: the thread that clears the owner also removes the owner's pin, and unpin() releases.
    bool const was_owner =
        simt::atomic<M>(s_->users[frame - first_user()].owner).compare_exchange(owner, 0, simt::order::relaxed);
    if (rules::takes_owners_pin(was_owner)) unpin(frame);
  }
  /// The same, and waits until the buffer is no page's frame: the page has been written back, and no thread has it
  /// pinned. If that fails, or the deadline passes, the buffer still belongs to the cache. `no_frame`: another thread
  /// had it pinned until the deadline.
  FOREBAY_DEVICE status take_back(std::uint32_t frame, std::uint32_t ticket, std::uint64_t deadline_ns) const {
    return simt::out_of_line(&take_back_slowly)(s_, frame, ticket, deadline_ns);
  }

  /// How many frames users' buffers may be. For the `k`-th of them: the bytes and the ticket that it had last.
  FOREBAY_DEVICE std::uint32_t user_count() const { return s_->user_count; }
  FOREBAY_DEVICE std::byte const* user_data(std::uint32_t k) const { return s_->users[k].buffer.data(); }
  FOREBAY_DEVICE std::uint32_t user_ticket(std::uint32_t k) const {
    // Acquire pairs with the release in take_user_frame().
    return simt::atomic<M>(s_->users[k].ticket).load(simt::order::acquire);
  }

  FOREBAY_DEVICE static shared_buffers from(cache_state* state) {
    return base::template part_of<shared_buffers>(state);
  }

  FOREBAY_COLD static page_share share_slowly(cache_state* state, std::uint64_t page, buffer_ref const& buffer,
                                              sharing_use use) {
    shared_buffers const self = from(state);
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
        self.count(&cache_counters::shared);
        out.pinned.frame = mine;
        // Relaxed: only this thread uses the frame now.
        out.ticket = simt::atomic<M>(user.ticket).load(simt::order::relaxed);
        if (use == sharing_use::overwrite) {
          self.publish(mine);
          return out;
        }
        self.count(&cache_counters::misses);
        status const sent = self.submit(nvme::io_opcode::read, page, mine, targets_type::fill(mine), deadline_ns);
        if (!sent.ok()) self.targets().filled(mine, sent);
        return out;
      }
      break;
    }
    // The buffer was never shared, so there is no owner's pin to be removed. Relaxed: the frame is in no list, and this
    // thread's alone.
    simt::atomic<M>(user.owner).store(0, simt::order::relaxed);
    state->free_users.template give<M>(mine - self.first_user());
    return out;
  }

  /// A frame for a user's buffer. The frame is in no list. `none`: all are in use.
  FOREBAY_DEVICE std::uint32_t take_user_frame(buffer_ref const& buffer) const {
    if (buffer.data() == nullptr || buffer.size_bytes() < std::uint64_t{1} << page_shift_) return none;
    std::uint32_t const frame = take_outside_frame(s_->free_users, s_->overflow_count, s_->user_count, none);
    if (frame == none) return none;
    user_frame& user = s_->users[frame - first_user()];
    user.buffer = buffer;
    // Relaxed: no other thread changes it while the frame is in no list.
    std::uint32_t const last = simt::atomic<M>(user.ticket).load(simt::order::relaxed);
    std::uint32_t const ticket = last + 1 != 0 ? last + 1 : 1;
    simt::atomic<M>(user.owner).store(ticket, simt::order::relaxed);
    // Release pairs with the acquire in take_back_slowly(): the frame's last buffer is no longer in use.
    simt::atomic<M>(user.ticket).store(ticket, simt::order::release);
    return frame;
  }

  FOREBAY_COLD static status take_back_slowly(cache_state* state, std::uint32_t frame, std::uint32_t ticket,
                                              std::uint64_t deadline_ns) {
    shared_buffers const self = from(state);
    self.let_go(frame, ticket);
    std::uint32_t const k = frame - self.first_outside();
    user_frame& user = state->users[frame - self.first_user()];
    // Acquire, both: they pair with the release in take_user_frame(), and with that in unlink().
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
};

}  // namespace forebay
