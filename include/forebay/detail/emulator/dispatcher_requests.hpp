// SPDX-License-Identifier: Apache-2.0
//! \file
//! How a dispatcher serves requests of the host.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/dispatcher_mailbox.hpp"
#include "forebay/detail/emulator/dispatcher_posting.hpp"
#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/engine_view.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Serves the mailbox: attaches and detaches queues, and aborts commands.
template <class M>
class dispatcher_requests : protected dispatcher_posting<M> {
  using base = dispatcher_posting<M>;
  using team = simt::team<M>;

 protected:
  using base::claim_alone;
  using base::completion_dw2;
  using base::disown;
  using base::give;
  using base::has_medium;
  using base::has_ring;
  using base::hint;
  using base::hold;
  using base::in_medium;
  using base::index_;
  using base::lanes_;
  using base::let_go;
  using base::mail_;
  using base::move_lagging;
  using base::now_ps_;
  using base::place_of;
  using base::post_staged;
  using base::put_back;
  using base::ring_of;
  using base::room;
  using base::scratch_;
  using base::set;
  using base::stats_;
  using base::try_take;
  using base::unit_;
  using base::view_;

  FOREBAY_DEVICE dispatcher_requests(engine_view<M> const& view, std::uint32_t index, dispatcher_scratch& scratch,
                                     unit_memory<M> const& unit)
      : base(view, index, scratch, unit) {
    // Relaxed: the dispatcher's own word.
    if (lanes_.leader()) {
      scratch_.handled_requests =
          simt::atomic<M, simt::scope::system>(view.mailboxes[index].handled).load(simt::order::relaxed);
    }
    lanes_.sync();
    look_at_mailbox();
  }

  /// For the next step.
  FOREBAY_DEVICE void look_at_mailbox() {
    // Relaxed: `serve_requests` looks again.
    if (M::looks_beside_work && dispatcher_rules_of<M>::looks_for_mail && lanes_.leader()) {
      mail_ = simt::atomic<M, simt::scope::system>(view_.mailboxes[index_].posted).load(simt::order::relaxed);
    }
  }

  /// Works on a copy of the dispatcher, so that the values that the steps keep in registers stay there.
  FOREBAY_COLD static bool serve_requests(dispatcher_requests self) {
    team const& lanes = self.lanes_;
    dispatcher_mailbox& mail = self.view_.mailboxes[self.index_];
    // Acquire: pairs with the host's release when it has written the requests.
    std::uint32_t const posted = lanes.broadcast(
        lanes.leader() ? simt::atomic<M, simt::scope::system>(mail.posted).load(simt::order::acquire) : 0);
    std::uint32_t const before = self.scratch_.handled_requests;
    lanes.sync();  // all lanes see the requests
    std::uint32_t handled = before;
    while (handled != posted && self.serve(mail.ring[handled % dispatcher_mailbox::capacity])) ++handled;
    lanes.sync();
    if (handled != before && lanes.leader()) {
      self.scratch_.handled_requests = handled;
      // Release: pairs with the host's acquire before it writes a request over one of these.
      simt::atomic<M, simt::scope::system>(mail.handled).store(handled, simt::order::release);
    }
    lanes.sync();
    return handled != before;
  }

 private:
  /// False: it is not possible yet; try again.
  FOREBAY_DEVICE bool serve(dispatcher_request const& request) {
    using kind = dispatcher_request::kind;
    std::uint32_t const at = place_of(request.slot);
    submission_queue<M>& sq = unit_.queues[at];
    bool found = false;
    switch (request.what) {
      case kind::attach:
        if (request.waits && !answered(request.after_slot, request.after_ticket)) return false;
        attach(sq, request);
        break;
      case kind::share_cq:
        // A dispatcher that posts holds this lock too.
        if (!try_take(at, &queue_locks::pending)) return false;
        if (lanes_.leader()) disown(sq);
        give(at, &queue_locks::pending);
        break;
      case kind::detach:
      case kind::detach_silently: {
        if (view_.lagging != nullptr) move_lagging(*this, true);  // which may have a hand on the queue
        if (!claim_alone(at)) return false;
        if constexpr (M::reaches_files) {
          if (has_medium() && !leave_medium(at)) return false;
        }
        bool const done = request.what == kind::detach_silently || abort_all(at);
        if (done && lanes_.leader()) {
          count<M>(stats_.commands.dropped, sq.pending.size());
          disown(sq);
          set(sq.size, 0);
        }
        give(at, &queue_locks::pending);
        give(at, &queue_locks::fetch);
        if (!done) return false;
        break;
      }
      case kind::abort:
        if (!try_take(at, &queue_locks::pending)) return false;
        found = abort(at, static_cast<std::uint16_t>(request.command_id));
        give(at, &queue_locks::pending);
        break;
    }
    lanes_.sync();
    if (lanes_.leader()) {
      // Release: pairs with the acquire in `engine::answered` and in `answered` below. A thread that sees it knows that
      // the unit no longer uses the queue's memory, or that it no longer posts alone.
      simt::atomic<M, simt::scope::system>(view_.answers[request.slot])
          .store(request.ticket << 1 | (found ? 1u : 0u), simt::order::release);
    }
    lanes_.sync();
    return true;
  }

  FOREBAY_DEVICE bool answered(std::uint32_t slot, std::uint32_t ticket) const {
    // Acquire: pairs with the release above, of another dispatcher.
    std::uint32_t const answer =
        lanes_.leader() ? simt::atomic<M, simt::scope::system>(view_.answers[slot]).load(simt::order::acquire) : 0;
    return static_cast<std::int32_t>(lanes_.broadcast(answer) - (ticket << 1)) >= 0;
  }

  /// No other dispatcher touches a place without a queue.
  FOREBAY_DEVICE void attach(submission_queue<M>& sq, dispatcher_request const& request) {
    lanes_.sync();
    if (lanes_.leader()) {
      sq.entries = request.queue.entries;
      sq.tail_doorbell = request.queue.tail_doorbell;
      sq.held = request.held;
      sq.cq_slot = request.queue.cq_slot;
      sq.page_bytes = request.queue.page_bytes;
      sq.regions = request.queue.regions;
      sq.id = request.queue.id;
      sq.owns_cq = request.owns_cq;
      if (has_ring(sq)) sq.ring = view_.completion_queues[sq.cq_slot].ring();
      set(sq.leaving, 0);
      set(sq.in_flight, 0);
      set(sq.blocked, 0);
      set(sq.head, 0);
      sq.seen_tail = 0;
      set(sq.bad_tail, 0);
      sq.new_gap_ps = never_ps;
      sq.last_poll_ps = never_ps;
      set(sq.looked_ps, 0);
      sq.arrival_ps = 0;
      sq.fetched = 0;
      set(sq.wants_help_ps, 0);
    }
    sq.pending.start(lanes_, request.pending_storage, request.pending_commands);
    // Release: pairs with the acquire in `open`.
    if (lanes_.leader()) simt::atomic<M, simt::scope::block>(sq.size).store(request.queue.size, simt::order::release);
  }

  /// A command that is in the medium is completed once the medium no longer uses its memory.
  FOREBAY_DEVICE bool abort(std::uint32_t at, std::uint16_t command_id) {
    submission_queue<M>& sq = unit_.queues[at];
    bool found = false;
    if (hint(sq.size) == 0) return false;
    sq.pending.for_each(lanes_, [&](std::uint32_t slot, std::uint64_t& due_ps, pending_command& command) {
      if (found || command.command_id != command_id) return;
      found = true;
      std::uint32_t flags = 0;
      if constexpr (M::reaches_files) flags = command.flags & pending_command::in_medium;
      command = {command_id, nvme::status_field(nvme::generic_status::command_abort_requested), flags};
      if constexpr (M::reaches_files) {
        if (flags != 0) return in_medium().cancel(at, slot, now_ps_);
      }
      due_ps = now_ps_;
    });
    return lanes_.any(found);
  }

  /// Whether the medium has let go of the memory of all commands of a queue that is to be detached. From the first call
  /// on, no command of the queue begins.
  bool leave_medium(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    if (hint(sq.leaving) == 0) {
      set(sq.leaving, 1);
      in_medium().cancel(at);
    }
    return in_medium().in_flight(at) == 0;
  }

  /// Completes everything in flight as aborted, as far as the completion queue has room. False: another dispatcher has
  /// that queue at the moment.
  FOREBAY_DEVICE bool abort_all(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    if (hint(sq.size) == 0 || sq.pending.empty()) return true;
    completion_queue& cq = view_.completion_queues[sq.cq_slot];
    if (!hold(at, cq)) return false;
    completion_ring ring = ring_of(sq, cq);
    for (std::uint32_t free = room(ring); free != 0 && !sq.pending.empty();) {
      std::uint32_t const n = sq.pending.take_due(
          lanes_, never_ps, free < scratch_.staged_completions ? free : scratch_.staged_completions,
          [](std::uint32_t, std::uint64_t&, pending_command&) { return true; },
          [&](std::uint32_t position, std::uint32_t, std::uint64_t, pending_command const& command) {
            scratch_.staged[position] = {
                command.command_id, nvme::status_field(nvme::generic_status::command_aborted_due_to_sq_deletion), 0};
            scratch_.staged_due_ps[position] = 0;
          });
      lanes_.sync();
      post_staged(at, ring, ring.take(n, 0), n, completion_dw2(sq), false);
      if (lanes_.leader()) count<M>(stats_.commands.completions_posted, n);
      free -= n;
    }
    put_back(sq, cq, ring);
    let_go(at, cq);
    return true;
  }
};

}  // namespace forebay::emulator
