// SPDX-License-Identifier: Apache-2.0
//! \file
//! A dispatcher of the I/O engine: fetches the submission entries of its queues, times them, moves the data and posts
//! completions. On a GPU it is a warp, and a thread block of them is a service unit; on the CPU it is a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "forebay/detail/emulator/decode.hpp"
#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/emulator/frontend.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/mover.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

struct engine_options {
  std::uint32_t units = 1;                 ///< service units
  std::uint32_t dispatchers_per_unit = 1;  ///< of each unit: warps of its thread block; 1 on the CPU
  std::uint32_t queue_slots = 128;         ///< submission queues, and completion queues, at a time
  std::uint64_t max_transfer_bytes = std::uint64_t{1} << 20;
  std::uint32_t page_bytes_min = 4096;  ///< CC.MPS of no queue is less
  std::uint64_t epoch_ns = 0;           ///< what `M::clock_ns()` read at start; times count from here
  /// How long before a command is due its completion is made ready, so that but one store is left to do. Meanwhile the
  /// dispatcher does nothing else.
  std::uint64_t post_ahead_ns = 0;
  /// How far apart looks at a doorbell are at best. A command is taken to have come half as long after the last look
  /// that did not see it; what makes the time between looks longer is lateness.
  std::uint64_t poll_period_ns = 0;
  timing_parameters timing;
  std::uint64_t* link_free_ps = nullptr;  ///< see `timing_model`; its times count from the epoch, as all do
  fault_plan faults;
  frontend_techniques frontend;

  std::uint32_t dispatchers() const { return units * dispatchers_per_unit; }
  std::uint32_t queues_per_dispatcher() const { return (queue_slots + dispatchers() - 1) / dispatchers(); }
};

/// What the host asks of the dispatcher that serves a submission queue.
struct dispatcher_request {
  enum class kind : std::uint32_t {
    attach,
    share_cq,         ///< from now on others post to the completion queue too
    detach,           ///< complete what is outstanding as aborted, then let go
    detach_silently,  ///< forget what is outstanding (controller reset), then let go
    abort
  };
  kind what = kind::attach;
  std::uint32_t slot = 0;
  std::uint32_t ticket = 0;      ///< `answers[slot]` becomes (ticket << 1) + whether an abort found its command
  std::uint32_t command_id = 0;  ///< of an abort
  // Of an attach:
  submission_queue_addresses queue = {};
  void* pending_storage = nullptr;
  std::uint32_t pending_commands = 0;
  nvme::submission_entry* held = nullptr;
  bool owns_cq = false;
  bool waits = false;  ///< for the answer `after_ticket` of slot `after_slot`
  std::uint32_t after_slot = 0;
  std::uint32_t after_ticket = 0;
};

/// Requests on their way to one dispatcher.
struct alignas(128) dispatcher_mailbox {
  static constexpr std::uint32_t capacity = 32;

  std::uint32_t posted = 0;                ///< by the host
  alignas(128) std::uint32_t handled = 0;  ///< by the dispatcher
  dispatcher_request ring[capacity];
};

/// Words that the whole engine shares.
struct alignas(128) engine_words {
  std::uint64_t invalid_doorbells = 0;
};

/// What dispatchers work on: trivially copyable, all pointers into the engine's state memory.
template <class M>
struct engine_view {
  engine_options options;
  media drive;
  timing_model<M> timing;
  dispatcher_mailbox* mailboxes = nullptr;           ///< one for each dispatcher
  submission_queue<M>* submission_queues = nullptr;  ///< `queues_per_dispatcher` for each dispatcher
  completion_queue* completion_queues = nullptr;     ///< by slot
  std::uint32_t* answers = nullptr;                  ///< by submission queue slot
  statistics* unit_statistics = nullptr;             ///< one for each unit
  engine_words* words = nullptr;
  dma_segment* segments = nullptr;  ///< `segments_per_dispatcher` for each dispatcher
  std::uint32_t segments_per_dispatcher = 0;

  /// Slot s is queue s / dispatchers of dispatcher s % dispatchers; dispatcher d is of unit d % units, so that few
  /// queues spread over many units.
  FOREBAY_DEVICE std::uint32_t dispatchers() const { return options.units * options.dispatchers_per_unit; }
  FOREBAY_DEVICE std::uint32_t queues_per_dispatcher() const {
    return (options.queue_slots + dispatchers() - 1) / dispatchers();
  }
};

/// Memory that the lanes of one dispatcher share while it works: shared memory on a GPU. Needs no initialisation before
/// the first step.
struct dispatcher_scratch {
  static constexpr std::uint32_t batch_entries = 32;
  static constexpr std::uint32_t staged_completions = 64;

  /// Entries lie 80 bytes apart, so that lanes which read their own meet in no bank of a GPU's shared memory.
  struct padded_entry {
    simt::vec16 part[4];
    simt::vec16 padding;
  };
  padded_entry entries[batch_entries];
  decoded_command decoded[batch_entries];
  timed_command timed[batch_entries];
  pending_command commands[batch_entries];
  std::uint32_t slots[batch_entries];
  move_list moves;
  std::uint64_t channel_ps[timing_parameters::max_channels];
  std::uint64_t staged_due_ps[staged_completions];
  pending_command staged[staged_completions];
  std::uint32_t staged_slots[staged_completions];
  std::uint64_t visit_ps;  ///< when the last visit began to look for what was due
  std::uint32_t handled_requests;
};

/// The calling lane's view of dispatcher `index`; all lanes of its team call each member together. `scratch` is its
/// own, `unit` what it shares with the other dispatchers of its unit.
///
/// Each queue has one dispatcher, which polls it. Others of the unit that have nothing else to do take from it what is
/// more than one fetch, or due and not posted: see docs/internals/engine.md.
template <class M>
class dispatcher {
 public:
  using team = simt::team<M>;

  FOREBAY_DEVICE dispatcher(engine_view<M> const& view, std::uint32_t index, dispatcher_scratch& scratch,
                            unit_memory<M> const& unit)
      : view_(view),
        lanes_(team::here()),
        index_(index),
        scratch_(scratch),
        unit_(unit),
        queue_count_(view.queues_per_dispatcher()),
        first_place_(index / view.options.units * queue_count_),
        stats_(view.unit_statistics[index % view.options.units]) {
    // Relaxed: the dispatcher's own word.
    if (lanes_.leader()) {
      scratch_.handled_requests =
          simt::atomic<M, simt::scope::system>(view.mailboxes[index].handled).load(simt::order::relaxed);
    }
    lanes_.sync();
    look_at_mailbox();
  }

  FOREBAY_DEVICE team const& lanes() const { return lanes_; }

  /// One visit to each queue: fetch, time, move, post. Where that finds nothing to do, one to the queues of the unit's
  /// other dispatchers. Whether it did anything.
  FOREBAY_DEVICE bool step() {
    contended_ = false;
    read_clock();
    seen_batches_ = batches();
    bool worked = M::full_warp_lanes != 32 && serve_requests(*this);
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
    // On a GPU only where a look found a request, and last: nobody waits for memory to answer that there is none.
    if (M::full_warp_lanes == 32 && lanes_.broadcast(mail_) != scratch_.handled_requests) {
      worked |= serve_requests(*this);
    }
    return worked || contended_;
  }

  /// When the next step has something to post, on `M::clock_ns()`; `simt::no_deadline` when none will. What was due at
  /// the last step, which did nothing, waits for its completion queue, not for time.
  FOREBAY_DEVICE std::uint64_t next_due_ns() const {
    std::uint64_t next_ps = never_ps;
    // Where nothing takes time nothing becomes due while its own dispatcher is at something else.
    bool const looks_around = helps() && !view_.options.timing.immediate();
    for (std::uint32_t k = lanes_.rank(); k < (looks_around ? places() : queue_count_); k += lanes_.count()) {
      submission_queue<M>& sq = unit_.queues[place(k)];
      if (hint(sq.size) == 0) continue;
      bool const own = k < queue_count_;
      std::uint64_t due_ps = sq.pending.next_due_ps();
      if (due_ps == never_ps || due_ps <= scratch_.visit_ps + ahead_ps(own)) due_ps = never_ps;
      if (due_ps != never_ps) due_ps -= ahead_ps(own);
      // What arrives at another dispatcher meanwhile may come to want help.
      if (!own && hint(sq.in_flight) != 0 && due_ps > scratch_.visit_ps + look_around_ps) {
        due_ps = scratch_.visit_ps + look_around_ps;
      }
      if (due_ps < next_ps) next_ps = due_ps;
    }
    next_ps = lanes_.min(next_ps);
    if (next_ps == never_ps) return simt::no_deadline;
    return view_.options.epoch_ns + (next_ps + 999) / 1000;
  }

  /// Waits until a step might find something that the last one did not, or `also` is not 0: true; or until the clock
  /// reaches `deadline_ns`: false. What it says is a hint, but as long as it waits it polls every doorbell. `patient`:
  /// nothing is expected soon.
  FOREBAY_DEVICE bool rest(std::uint64_t deadline_ns, bool patient, std::uint32_t& also) {
    bool found = false;
    auto const wait = [&](auto const& look, std::uint64_t until_ns) {
      return patient ? M::idle_until(look, until_ns) : M::wait_until(look, until_ns);
    };
    // What becomes due earlier than that came meanwhile: from another dispatcher.
    std::uint64_t const until_ps = (deadline_ns - view_.options.epoch_ns - 1) * 1000 + ahead_ps();
    // Who looked around when nothing was in flight would else rest until long after what others have fetched since.
    bool const sleeps =
        helps() && deadline_ns > view_.options.epoch_ns + (scratch_.visit_ps + look_around_ps) / 1000 + 1;
    auto const wakes = [&](std::uint64_t now_ns) {
      return help_was_wanted(since_epoch_ps(now_ns)) || (sleeps && batches() != seen_batches_);
    };
    if constexpr (M::full_warp_lanes == 32) {
      // The lanes look at one thing each, and all find the same.
      auto const look = [&] {
        for (std::uint32_t turn = 0; turn < M::looks_per_poll; ++turn) {
          std::uint64_t const now_ns = lanes_.broadcast(lanes_.leader() ? M::clock_ns() : 0);
          bool changed = lanes_.leader() && wakes(now_ns);
          for (std::uint32_t first = 0; first < things(); first += lanes_.count()) {
            thing const mine = thing_at(first + lanes_.rank(), until_ps, also);
            lanes_.sync();  // their loads are under way together
            changed |= mine.differs(since_epoch_ps(now_ns));
          }
          found = lanes_.any(changed);
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
  /// How long a queue that had more than one fetch took is polled by all.
  static constexpr std::uint64_t help_ps = 20'000'000;
  /// How often an idle dispatcher looks at what the others have in flight.
  static constexpr std::uint64_t look_around_ps = 4'000'000;
  static constexpr std::uint64_t sync_poll_ps = 20'000'000;
  /// How long a look at doorbells takes, and a little more.
  static constexpr std::uint64_t look_ns = 1000;

  FOREBAY_DEVICE std::uint64_t since_epoch_ps(std::uint64_t clock_ns) const {
    return (clock_ns - view_.options.epoch_ns) * 1000;
  }
  FOREBAY_DEVICE void read_clock() { now_ps_ = since_epoch_ps(lanes_.broadcast(lanes_.leader() ? M::clock_ns() : 0)); }
  /// How long before it is due a completion is made ready; by another dispatcher only if the queue's own one is late.
  FOREBAY_DEVICE std::uint64_t ahead_ps(bool own = true) const {
    return view_.options.post_ahead_ns * (own ? 1000 : 800);
  }
  FOREBAY_DEVICE bool helps() const { return view_.options.dispatchers_per_unit > 1; }
  FOREBAY_DEVICE std::uint32_t batches() const { return helps() ? hint(unit_.words->batches) : 0; }
  FOREBAY_DEVICE std::uint32_t places() const { return view_.options.dispatchers_per_unit * queue_count_; }
  /// Where the `k`th queue to look at lies. Its own are the first.
  FOREBAY_DEVICE std::uint32_t place(std::uint32_t k) const {
    return first_place_ + k < places() ? first_place_ + k : first_place_ + k - places();
  }
  FOREBAY_DEVICE std::uint32_t place_of(std::uint32_t slot) const { return first_place_ + slot / view_.dispatchers(); }
  /// A word that may be another's at present.
  template <class T>
  FOREBAY_DEVICE static T hint(T& word) {
    // Relaxed: who acts on it takes the lock and looks again.
    return simt::atomic<M, simt::scope::block>(word).load(simt::order::relaxed);
  }
  /// A word of which the caller holds the lock.
  template <class T>
  FOREBAY_DEVICE static void set(T& word, std::type_identity_t<T> value) {
    // Relaxed: for those who look without the lock it is a hint, for the others the lock orders it.
    simt::atomic<M, simt::scope::block>(word).store(value, simt::order::relaxed);
  }
  FOREBAY_DEVICE nvme::submission_entry entry(std::uint32_t i) const {
    nvme::submission_entry copy;
    std::memcpy(&copy, scratch_.entries[i].part, sizeof copy);
    return copy;
  }
  FOREBAY_DEVICE void count_invalid_doorbell() const {
    // Relaxed: a counter.
    simt::atomic<M, simt::scope::device>(view_.words->invalid_doorbells).fetch_add(1, simt::order::relaxed);
  }

  // Locks -------------------------------------------------------------------------------------------------------------
  // Each is tried, and held for a few accesses; what is worked on without one is counted in `queue_locks::hands`.

  /// By one lane.
  FOREBAY_DEVICE bool try_lock(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    if (!helps()) return true;
    std::uint32_t& word = unit_.locks[place].*lock;
    std::uint32_t open = 0;
    // Acquire: pairs with the release in `unlock`, so that what the lock covers is as the last holder left it.
    return hint(word) == 0 && simt::atomic<M, simt::scope::block>(word).compare_exchange(open, 1, simt::order::acquire);
  }
  /// By one lane.
  FOREBAY_DEVICE void unlock(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    // Release: pairs with the acquire in `try_lock`.
    if (helps()) simt::atomic<M, simt::scope::block>(unit_.locks[place].*lock).store(0, simt::order::release);
  }
  [[nodiscard]] FOREBAY_DEVICE bool try_take(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    if (!helps()) return true;
    bool const taken = lanes_.any(lanes_.leader() && try_lock(place, lock));
    lanes_.sync();  // all see what the last holder left
    return taken;
  }
  FOREBAY_DEVICE void take(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    if (!helps()) return;
    if (lanes_.leader()) {
      // Held by one of the unit's dispatchers, which waits for nothing meanwhile.
      (void)M::wait_until(
          [&] {
            for (std::uint32_t turn = 0; turn < M::looks_per_poll; ++turn) {
              if (try_lock(place, lock)) return true;
            }
            return false;
          },
          simt::no_deadline);
    }
    lanes_.sync();
  }
  /// A lock was another's: there is work, so the step is made again at once. On a GPU only, where who holds a lock goes
  /// on whatever the others do. Always false.
  FOREBAY_DEVICE bool contend() {
    contended_ = M::full_warp_lanes == 32;
    return false;
  }
  FOREBAY_DEVICE void give(std::uint32_t place, std::uint32_t queue_locks::* lock) const {
    lanes_.sync();
    if (lanes_.leader()) unlock(place, lock);
  }
  /// Goes on with what it has taken out of a queue. By one lane, under a lock of the queue.
  FOREBAY_DEVICE void keep_hand_on(std::uint32_t place) const {
    // Relaxed: the lock orders it.
    if (helps()) simt::atomic<M, simt::scope::block>(unit_.locks[place].hands).fetch_add(1, simt::order::relaxed);
  }
  /// Touches nothing of the queue any more.
  FOREBAY_DEVICE void take_hand_off(std::uint32_t place) const {
    lanes_.sync();
    // Release: pairs with the acquire in `claim_alone`.
    if (helps() && lanes_.leader())
      simt::atomic<M, simt::scope::block>(unit_.locks[place].hands).fetch_sub(1, simt::order::release);
  }
  /// Whether someone works on what was taken out of a queue.
  FOREBAY_DEVICE bool in_hands(std::uint32_t place) const {
    if (!helps()) return false;
    // Acquire: pairs with the release in `take_hand_off`.
    return lanes_.any(lanes_.leader() &&
                      simt::atomic<M, simt::scope::block>(unit_.locks[place].hands).load(simt::order::acquire) != 0);
  }
  /// Takes both locks of a queue from which nobody may take anything any more. False: someone still works on it.
  [[nodiscard]] FOREBAY_DEVICE bool claim_alone(std::uint32_t place) const {
    if (!helps()) return true;
    if (!try_take(place, &queue_locks::fetch)) return false;
    if (try_take(place, &queue_locks::pending)) {
      if (lanes_.leader()) set(unit_.queues[place].leaving, 1);
      if (!in_hands(place)) return true;
      give(place, &queue_locks::pending);
    }
    give(place, &queue_locks::fetch);
    return false;
  }

  // Looking around ----------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE std::uint32_t things() const { return 2 * queue_count_ + 2; }

  /// A word to watch: the step has something to do when it is none of these.
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
    /// Whether what a look found is something to do; it began at `began_ps` or later.
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

  FOREBAY_DEVICE static thing doorbell_of(submission_queue<M>& sq) {
    thing it;
    it.word = sq.tail_doorbell;
    it.known = hint(sq.head);
    it.bad = hint(sq.bad_tail);
    it.looked_ps = &sq.looked_ps;
    return it;
  }

  /// The doorbell that the calling lane looks at while the queue at `at` is worked on: its dispatcher's own ones, and
  /// that of the queue. A client that answers to what is posted then has its commands dated rightly.
  FOREBAY_DEVICE thing doorbell_beside(std::uint32_t at) const {
    if (lanes_.rank() > queue_count_) return {};
    submission_queue<M>& sq = unit_.queues[lanes_.rank() < queue_count_ ? first_place_ + lanes_.rank() : at];
    return hint(sq.size) != 0 ? doorbell_of(sq) : thing{};
  }

  /// Waits for the time, and looks at doorbells meanwhile.
  FOREBAY_DEVICE void look_until(std::uint64_t until_ns, std::uint32_t at) const {
    if (M::full_warp_lanes == 32 && lanes_.any(lanes_.leader() && M::clock_ns() + look_ns < until_ns)) {
      (void)M::wait_until(
          [&] {
            (void)doorbell_beside(at).differs(since_epoch_ps(M::clock_ns()));
            return false;
          },
          until_ns - look_ns);
      lanes_.sync();
    }
    // All lanes until the same time, so that none waits for another's.
    (void)M::wait_until([] { return false; }, until_ns);
  }

  FOREBAY_DEVICE bool help_was_wanted(std::uint64_t now_ps) const {
    return helps() && hint(unit_.words->wants_help_ps) > now_ps;
  }
  /// Whether a queue of another dispatcher has more than one fetch takes. A hint.
  FOREBAY_DEVICE bool wants_help(std::uint32_t place) const {
    submission_queue<M>& sq = unit_.queues[place];
    return hint(sq.size) != 0 && hint(sq.leaving) == 0 && hint(sq.wants_help_ps) > now_ps_;
  }
  FOREBAY_DEVICE bool is_due(std::uint32_t place, bool own) const {
    submission_queue<M>& sq = unit_.queues[place];
    return hint(sq.size) != 0 && hint(sq.leaving) == 0 && sq.pending.next_due_ps() <= now_ps_ + ahead_ps(own) &&
           (own || hint(sq.blocked) == 0);
  }

  // Requests ----------------------------------------------------------------------------------------------------------

  /// For the next step.
  FOREBAY_DEVICE void look_at_mailbox() {
    // Relaxed: `serve_requests` looks again.
    if (M::full_warp_lanes == 32 && lanes_.leader()) {
      mail_ = simt::atomic<M, simt::scope::system>(view_.mailboxes[index_].posted).load(simt::order::relaxed);
    }
  }

  /// Works on a copy of the dispatcher, so that what the steps keep in registers stays there.
  FOREBAY_COLD static bool serve_requests(dispatcher self) {
    team const& lanes = self.lanes_;
    dispatcher_mailbox& mail = self.view_.mailboxes[self.index_];
    // Acquire: pairs with the host's release when it has written the requests.
    std::uint32_t const posted = lanes.broadcast(
        lanes.leader() ? simt::atomic<M, simt::scope::system>(mail.posted).load(simt::order::acquire) : 0);
    std::uint32_t const before = self.scratch_.handled_requests;
    lanes.sync();  // all see the requests
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

  /// False: not yet possible, try again.
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
        // Who posts holds it too.
        if (!try_take(at, &queue_locks::pending)) return false;
        if (lanes_.leader()) disown(sq);
        give(at, &queue_locks::pending);
        break;
      case kind::detach:
      case kind::detach_silently: {
        if (!claim_alone(at)) return false;
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
        found = abort(sq, static_cast<std::uint16_t>(request.command_id));
        give(at, &queue_locks::pending);
        break;
    }
    lanes_.sync();
    if (lanes_.leader()) {
      // Release: pairs with the acquire in `engine::answered` and in `answered` below. Whoever sees it knows that the
      // unit is done with the queue's memory, or with posting alone.
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

  /// Nobody else touches a place without a queue.
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

  FOREBAY_DEVICE bool abort(submission_queue<M>& sq, std::uint16_t command_id) {
    bool found = false;
    if (hint(sq.size) == 0) return false;
    sq.pending.for_each(lanes_, [&](std::uint32_t, std::uint64_t& due_ps, pending_command& command) {
      if (found || command.command_id != command_id) return;
      found = true;
      due_ps = now_ps_;
      command = {command_id, nvme::status_field(nvme::generic_status::command_abort_requested), 0};
    });
    return lanes_.any(found);
  }

  /// Completes everything in flight as aborted, as far as the completion queue has room. False: it is another's at
  /// present.
  FOREBAY_DEVICE bool abort_all(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    if (hint(sq.size) == 0 || sq.pending.empty()) return true;
    completion_queue& cq = view_.completion_queues[sq.cq_slot];
    if (!hold(at, cq)) return false;
    completion_ring ring = ring_of(sq, cq);
    for (std::uint32_t free = room(ring); free != 0 && !sq.pending.empty();) {
      std::uint32_t const n = sq.pending.take_due(
          lanes_, never_ps, free < scratch_.staged_completions ? free : scratch_.staged_completions,
          [](std::uint64_t&, pending_command&) { return true; },
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

  // Fetching ----------------------------------------------------------------------------------------------------------

  /// Whether a queue is there and not about to go. By one that holds a lock of it.
  FOREBAY_DEVICE bool open(submission_queue<M>& sq) const {
    // Acquire: pairs with the release in `attach`.
    return simt::atomic<M, simt::scope::block>(sq.size).load(simt::order::acquire) != 0 && hint(sq.leaving) == 0;
  }

  /// Polls one of the dispatcher's own queues, by the one lane that calls it. Whether there are entries to fetch.
  FOREBAY_DEVICE bool poll(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    if (hint(sq.size) == 0 || !try_lock(at, &queue_locks::fetch)) return false;
    bool const fresh = open(sq) && look_at_tail(at);
    unlock(at, &queue_locks::fetch);
    return fresh;
  }

  /// By one lane, with the lock.
  FOREBAY_DEVICE bool look_at_tail(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    std::uint32_t const head = hint(sq.head);
    if (head != sq.seen_tail) return true;
    // Acquire: pairs with the client's release before it rings the tail doorbell; the entries are visible.
    std::uint32_t const tail = simt::atomic<M, simt::scope::system>(*sq.tail_doorbell).load(simt::order::acquire);
    if (tail >= hint(sq.size)) {
      if (tail != hint(sq.bad_tail)) count_invalid_doorbell();
      set(sq.bad_tail, tail);
      return false;
    }
    std::uint64_t last_ps = sq.last_poll_ps == never_ps ? now_ps_ : sq.last_poll_ps;
    std::uint64_t const looked_ps = hint(sq.looked_ps);
    if (last_ps < looked_ps) last_ps = looked_ps;
    sq.last_poll_ps = last_ps < now_ps_ ? now_ps_ : last_ps;
    if (tail == head) return false;
    sq.seen_tail = tail;
    sq.new_gap_ps = sq.last_poll_ps - last_ps;
    // Between two looks that follow each other at once a command comes in the middle, on average.
    std::uint64_t const period_ps = view_.options.poll_period_ns * 1000;
    sq.arrival_ps = last_ps + (sq.new_gap_ps < period_ps ? sq.new_gap_ps : period_ps) / 2;
    return true;
  }

  /// Fetches what is new in a queue, up to a batch, and takes it as far as its due time. Whether there was anything.
  FOREBAY_DEVICE bool fetch(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    if (!try_take(at, &queue_locks::fetch)) return contend();
    std::uint32_t n = 0;
    std::uint32_t head = 0;
    if (lanes_.leader() && open(sq) && look_at_tail(at)) {
      head = hint(sq.head);
      std::uint32_t const there = sq.seen_tail >= head ? sq.seen_tail - head : sq.seen_tail + sq.size - head;
      std::uint32_t const most = view_.options.frontend.coalesced_fetch ? scratch_.batch_entries : 1;
      n = there < most ? there : most;
      std::uint32_t const free = sq.pending.capacity() - hint(sq.in_flight);
      if (n > free) n = free;
      if (helps() && there > most) {
        set(sq.wants_help_ps, now_ps_ + help_ps);
        // Relaxed: a hint.
        simt::atomic<M, simt::scope::block>(unit_.words->wants_help_ps)
            .fetch_max(now_ps_ + help_ps, simt::order::relaxed);
      }
    }
    n = lanes_.broadcast(n);
    head = lanes_.broadcast(head);
    if (n == 0) {
      give(at, &queue_locks::fetch);
      return false;
    }
    load(sq, head, n);
    std::uint64_t const sequence = (std::uint64_t{sq.id} << 48) + sq.fetched;
    std::uint64_t const arrival_ps = sq.arrival_ps;
    std::uint64_t const gap_ps = sq.new_gap_ps;
    lanes_.sync();
    if (lanes_.leader()) {
      std::uint32_t const next = head + n < sq.size ? head + n : head + n - sq.size;
      // Release: pairs with the acquire in `completion_dw2`; the entries before it have been read.
      simt::atomic<M, simt::scope::block>(sq.head).store(next, simt::order::release);
      sq.fetched += n;
      sq.new_gap_ps = never_ps;
      // Relaxed: the locks order it.
      count_in_flight(sq, n);
      keep_hand_on(at);
    }
    give(at, &queue_locks::fetch);

    bool const immediate = view_.options.timing.immediate();
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      decoded_command const command = decode(entry(i), view_.drive, view_.options.max_transfer_bytes);
      scratch_.decoded[i] = command;
      scratch_.timed[i] = {.offset_bytes = command.offset_bytes,
                           .bytes = command.bytes,
                           .sequence = sequence + i,
                           .op = command.op,
                           .charged = command.status_field == 0,
                           .target_ps = arrival_ps};
    }
    lanes_.sync();
    if (!immediate) {
      std::uint32_t const at_once = view_.options.frontend.aggregated_timing ? n : 1;
      for (std::uint32_t i = 0; i < n; i += at_once) {
        view_.timing.assign(lanes_, scratch_.timed + i, at_once, arrival_ps, scratch_.channel_ps);
      }
    }
    start(sq, n, immediate);

    std::uint64_t first_due_ps = never_ps;
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      if (scratch_.timed[i].target_ps < first_due_ps) first_due_ps = scratch_.timed[i].target_ps;
    }
    first_due_ps = lanes_.min(first_due_ps);
    take(at, &queue_locks::pending);
    sq.pending.reserve(lanes_, n, scratch_.slots);
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      pending_command const& command = scratch_.commands[i];
      sq.pending.insert(scratch_.slots[i], scratch_.timed[i].target_ps, command);
      if ((command.flags & pending_command::held) != 0) sq.held[scratch_.slots[i]] = entry(i);
    }
    sq.pending.settle(lanes_, n, scratch_.slots, first_due_ps);
    give(at, &queue_locks::pending);
    take_hand_off(at);

    if (lanes_.leader()) {
      // Relaxed: a hint.
      if (helps() && !immediate) {
        simt::atomic<M, simt::scope::block>(unit_.words->batches).fetch_add(1, simt::order::relaxed);
      }
      count<M>(stats_.commands.fetches);
      count<M>(stats_.commands.commands_fetched, n);
      if (gap_ps != never_ps) stats_.poll_gap.template record_one<M>(gap_ps / 1000);
      stats_.processing.template record_one<M>((since_epoch_ps(M::clock_ns()) - arrival_ps) / 1000, n);
    }
    if (!immediate) record_targets(*this, n, arrival_ps);
    return true;
  }

  /// Counts what the model gave the batch that was entered just now.
  FOREBAY_COLD static void record_targets(dispatcher self, std::uint32_t n, std::uint64_t arrival_ps) {
    for (std::uint32_t first = 0; first < n; first += self.lanes_.count()) {
      std::uint32_t const i = first + self.lanes_.rank();
      bool const timed = i < n && (self.scratch_.commands[i].flags & pending_command::timed) != 0 &&
                         self.scratch_.timed[i].target_ps != never_ps;
      std::uint64_t const took_ps = timed ? self.scratch_.timed[i].target_ps - arrival_ps : 0;
      self.stats_.target.template record<M>(self.lanes_, timed, took_ps / 1000);
    }
  }

  /// By one lane.
  FOREBAY_DEVICE void count_in_flight(submission_queue<M>& sq, std::uint32_t n) const {
    auto const word = simt::atomic<M, simt::scope::block>(sq.in_flight);
    // Relaxed, both: `fetch` may see fewer free slots than there are, never more.
    if (helps()) {
      word.fetch_add(n, simt::order::relaxed);
    } else {
      word.store(word.load(simt::order::relaxed) + n, simt::order::relaxed);
    }
  }

  /// Takes `n` submission entries over from the client's ring, in as few accesses as they fill.
  FOREBAY_DEVICE void load(submission_queue<M> const& sq, std::uint32_t head, std::uint32_t n) {
    constexpr std::uint32_t ahead = 4;
    for (std::uint32_t first = lanes_.rank(); first < n * 4; first += ahead * lanes_.count()) {
      simt::vec16 part[ahead];
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < ahead; ++j) {
        std::uint32_t const p = first + j * lanes_.count();
        std::uint32_t const at = head + p / 4 < sq.size ? head + p / 4 : head + p / 4 - sq.size;
        if (p < n * 4) part[j] = M::ld(reinterpret_cast<simt::vec16 const*>(sq.entries + at) + p % 4);
      }
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < ahead; ++j) {
        std::uint32_t const p = first + j * lanes_.count();
        if (p < n * 4) scratch_.entries[p / 4].part[p % 4] = part[j];
      }
    }
    lanes_.sync();
  }

  /// Executes the batch, each command now or later as faults want, and sets `commands` and due times.
  FOREBAY_DEVICE void start(submission_queue<M>& sq, std::uint32_t n, bool immediate) {
    std::uint32_t alone = 0;  // commands that the lanes execute together, one by one
    std::uint32_t reads = 0, writes = 0, failed = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;  // of the lane
    scratch_.moves.clear(lanes_);
    for (std::uint32_t first = 0; first < n; first += lanes_.count()) {
      std::uint32_t const i = first + lanes_.rank();
      bool reads_piece = false, writes_piece = false, is_alone = false, fails = false;
      dma_segment piece;
      std::byte* ours = nullptr;
      if (i < n) {
        decoded_command const& command = scratch_.decoded[i];
        nvme::submission_entry const e = entry(i);
        scratch_.commands[i] = {e.command_id(), command.status_field,
                                !immediate && command.status_field == 0 ? pending_command::timed : 0};
        if (command.status_field == 0 && view_.options.faults.any()) inject(*this, i);
        pending_command const pending = scratch_.commands[i];
        if (pending.status_field != 0) {
          fails = true;
        } else if ((pending.flags & pending_command::held) == 0) {
          bool const plain = command.opcode == nvme::io_opcode::read || command.opcode == nvme::io_opcode::write;
          bool const moves =
              plain && one_piece<M>(sq.regions, e.prp1, e.prp2, command.transfer_bytes, sq.page_bytes, piece);
          is_alone = !moves;
          reads_piece = moves && command.opcode == nvme::io_opcode::read;
          writes_piece = moves && !reads_piece;
          if (reads_piece) bytes_read += command.bytes;
          if (writes_piece) bytes_written += command.bytes;
          ours = view_.drive.data + command.offset_bytes;
        }
      }
      reads += team::ones(lanes_.ballot(reads_piece));
      writes += team::ones(lanes_.ballot(writes_piece));
      failed += team::ones(lanes_.ballot(fails));
      alone |= lanes_.ballot(is_alone) << first;
      if (view_.drive.data != nullptr) {
        auto* const theirs = reinterpret_cast<std::byte*>(piece.address);
        scratch_.moves.append(lanes_, reads_piece || writes_piece, reads_piece ? theirs : ours,
                              reads_piece ? ours : theirs, static_cast<std::uint32_t>(piece.bytes));
      }
    }
    lanes_.sync();
    scratch_.moves.run(lanes_);
    if (view_.drive.dirty != nullptr) mark_written(*this, n, alone);
    if constexpr (media::may_lose<M>) {
      if (view_.drive.lost != nullptr) fail_lost(*this, n);
    }
    for (; alone != 0; alone &= alone - 1) {
      std::uint32_t const i = team::lowest(alone);
      pending_command const done = execute(*this, sq, entry(i), scratch_.decoded[i], scratch_.commands[i]);
      lanes_.sync();
      if (lanes_.leader()) scratch_.commands[i] = done;
      lanes_.sync();
    }
    if (reads != 0) bytes_read = lanes_.sum(bytes_read);
    if (writes != 0) bytes_written = lanes_.sum(bytes_written);
    if (!lanes_.leader()) return;
    counters& to = stats_.commands;
    if (reads != 0) {
      count<M>(to.read_commands, reads);
      count<M>(to.bytes_read, bytes_read);
    }
    if (writes != 0) {
      count<M>(to.write_commands, writes);
      count<M>(to.bytes_written, bytes_written);
    }
    if (failed != 0) count<M>(to.failed_commands, failed);
  }

  /// Marks what the writes of the batch wrote, but for those in `alone`.
  FOREBAY_COLD static void mark_written(dispatcher self, std::uint32_t n, std::uint32_t alone) {
    team const& lanes = self.lanes_;
    media const& drive = self.view_.drive;
    drive.template before_marks<M>(lanes);
    for (std::uint32_t i = lanes.rank(); i < n; i += lanes.count()) {
      decoded_command const& command = self.scratch_.decoded[i];
      pending_command const& pending = self.scratch_.commands[i];
      bool const wrote = command.opcode == nvme::io_opcode::write && pending.status_field == 0 &&
                         (pending.flags & pending_command::held) == 0 && (alone >> i & 1) == 0;
      if (wrote) drive.template mark<M>(command.offset_bytes, command.bytes);
    }
  }

  /// Fails the commands of the batch that were on pages which could not be had. Those that are executed alone find it
  /// themselves.
  FOREBAY_COLD static void fail_lost(dispatcher self, std::uint32_t n) {
    for (std::uint32_t i = self.lanes_.rank(); i < n; i += self.lanes_.count()) {
      pending_command& pending = self.scratch_.commands[i];
      decoded_command const& command = self.scratch_.decoded[i];
      if (pending.status_field != 0 || !self.view_.drive.template has_lost<M>(command.offset_bytes, command.bytes)) {
        continue;
      }
      pending.status_field = lost_status(command.op);
      count<M>(self.stats_.commands.failed_commands);
    }
    self.lanes_.sync();
  }
  FOREBAY_DEVICE static std::uint16_t lost_status(operation op) {
    return nvme::status_field(op == operation::read ? nvme::media_status::unrecovered_read_error
                                                    : nvme::media_status::write_fault);
  }

  FOREBAY_DEVICE void mark_one(std::uint64_t offset, std::uint64_t bytes) const {
    view_.drive.template before_marks<M>(lanes_);
    if (lanes_.leader()) view_.drive.template mark<M>(offset, bytes);
  }

  /// Applies the fault that the plan has for entry `i`, by the one lane that calls it.
  FOREBAY_COLD static void inject(dispatcher self, std::uint32_t i) {
    timed_command& timed = self.scratch_.timed[i];
    pending_command& pending = self.scratch_.commands[i];
    counters& counts = self.stats_.commands;
    fault_plan const& plan = self.view_.options.faults;
    injected_fault const fault = plan.at(timed.sequence);
    pending.status_field = fault.status_field;
    timed.target_ps = fault.withheld ? never_ps : timed.target_ps + fault.delay_ps;
    if (fault.status_field != 0) count<M>(counts.injected_errors);
    if (fault.delay_ps != 0) count<M>(counts.injected_delays);
    if (fault.withheld) count<M>(counts.withheld);
    // A Flush has no data to move late; the host's write-back takes its time anyhow.
    bool const moves = self.scratch_.decoded[i].opcode != nvme::io_opcode::flush;
    if (plan.late_data && moves && (fault.withheld || fault.delay_ps != 0)) pending.flags |= pending_command::held;
  }

  /// Does what one valid command asks for; returns what is posted for it.
  FOREBAY_COLD static pending_command execute(dispatcher self, submission_queue<M> const& sq,
                                              nvme::submission_entry const& entry, decoded_command const& command,
                                              pending_command pending) {
    using nvme::io_opcode;
    team const& lanes = self.lanes_;
    media const& drive = self.view_.drive;
    counters& counts = self.stats_.commands;
    auto const count_one = [&](std::uint64_t& counter, std::uint64_t n = 1) {
      if (lanes.leader()) count<M>(counter, n);
    };
    dma_segment* const segments = self.view_.segments + std::size_t{self.index_} * self.view_.segments_per_dispatcher;
    std::uint32_t segment_count = 0;
    if (command.transfer_bytes != 0) {
      prp_walk const walk =
          walk_prps<M>(lanes, sq.regions, entry.prp1, entry.prp2, command.transfer_bytes, sq.page_bytes, segments);
      if (walk.status_field != 0) {
        pending.status_field = walk.status_field;
        count_one(counts.failed_commands);
        return pending;
      }
      segment_count = walk.count;
    }
    switch (command.opcode) {
      case io_opcode::read:
        drive.template read<M>(lanes, command.offset_bytes, segments, segment_count);
        count_one(counts.read_commands);
        count_one(counts.bytes_read, command.bytes);
        break;
      case io_opcode::write:
        drive.template write<M>(lanes, command.offset_bytes, segments, segment_count);
        self.mark_one(command.offset_bytes, command.bytes);
        count_one(counts.write_commands);
        count_one(counts.bytes_written, command.bytes);
        break;
      case io_opcode::compare:
        count_one(counts.other_commands);
        if (!drive.template equal<M>(lanes, command.offset_bytes, segments, segment_count)) {
          pending.status_field =
              static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::compare_failure) | nvme::do_not_retry);
          count_one(counts.failed_commands);
        }
        break;
      case io_opcode::write_zeroes:
        drive.template zero<M>(lanes, command.offset_bytes, command.bytes);
        self.mark_one(command.offset_bytes, command.bytes);
        count_one(counts.other_commands);
        break;
      case io_opcode::dataset_management:
        count_one(counts.other_commands);
        pending.status_field = self.deallocate(entry, segments, segment_count);
        if (pending.status_field != 0) count_one(counts.failed_commands);
        break;
      default:  // flush
        count_one(counts.flush_commands);
        if (drive.sync == nullptr) break;
        std::uint32_t ticket = 0;
        if (lanes.leader()) {
          // Release: pairs with the host's acquire of the same word; the writes before this Flush are in place.
          ticket = simt::atomic<M, simt::scope::system>(drive.sync->requested).fetch_add(1, simt::order::release) + 1;
        }
        pending.flags = pending_command::waits_for_sync | lanes.broadcast(ticket) << 8;
        break;
    }
    if constexpr (media::may_lose<M>) {
      if (pending.status_field == 0 && drive.template has_lost<M>(command.offset_bytes, command.bytes)) {
        pending.status_field = lost_status(command.op);
        count_one(counts.failed_commands);
      }
    }
    return pending;
  }

  /// The ranges are read from the client's memory twice, and checked each time: what it changes in between it changes
  /// for itself.
  FOREBAY_DEVICE std::uint16_t deallocate(nvme::submission_entry const& entry, dma_segment const* segments,
                                          std::uint32_t segment_count) {
    if ((entry.cdw11 & nvme::cdw11_attribute_deallocate) == 0) return 0;  // the other attributes are hints
    std::uint32_t const n = (entry.cdw10 & 0xff) + 1;
    media const& drive = view_.drive;
    for (bool const applies : {false, true}) {
      for (std::uint32_t i = 0; i < n; ++i) {
        nvme::dataset_management_range const range = load_range(segments, segment_count, i);
        if (range.slba > drive.blocks() || range.length_blocks > drive.blocks() - range.slba) {
          return static_cast<std::uint16_t>(nvme::status_field(nvme::generic_status::lba_out_of_range) |
                                            nvme::do_not_retry);
        }
        if (!applies) continue;
        std::uint64_t const offset = range.slba * drive.block_bytes;
        std::uint64_t const bytes = std::uint64_t{range.length_blocks} * drive.block_bytes;
        drive.template zero<M>(lanes_, offset, bytes);
        mark_one(offset, bytes);
        if constexpr (media::may_lose<M>) {
          if (drive.template has_lost<M>(offset, bytes)) {
            return nvme::status_field(nvme::media_status::write_fault);
          }
        }
        view_.timing.unmap(lanes_, offset, bytes);
      }
    }
    return 0;
  }

  /// Range `i` of a Dataset Management command, the same for all lanes.
  FOREBAY_DEVICE nvme::dataset_management_range load_range(dma_segment const* segments, std::uint32_t segment_count,
                                                           std::uint32_t i) const {
    nvme::dataset_management_range range;
    if (lanes_.leader()) {
      // Words, because PRP entries are aligned to no more than that.
      std::uint32_t words[sizeof range / 4] = {};
      std::uint64_t at = std::uint64_t{i} * sizeof range;
      std::uint32_t segment = 0;
      for (std::uint32_t& word : words) {
        while (segment + 1 < segment_count && at >= segments[segment].bytes) at -= segments[segment++].bytes;
        word = M::ld(reinterpret_cast<std::uint32_t const*>(segments[segment].address + at));
        at += 4;
      }
      std::memcpy(&range, words, sizeof range);
    }
    return lanes_.broadcast(range);
  }

  // Posting -----------------------------------------------------------------------------------------------------------

  /// Posts the commands of a queue that are due, as far as its completion queue has room. Whether any was.
  FOREBAY_DEVICE bool post_due(std::uint32_t at) {
    submission_queue<M>& sq = unit_.queues[at];
    // One lane looks: the queue may be attached just now.
    bool const taken = lanes_.leader() && try_lock(at, &queue_locks::pending);
    if (!lanes_.any(taken)) return contend();
    bool const is_open = lanes_.any(taken && open(sq));
    lanes_.sync();  // all see what the last holder left
    completion_queue& cq = view_.completion_queues[sq.cq_slot];
    if (!is_open || !hold(at, cq)) {
      give(at, &queue_locks::pending);
      return is_open && contend();
    }
    completion_ring ring = ring_of(sq, cq);
    std::uint32_t const free = room(ring);
    bool held = false;
    std::uint64_t last_due_ps = 0;  // of the lane
    std::uint32_t const n = sq.pending.take_due(
        lanes_, now_ps_ + ahead_ps() + ahead_ps() / 2,  // what comes soon after comes along
        free < scratch_.staged_completions ? free : scratch_.staged_completions,
        [&](std::uint64_t& due_ps, pending_command& command) {
          if ((command.flags & pending_command::waits_for_sync) == 0 || synced(*this, command)) return true;
          // Looked at again after a while, so that it does not hold up the others.
          due_ps = now_ps_ + sync_poll_ps;
          return false;
        },
        [&](std::uint32_t position, std::uint32_t slot, std::uint64_t due_ps, pending_command const& command) {
          scratch_.staged[position] = command;
          scratch_.staged_due_ps[position] = due_ps;
          scratch_.staged_slots[position] = slot;
          held = held || (command.flags & pending_command::held) != 0;
          if (due_ps > last_due_ps) last_due_ps = due_ps;
          // `execute` could not know yet.
          if ((command.flags & pending_command::waits_for_sync) != 0 && command.status_field != 0) {
            count<M>(stats_.commands.failed_commands);
          }
        });
    completion_ring::places const places = ring.take(n, view_.options.timing.immediate() ? 0 : lanes_.max(last_due_ps));
    put_back(sq, cq, ring);
    std::uint32_t const dw2 = completion_dw2(sq);
    // One that others post to is kept until the entries are there: once a queue of its is detached, what the queue
    // completed must not lie behind entries that are still to come.
    bool const holds_on = !sq.owns_cq && n != 0;
    if (!holds_on) let_go(at, cq);
    // Before others may have the slots, which the entries of held commands lie by.
    if (lanes_.any(held)) execute_held(*this, sq, n);
    bool const waiting = n == free && sq.pending.next_due_ps() <= now_ps_;
    bool const was_blocked = hint(sq.blocked) != 0;
    lanes_.sync();
    if (lanes_.leader()) {
      if (was_blocked != waiting) set(sq.blocked, waiting ? 1 : 0);
      if (n != 0) {
        count_in_flight(sq, 0 - n);
        keep_hand_on(at);
      }
    }
    give(at, &queue_locks::pending);
    if (n != 0) {
      post_staged(at, ring, places, n, dw2, !was_blocked);
      if (holds_on) let_go(at, cq);
      take_hand_off(at);
    }
    if (lanes_.leader()) {
      if (n != 0) count<M>(stats_.commands.completions_posted, n);
      if (waiting) count<M>(stats_.commands.completions_blocked);
    }
    return n != 0;
  }

  /// Dword 2 of completions that are posted now. By one that holds the completion queue, so that their heads follow
  /// each other.
  FOREBAY_DEVICE std::uint32_t completion_dw2(submission_queue<M>& sq) const {
    // Acquire: pairs with the release in `fetch`; entries before the head have been read, and the client may write
    // over them.
    std::uint32_t const head =
        lanes_.leader() ? simt::atomic<M, simt::scope::block>(sq.head).load(simt::order::acquire) : 0;
    return nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(lanes_.broadcast(head)), sq.id);
  }

  /// Executes those of the `n` staged commands that were to move their data late.
  FOREBAY_COLD static void execute_held(dispatcher self, submission_queue<M> const& sq, std::uint32_t n) {
    for (std::uint32_t i = 0; i < n; ++i) {
      pending_command command = self.scratch_.staged[i];
      if ((command.flags & pending_command::held) == 0) continue;
      nvme::submission_entry const& entry = sq.held[self.scratch_.staged_slots[i]];
      command.flags &= ~pending_command::held;
      pending_command const done =
          execute(self, sq, entry, decode(entry, self.view_.drive, self.view_.options.max_transfer_bytes), command);
      self.lanes_.sync();
      if (self.lanes_.leader()) self.scratch_.staged[i] = done;
      self.lanes_.sync();
    }
  }

  /// Posts the `n` staged commands of the queue at `at` at `places`, each when its time has come. `counts`: whether how
  /// late they are is the engine's doing.
  FOREBAY_DEVICE void post_staged(std::uint32_t at, completion_ring const& ring, completion_ring::places const& places,
                                  std::uint32_t n, std::uint32_t dw2, bool counts) {
    // Without time to spare all of them are due.
    bool const in_order = ahead_ps() == 0 || staged_are_in_order(n);
    if (!in_order) put_staged_in_order(*this, n);
    // A look at doorbells takes no time here: it is under way while the entries are.
    bool const looks = M::full_warp_lanes == 32 && ahead_ps() != 0;
    thing const beside = looks ? doorbell_beside(at) : thing{};
    std::uint64_t const looked_ps = looks ? since_epoch_ps(M::clock_ns()) : 0;
    std::uint32_t const value = beside.look();
    ring.prepare(lanes_, places, n, 0, dw2);
    beside.judge(value, looked_ps);
    for (std::uint32_t first = 0; first < n; first += lanes_.count()) {
      std::uint32_t const i = first + lanes_.rank();
      bool waits = i < n;
      std::uint32_t const which = in_order || !waits ? i : scratch_.staged_slots[i];
      pending_command const command = waits ? scratch_.staged[which] : pending_command{};
      std::uint64_t const due_ps = waits ? scratch_.staged_due_ps[which] : never_ps;
      std::uint64_t posted_ps = 0;
      for (;;) {
        std::uint64_t const now_ps = (M::clock_ns() - view_.options.epoch_ns) * 1000;
        if (waits && due_ps <= now_ps) {
          ring.template publish<M>(places, i, command.command_id, command.status_field);
          posted_ps = now_ps;
          waits = false;
        }
        if (!lanes_.any(waits)) break;
        std::uint64_t const next_ps = lanes_.min(waits ? due_ps : never_ps);
        look_until(view_.options.epoch_ns + (next_ps + 999) / 1000, at);
      }
      bool const timed = counts && i < n && (command.flags & pending_command::timed) != 0;
      if (posted_ps < places.after_ps) posted_ps = places.after_ps;
      if (lanes_.any(timed)) stats_.lateness.template record<M>(lanes_, timed, timed ? (posted_ps - due_ps) / 1000 : 0);
    }
    read_clock();
  }

  /// Whether each staged command is due no earlier than the one before it, as nearly always.
  FOREBAY_DEVICE bool staged_are_in_order(std::uint32_t n) const {
    bool falls = false;
    for (std::uint32_t i = lanes_.rank(); i + 1 < n; i += lanes_.count()) {
      falls = falls || scratch_.staged_due_ps[i] > scratch_.staged_due_ps[i + 1];
    }
    return !lanes_.any(falls);
  }
  /// Sets `staged_slots` to the staged commands in the order of their due times: a client sees an entry of its ring no
  /// earlier than those before it.
  FOREBAY_COLD static void put_staged_in_order(dispatcher self, std::uint32_t n) {
    dispatcher_scratch& scratch = self.scratch_;
    for (std::uint32_t i = self.lanes_.rank(); i < n; i += self.lanes_.count()) {
      std::uint64_t const due_ps = scratch.staged_due_ps[i];
      std::uint32_t before = 0;
      for (std::uint32_t j = 0; j < n; ++j) {
        std::uint64_t const other_ps = scratch.staged_due_ps[j];
        before += other_ps < due_ps || (other_ps == due_ps && j < i);
      }
      scratch.staged_slots[before] = i;
    }
    self.lanes_.sync();
  }

  /// Takes a completion queue, so that others do not post to it meanwhile. False: another dispatcher has it at present.
  [[nodiscard]] FOREBAY_DEVICE bool hold(std::uint32_t at, completion_queue& cq) const {
    if (unit_.queues[at].owns_cq) return try_take(first_place_of(at), &queue_locks::posting);
    bool const held = lanes_.any(lanes_.leader() && cq.try_lock<M>());
    lanes_.sync();  // all see what the last holder left
    return held;
  }
  FOREBAY_DEVICE void let_go(std::uint32_t at, completion_queue& cq) const {
    if (unit_.queues[at].owns_cq) return give(first_place_of(at), &queue_locks::posting);
    lanes_.sync();
    if (lanes_.leader()) cq.unlock<M>();
  }
  /// The first place of the dispatcher whose place `at` is.
  FOREBAY_DEVICE std::uint32_t first_place_of(std::uint32_t at) const { return at - at % queue_count_; }
  /// The ring of a completion queue that the team holds. Of a unit of several dispatchers a queue that owns its
  /// completion queue has the ring beside it.
  FOREBAY_DEVICE bool has_ring(submission_queue<M> const& sq) const { return helps() && sq.owns_cq; }
  FOREBAY_DEVICE completion_ring ring_of(submission_queue<M> const& sq, completion_queue const& cq) const {
    return has_ring(sq) ? sq.ring : cq.ring();
  }
  FOREBAY_DEVICE void put_back(submission_queue<M>& sq, completion_queue& cq, completion_ring const& ring) const {
    lanes_.sync();
    if (!lanes_.leader()) return;
    has_ring(sq) ? sq.ring.go_on_as(ring) : cq.put_back(ring);
    cq.show<M>(ring);
  }
  /// The completion queue is no longer the queue's own. By one lane, with `queue_locks::pending`: who posts has it too.
  FOREBAY_DEVICE void disown(submission_queue<M>& sq) const {
    if (has_ring(sq)) view_.completion_queues[sq.cq_slot].put_back(sq.ring);
    sq.owns_cq = false;
  }

  /// Free entries of the ring of a completion queue that the team holds.
  FOREBAY_DEVICE std::uint32_t room(completion_ring& ring) const {
    if (ring.known_free() < scratch_.staged_completions && !ring.look_at_head<M>(lanes_) && lanes_.leader()) {
      count_invalid_doorbell();
    }
    return ring.known_free();
  }

  /// Whether the host has written back what a Flush covers; sets its status. Called by one lane.
  FOREBAY_COLD static bool synced(dispatcher self, pending_command& command) {
    sync_words& words = *self.view_.drive.sync;
    // Acquire: pairs with the host's release; its failure flag is visible.
    std::uint32_t const completed = simt::atomic<M, simt::scope::system>(words.completed).load(simt::order::acquire);
    if (static_cast<std::int32_t>((completed - (command.flags >> 8)) << 8) < 0) return false;
    // Relaxed: ordered by the acquire above.
    if (simt::atomic<M, simt::scope::system>(words.failed).load(simt::order::relaxed) != 0) {
      command.status_field = nvme::status_field(nvme::media_status::write_fault);
    }
    return true;
  }

  engine_view<M> const& view_;
  team lanes_;
  std::uint32_t index_;
  dispatcher_scratch& scratch_;
  unit_memory<M> unit_;
  std::uint32_t queue_count_;
  std::uint32_t first_place_;
  statistics& stats_;
  std::uint64_t now_ps_ = 0;  ///< not after the present
  std::uint32_t mail_ = 0;    ///< of the leader: how many requests were posted when it looked
  std::uint32_t seen_batches_ = 0;
  bool contended_ = false;  ///< the step wanted what was another's
};

}  // namespace forebay::emulator
