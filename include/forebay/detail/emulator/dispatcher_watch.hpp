// SPDX-License-Identifier: Apache-2.0
//! \file
//! The words that a dispatcher looks at to find something to do.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/dispatcher_fetching.hpp"
#include "forebay/detail/emulator/dispatcher_rules.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Looks at the words that say whether there is something to do: doorbells, due times, the mailbox.
template <class M>
class dispatcher_watch : protected dispatcher_fetching<M> {
  using base = dispatcher_fetching<M>;

 protected:
  using base::ahead_ps;
  using base::base;
  using base::first_place_;
  using base::helps;
  using base::hint;
  using base::index_;
  using base::lanes_;
  using base::now_ps_;
  using base::queue_count_;
  using base::scratch_;
  using base::set;
  using base::since_epoch_ps;
  using base::unit_;
  using base::view_;

  FOREBAY_DEVICE std::uint32_t things() const { return 2 * queue_count_ + 2; }

  /// A word to watch: if it has none of these values, the step has something to do.
  struct thing {
    std::uint32_t* word = nullptr;  ///< null: no need to look at it
    std::uint32_t known = 0;
    std::uint32_t bad = 0;  ///< an invalid value that was seen before; 0: none
    std::uint32_t limit = ~std::uint32_t{0};
    bool changed = false;
    std::uint64_t* looked_ps = nullptr;  ///< of a tail doorbell

    FOREBAY_DEVICE std::uint32_t look() const {
      // Relaxed: the step looks again.
      return word == nullptr ? 0 : simt::atomic<M, simt::scope::system>(*word).load(simt::order::relaxed);
    }
    /// Whether the look, which began at `began_ps` or later, found something to do.
    FOREBAY_DEVICE bool judge(std::uint32_t value, std::uint64_t began_ps) const {
      if (word == nullptr) return changed;
      if (value == known && looked_ps != nullptr) set(*looked_ps, began_ps);
      return value != known && value < limit && (value != bad || bad == 0);
    }
    FOREBAY_DEVICE bool differs(std::uint64_t now_ps) const { return judge(look(), now_ps); }
  };

  /// Thing `i`: a queue whose next command is due before the rest ends, a tail doorbell, the head doorbell that a full
  /// completion queue waits for, the mailbox, or `also`.
  FOREBAY_DEVICE thing thing_at(std::uint32_t i, std::uint64_t until_ps, std::uint32_t& also) const {
    thing it;
    if (i < 2 * queue_count_) {
      submission_queue<M>& sq = unit_.queues[first_place_ + (i < queue_count_ ? i : i - queue_count_)];
      if (hint(sq.size) == 0 || hint(sq.leaving) != 0) return it;
      bool const blocked = hint(sq.blocked) != 0;
      if (i >= queue_count_) {
        if (!blocked) return it;
        completion_queue& cq = view_.completion_queues[sq.cq_slot];
        it.word = cq.head_doorbell();
        it.known = cq.template full_head<M>();
        it.limit = cq.size();
      } else if (!blocked && sq.pending.next_due_ps() <= until_ps) {
        it.changed = true;
      } else {
        it = doorbell_of(sq);
      }
    } else if (i == 2 * queue_count_) {
      it.word = &view_.mailboxes[index_].posted;
      it.known = scratch_.handled_requests;
    } else if (i < things()) {
      it.word = &also;
    }
    return it;
  }

  /// The doorbell that the calling lane looks at while the queue at `at` is worked on: one of its dispatcher's own, or
  /// that of the queue. The commands of a client that answers to what is posted then get the right arrival time.
  FOREBAY_DEVICE thing doorbell_beside(std::uint32_t at) const {
    if (lanes_.rank() > queue_count_) return {};
    submission_queue<M>& sq = unit_.queues[lanes_.rank() < queue_count_ ? first_place_ + lanes_.rank() : at];
    return hint(sq.size) != 0 ? doorbell_of(sq) : thing{};
  }

  /// Waits for the time, and looks at doorbells meanwhile.
  FOREBAY_DEVICE void look_until(std::uint64_t until_ns, std::uint32_t at) const {
    bool const looks = M::looks_beside_work && dispatcher_rules_of<M>::looks_while_it_waits;
    if (looks && lanes_.any(lanes_.leader() && M::clock_ns() + look_ns < until_ns)) {
      (void)M::wait_until(
          [&] {
            (void)doorbell_beside(at).differs(since_epoch_ps(M::clock_ns()));
            return false;
          },
          until_ns - look_ns);
      lanes_.sync();
    }
    // All lanes wait until the same time, so that none waits longer for another's.
    (void)M::wait_until([] { return false; }, until_ns);
  }

  FOREBAY_DEVICE bool help_was_wanted(std::uint64_t now_ps) const {
    return helps() && hint(unit_.words->wants_help_ps) > now_ps;
  }
  /// Whether a queue of another dispatcher has more commands than one fetch takes. A hint.
  FOREBAY_DEVICE bool wants_help(std::uint32_t place) const {
    submission_queue<M>& sq = unit_.queues[place];
    return hint(sq.size) != 0 && hint(sq.leaving) == 0 && hint(sq.wants_help_ps) > now_ps_;
  }
  FOREBAY_DEVICE bool is_due(std::uint32_t place, bool own) const {
    submission_queue<M>& sq = unit_.queues[place];
    return hint(sq.size) != 0 && hint(sq.leaving) == 0 && sq.pending.next_due_ps() <= now_ps_ + ahead_ps(own) &&
           (own || hint(sq.blocked) == 0);
  }

  FOREBAY_DEVICE std::uint32_t batches() const { return helps() ? hint(unit_.words->batches) : 0; }

 private:
  /// How long a look at doorbells takes, plus a margin.
  static constexpr std::uint64_t look_ns = 1000;

  FOREBAY_DEVICE static thing doorbell_of(submission_queue<M>& sq) {
    thing it;
    it.word = sq.tail_doorbell;
    it.known = hint(sq.head);
    it.bad = hint(sq.bad_tail);
    it.looked_ps = &sq.looked_ps;
    return it;
  }
};

}  // namespace forebay::emulator
