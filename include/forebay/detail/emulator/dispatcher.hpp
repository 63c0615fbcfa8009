// SPDX-License-Identifier: Apache-2.0
//! \file
//! A dispatcher of the I/O engine: fetches the submission entries of its queues, times them, moves the data and posts
//! completions. On a GPU it is a warp, and a thread block of them is a service unit; on the CPU it is a thread.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/dispatcher_requests.hpp"
#include "forebay/detail/emulator/dispatcher_rules.hpp"
#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/engine_view.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// The calling lane's view of dispatcher `index`; all lanes of its team call each member together. `scratch` belongs to
/// the dispatcher alone; it shares `unit` with the other dispatchers of its unit.
///
/// Each queue has one dispatcher, which polls it. If the queue has more than one fetch takes, or completions that are
/// due and not posted, other dispatchers of the unit that have nothing else to do take that work from it: see
/// docs/internals/engine.md.
template <class M>
class dispatcher : private dispatcher_requests<M> {
  using base = dispatcher_requests<M>;
  using base::ahead_ps;
  using base::batches;
  using base::collect_from_medium;
  using base::contended_;
  using base::fetch;
  using base::has_medium;
  using base::help_was_wanted;
  using base::helps;
  using base::hint;
  using base::index_;
  using base::is_due;
  using base::lanes_;
  using base::look_at_mailbox;
  using base::mail_;
  using base::move_lagging;
  using base::now_ps_;
  using base::place;
  using base::places;
  using base::poll;
  using base::post_due;
  using base::queue_count_;
  using base::read_clock;
  using base::scratch_;
  using base::seen_batches_;
  using base::serve_requests;
  using base::since_epoch_ps;
  using base::thing_at;
  using base::things;
  using base::unit_;
  using base::view_;
  using base::wants_help;
  using typename base::thing;

 public:
  using team = simt::team<M>;

  FOREBAY_DEVICE dispatcher(engine_view<M> const& view, std::uint32_t index, dispatcher_scratch& scratch,
                            unit_memory<M> const& unit)
      : base(view, index, scratch, unit) {}

  FOREBAY_DEVICE team const& lanes() const { return lanes_; }

  /// Visits each of its queues once: fetch, time, move, post. If it finds nothing to do there, visits the queues of the
  /// unit's other dispatchers once. Returns whether it did anything.
  FOREBAY_DEVICE bool step() {
    contended_ = false;
    read_clock();
    seen_batches_ = batches();
    bool worked = !M::looks_beside_work && serve_requests(*this);
    if (view_.lagging != nullptr) worked |= move_lagging(*this, false);
    if constexpr (M::reaches_files) {
      if (has_medium()) worked |= collect_from_medium();
    }
    std::uint32_t end = queue_count_;  // its own queues come first
    for (std::uint32_t first = 0; first < end;) {
      bool const own = first < queue_count_;
      std::uint32_t const mine = first + lanes_.rank();
      bool const exists = mine < end;
      auto const due = [&] { return lanes_.ballot(exists && is_due(place(mine), own)); };
      std::uint32_t due_queues = due();
      std::uint32_t fresh_queues = 0;
      for (bool polled = false;;) {
        if (due_queues != 0) {
          std::uint32_t const at = place(first + team::lowest(due_queues));
          due_queues &= due_queues - 1;
          if (post_due(at)) worked = true;
        } else if (!polled) {
          polled = true;
          bool const fresh = exists && (own ? poll(place(mine)) : wants_help(place(mine)));
          if (own) look_at_mailbox();
          lanes_.sync();
          fresh_queues = lanes_.ballot(fresh);
        } else if (fresh_queues != 0) {
          std::uint32_t const at = place(first + team::lowest(fresh_queues));
          fresh_queues &= fresh_queues - 1;
          if (!fetch(at)) continue;
          worked = true;
          read_clock();
          if (!own) fresh_queues = 0;  // its own queues have waited
          due_queues = due();
        } else {
          break;
        }
      }
      first += lanes_.count();
      if (own && first >= queue_count_) {
        first = queue_count_;
        if (!worked && helps()) end = places();
      }
    }
    lanes_.sync();
    if (lanes_.leader()) scratch_.visit_ps = now_ps_;
    lanes_.sync();
    // Looked at while other work is done, and read only if a look found a request. It comes last, so that no command
    // waits for memory to answer that there is no request.
    if (M::looks_beside_work && lanes_.broadcast(mail_) != scratch_.handled_requests) {
      worked |= serve_requests(*this);
    }
    return worked || contended_;
  }

  /// Moves what lags. The dispatcher takes no step before it is started again.
  FOREBAY_DEVICE void leave() {
    if (view_.lagging != nullptr) move_lagging(*this, true);
  }

  /// Asks for an early end of what is in the drive's medium, and waits for that, which may take as long as the system
  /// holds on to the memory of the clients. The dispatcher takes no step afterwards.
  void leave_medium() {
    leave();
    if constexpr (M::reaches_files) {
      if (has_medium()) base::in_medium().drain();
    }
  }

  /// When the next step has something to post, on `M::clock_ns()`; `simt::no_deadline` if it will have nothing. A
  /// completion that was due at the last step, when that step did nothing, waits for its completion queue, not for
  /// time.
  FOREBAY_DEVICE std::uint64_t next_due_ns() const {
    std::uint64_t next_ps = never_ps;
    // If commands take no time, none becomes due while its own dispatcher does something else.
    bool const looks_around = helps() && !view_.options.timing.immediate();
    for (std::uint32_t k = lanes_.rank(); k < (looks_around ? places() : queue_count_); k += lanes_.count()) {
      submission_queue<M>& sq = unit_.queues[place(k)];
      if (hint(sq.size) == 0) continue;
      bool const own = k < queue_count_;
      std::uint64_t due_ps = sq.pending.next_due_ps();
      if (due_ps == never_ps || due_ps <= scratch_.visit_ps + ahead_ps(own)) due_ps = never_ps;
      if (due_ps != never_ps) due_ps -= ahead_ps(own);
      // A command that arrives at another dispatcher meanwhile may later need help.
      if (!own && hint(sq.in_flight) != 0 && due_ps > scratch_.visit_ps + look_around_ps) {
        due_ps = scratch_.visit_ps + look_around_ps;
      }
      if (due_ps < next_ps) next_ps = due_ps;
    }
    if (view_.lagging != nullptr && view_.lagging[index_].count != 0 && view_.lagging[index_].due_ps < next_ps) {
      next_ps = view_.lagging[index_].due_ps;
    }
    next_ps = lanes_.min(next_ps);
    if (next_ps == never_ps) return simt::no_deadline;
    return view_.options.epoch_ns + (next_ps + 999) / 1000;
  }

  /// Waits until a step might find something that the last one did not, or `also` is not 0, and returns true; or until
  /// the clock reaches `deadline_ns`, and returns false. The result is a hint, but while it waits it polls every
  /// doorbell. `patient`: nothing is expected soon.
  FOREBAY_DEVICE bool rest(std::uint64_t deadline_ns, bool patient, std::uint32_t& also) {
    bool found = false;
    auto const wait = [&](auto const& look, std::uint64_t until_ns) {
      return patient ? M::idle_until(look, until_ns) : M::wait_until(look, until_ns);
    };
    // A command that becomes due before that has come meanwhile, from another dispatcher.
    std::uint64_t const until_ps = (deadline_ns - view_.options.epoch_ns - 1) * 1000 + ahead_ps();
    // Without this, a dispatcher that looked around when nothing was in flight would rest until long after the commands
    // that others have fetched since are due.
    bool const sleeps =
        helps() && deadline_ns > view_.options.epoch_ns + (scratch_.visit_ps + look_around_ps) / 1000 + 1;
    auto const wakes = [&](std::uint64_t now_ns) {
      return help_was_wanted(since_epoch_ps(now_ns)) || (sleeps && batches() != seen_batches_);
    };
    if constexpr (M::lanes_share_looks) {
      // The lanes look at one thing each, and all get the same result.
      auto const look = [&] {
        for (std::uint32_t turn = 0; turn < M::looks_per_poll; ++turn) {
          std::uint64_t const now_ns = lanes_.broadcast(lanes_.leader() ? M::clock_ns() : 0);
          bool changed = lanes_.leader() && wakes(now_ns);
          for (std::uint32_t first = 0; first < things(); first += lanes_.count()) {
            thing const mine = thing_at(first + lanes_.rank(), until_ps, also);
            lanes_.sync();  // their loads are under way together
            changed |= mine.differs(since_epoch_ps(now_ns));
          }
          found = dispatcher_rules_of<M>::all_hear_of_a_look ? lanes_.any(changed) : changed;
          if (found || now_ns >= deadline_ns) return true;
        }
        return false;
      };
      (void)wait(look, simt::no_deadline);  // it looks at the clock itself
    } else {
      auto const look = [&] {
        std::uint64_t const now_ns = M::clock_ns();
        bool changed = wakes(now_ns);
        for (std::uint32_t i = 0; i < things(); ++i) {
          changed |= thing_at(i, until_ps, also).differs(since_epoch_ps(now_ns));
        }
        return changed;
      };
      found = lanes_.any(lanes_.leader() && wait(look, deadline_ns));
    }
    look_at_mailbox();
    return found;
  }

 private:
  /// How often an idle dispatcher looks at the commands that the others have in flight.
  static constexpr std::uint64_t look_around_ps = 4'000'000;
};

}  // namespace forebay::emulator
