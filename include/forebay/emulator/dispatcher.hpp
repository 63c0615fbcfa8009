// SPDX-License-Identifier: Apache-2.0
//! \file
//! A dispatcher of the I/O engine: fetches the submission entries of its queues, times them, moves the data and posts
//! completions. On a GPU it is a warp, and a thread block of them is a service unit; on the CPU it is a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "forebay/emulator/decode.hpp"
#include "forebay/emulator/dma_regions.hpp"
#include "forebay/emulator/fault_plan.hpp"
#include "forebay/emulator/frontend.hpp"
#include "forebay/emulator/media.hpp"
#include "forebay/emulator/mover.hpp"
#include "forebay/emulator/pending_set.hpp"
#include "forebay/emulator/prp.hpp"
#include "forebay/emulator/queues.hpp"
#include "forebay/emulator/statistics.hpp"
#include "forebay/emulator/timing_model.hpp"
#include "forebay/nvme/command.hpp"
#include "forebay/nvme/status_code.hpp"
#include "forebay/simt/team.hpp"
#include "forebay/simt/vocabulary.hpp"

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
  /// How long a fetch may take. Where a command becomes due within that time, fetching is put off, up to half of the
  /// least latency.
  std::uint64_t fetch_ns = 0;
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
  dma_region_table regions;
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
  std::uint64_t last_look_ps;  ///< when no doorbell of the dispatcher had changed
  std::uint64_t visit_ps;      ///< when the last visit began to look for what was due
};

/// The calling lane's view of dispatcher `index`; all lanes of its team call each member together. `scratch` is its
/// own, `queues` its part of `engine_view::submission_queues` or a copy of that.
template <class M>
class dispatcher {
 public:
  using team = simt::team<M>;

  FOREBAY_DEVICE dispatcher(engine_view<M> const& view, std::uint32_t index, dispatcher_scratch& scratch,
                            submission_queue<M>* queues)
      : view_(view),
        lanes_(team::here()),
        index_(index),
        scratch_(scratch),
        queues_(queues),
        queue_count_(view.queues_per_dispatcher()),
        stats_(view.unit_statistics[index % view.options.units]) {}

  FOREBAY_DEVICE team const& lanes() const { return lanes_; }

  /// One visit to each queue: fetch, time, move, post. Whether it did anything.
  FOREBAY_DEVICE bool step() {
    read_clock();
    bool worked = serve_requests();
    for (std::uint32_t first = 0; first < queue_count_; first += lanes_.count()) {
      std::uint32_t const k = first + lanes_.rank();
      bool const fresh = k < queue_count_ && queues_[k].size != 0 && poll(queues_[k]);
      lanes_.sync();
      std::uint32_t fresh_queues = lanes_.ballot(fresh);
      if (post_due(first)) worked = true;
      for (; fresh_queues != 0; fresh_queues &= fresh_queues - 1) {
        submission_queue<M>& sq = queues_[first + team::lowest(fresh_queues)];
        if (puts_off(sq) || !fetch(sq)) continue;
        worked = true;
        read_clock();
        post_due(first);
      }
    }
    lanes_.sync();
    if (lanes_.leader()) scratch_.visit_ps = now_ps_;
    lanes_.sync();
    return worked;
  }

  /// When to look at the next completion, on `M::clock_ns()`; `simt::no_deadline` when none becomes due. One that was
  /// due at the last visit, which did nothing, waits for its completion queue, not for time.
  FOREBAY_DEVICE std::uint64_t next_due_ns() const {
    std::uint64_t next_ps = never_ps;
    for (std::uint32_t k = lanes_.rank(); k < queue_count_; k += lanes_.count()) {
      if (queues_[k].size == 0) continue;
      std::uint64_t const due_ps = queues_[k].pending.next_due_ps();
      if (due_ps > scratch_.visit_ps && due_ps < next_ps) next_ps = due_ps;
    }
    next_ps = lanes_.min(next_ps);
    if (next_ps == never_ps) return simt::no_deadline;
    return view_.options.epoch_ns + (next_ps + 999) / 1000 - view_.options.post_ahead_ns;
  }

  /// Whether a step might find something that the last one did not. Called by one lane; what it says is a hint, but a
  /// no is as good as a poll of every doorbell.
  FOREBAY_DEVICE bool changed() {
    dispatcher_mailbox& mail = view_.mailboxes[index_];
    std::uint64_t const look_ps = (M::clock_ns() - view_.options.epoch_ns) * 1000;
    // Relaxed, all of them: `step` looks again.
    bool found = simt::atomic<M, simt::scope::system>(mail.posted).load(simt::order::relaxed) != handled_requests();
    for (std::uint32_t k = 0; k < queue_count_; ++k) {
      submission_queue<M> const& sq = queues_[k];
      if (sq.size == 0) continue;
      std::uint32_t const tail = simt::atomic<M, simt::scope::system>(*sq.tail_doorbell).load(simt::order::relaxed);
      found |= tail != (tail < sq.size ? sq.head : sq.bad_tail);
      if (sq.blocked) {
        found |= view_.completion_queues[sq.cq_slot].template has_room<M>();
      } else {
        // Another dispatcher had the completion queue.
        found |= sq.pending.next_due_ps() <= scratch_.visit_ps + ahead_ps();
      }
    }
    if (!found) scratch_.last_look_ps = look_ps;
    return found;
  }

 private:
  /// What the lanes counted of a batch. Bytes are of the namespace.
  struct tally {
    std::uint32_t reads = 0, writes = 0, flushes = 0, others = 0, failed = 0, injected_errors = 0, injected_delays = 0,
                  withheld = 0;
    std::uint64_t bytes_read = 0, bytes_written = 0;
  };

  FOREBAY_DEVICE void read_clock() {
    std::uint64_t const now_ns = lanes_.leader() ? M::clock_ns() - view_.options.epoch_ns : 0;
    now_ps_ = lanes_.broadcast(now_ns) * 1000;
  }
  FOREBAY_DEVICE std::uint64_t ahead_ps() const { return view_.options.post_ahead_ns * 1000; }
  FOREBAY_DEVICE std::uint32_t queue_of(std::uint32_t slot) const { return slot / view_.dispatchers(); }
  FOREBAY_DEVICE nvme::submission_entry entry(std::uint32_t i) const {
    nvme::submission_entry copy;
    std::memcpy(&copy, scratch_.entries[i].part, sizeof copy);
    return copy;
  }
  FOREBAY_DEVICE void count_invalid_doorbell() const {
    // Relaxed: a counter.
    simt::atomic<M, simt::scope::device>(view_.words->invalid_doorbells).fetch_add(1, simt::order::relaxed);
  }

  // Requests ----------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE std::uint32_t handled_requests() const {
    // Relaxed: the dispatcher's own word.
    return simt::atomic<M, simt::scope::system>(view_.mailboxes[index_].handled).load(simt::order::relaxed);
  }

  FOREBAY_DEVICE bool serve_requests() {
    dispatcher_mailbox& mail = view_.mailboxes[index_];
    // Acquire: pairs with the host's release when it has written the requests.
    std::uint32_t const posted = lanes_.broadcast(
        lanes_.leader() ? simt::atomic<M, simt::scope::system>(mail.posted).load(simt::order::acquire) : 0);
    std::uint32_t const before = handled_requests();
    if (posted != before) lanes_.sync();  // all see the requests
    std::uint32_t handled = before;
    while (handled != posted && serve(mail.ring[handled % dispatcher_mailbox::capacity])) ++handled;
    lanes_.sync();
    if (handled != before && lanes_.leader()) {
      // Release: pairs with the host's acquire before it writes a request over one of these.
      simt::atomic<M, simt::scope::system>(mail.handled).store(handled, simt::order::release);
    }
    lanes_.sync();
    return handled != before;
  }

  /// False: not yet possible, try again.
  FOREBAY_DEVICE bool serve(dispatcher_request const& request) {
    using kind = dispatcher_request::kind;
    submission_queue<M>& sq = queues_[queue_of(request.slot)];
    bool found = false;
    switch (request.what) {
      case kind::attach:
        if (request.waits && !answered(request.after_slot, request.after_ticket)) return false;
        attach(sq, request);
        break;
      case kind::share_cq:
        lanes_.sync();
        if (lanes_.leader()) sq.owns_cq = false;
        break;
      case kind::detach:
        if (!abort_all(sq)) return false;
        [[fallthrough]];
      case kind::detach_silently:
        if (lanes_.leader()) count<M>(stats_.commands.dropped, sq.pending.size());
        lanes_.sync();
        if (lanes_.leader()) sq.size = 0;
        break;
      case kind::abort:
        found = abort(sq, static_cast<std::uint16_t>(request.command_id));
        break;
    }
    lanes_.sync();
    if (lanes_.leader()) {
      // Release: pairs with the acquire in `engine::answered` and in `answered` below. Whoever sees it knows that the
      // dispatcher is done with the queue's memory, or with posting alone.
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

  FOREBAY_DEVICE void attach(submission_queue<M>& sq, dispatcher_request const& request) {
    lanes_.sync();
    if (lanes_.leader()) {
      sq = {};
      sq.entries = request.queue.entries;
      sq.tail_doorbell = request.queue.tail_doorbell;
      sq.held = request.held;
      sq.cq_slot = request.queue.cq_slot;
      sq.page_bytes = request.queue.page_bytes;
      sq.id = request.queue.id;
      sq.owns_cq = request.owns_cq;
      sq.pending = pending_set<M>(request.pending_storage, request.pending_commands);
      sq.size = request.queue.size;
    }
    lanes_.sync();
    sq.pending.clear(lanes_);
  }

  FOREBAY_DEVICE bool abort(submission_queue<M>& sq, std::uint16_t command_id) {
    bool found = false;
    if (sq.size == 0) return false;
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
  FOREBAY_DEVICE bool abort_all(submission_queue<M>& sq) {
    if (sq.size == 0 || sq.pending.empty()) return true;
    completion_queue& cq = view_.completion_queues[sq.cq_slot];
    if (!hold(sq, cq)) return false;
    for (std::uint32_t free = room(cq); free != 0 && !sq.pending.empty();) {
      std::uint32_t const n = sq.pending.take_due(
          lanes_, never_ps, free < scratch_.staged_completions ? free : scratch_.staged_completions,
          [](std::uint64_t&, pending_command&) { return true; },
          [&](std::uint32_t position, std::uint32_t, std::uint64_t, pending_command const& command) {
            scratch_.staged[position] = {
                command.command_id, nvme::status_field(nvme::generic_status::command_aborted_due_to_sq_deletion), 0};
            scratch_.staged_due_ps[position] = 0;
          });
      lanes_.sync();
      post_staged(sq, cq, n, false);
      if (lanes_.leader()) count<M>(stats_.commands.completions_posted, n);
      free -= n;
    }
    let_go(sq, cq);
    return true;
  }

  // Fetching ----------------------------------------------------------------------------------------------------------

  /// Reads the tail doorbell, by the one lane that calls it. Whether there are entries to fetch.
  FOREBAY_DEVICE bool poll(submission_queue<M>& sq) {
    if (sq.head != sq.seen_tail) return true;
    // Acquire: pairs with the client's release before it rings the tail doorbell; the entries are visible.
    std::uint32_t const tail = simt::atomic<M, simt::scope::system>(*sq.tail_doorbell).load(simt::order::acquire);
    if (tail >= sq.size) {
      if (tail != sq.bad_tail) count_invalid_doorbell();
      sq.bad_tail = tail;
      return false;
    }
    std::uint64_t last_ps = sq.last_poll_ps == never_ps ? now_ps_ : sq.last_poll_ps;
    if (last_ps < scratch_.last_look_ps && scratch_.last_look_ps <= now_ps_) last_ps = scratch_.last_look_ps;
    sq.last_poll_ps = now_ps_;
    if (tail == sq.head) return false;
    sq.seen_tail = tail;
    sq.arrival_ps = last_ps;
    sq.gap_is_new = true;
    return true;
  }

  /// Whether what is new in a queue had better wait until what is about to become due was posted.
  FOREBAY_DEVICE bool puts_off(submission_queue<M> const& sq) {
    if (view_.options.fetch_ns == 0) return false;
    timing_parameters const& timing = view_.options.timing;
    std::uint64_t const latency_ps = timing.read.latency_min_ps < timing.write.latency_min_ps
                                         ? timing.read.latency_min_ps
                                         : timing.write.latency_min_ps;
    if (now_ps_ >= sq.arrival_ps + latency_ps / 2) return false;
    std::uint64_t next_ps = never_ps;
    for (std::uint32_t k = lanes_.rank(); k < queue_count_; k += lanes_.count()) {
      if (queues_[k].size == 0 || queues_[k].blocked) continue;
      if (std::uint64_t const due_ps = queues_[k].pending.next_due_ps(); due_ps < next_ps) next_ps = due_ps;
    }
    return lanes_.min(next_ps) <= now_ps_ + view_.options.fetch_ns * 1000;
  }

  /// Fetches what is new in a queue, up to a batch, and takes it as far as its due time. Whether there was anything.
  FOREBAY_DEVICE bool fetch(submission_queue<M>& sq) {
    std::uint32_t const head = sq.head;
    std::uint32_t n = sq.seen_tail >= head ? sq.seen_tail - head : sq.seen_tail + sq.size - head;
    std::uint32_t const most = view_.options.frontend.coalesced_fetch ? scratch_.batch_entries : 1;
    if (n > most) n = most;
    if (n > sq.pending.free()) n = sq.pending.free();
    if (n == 0) return false;

    load(sq, head, n);
    std::uint64_t const sequence = (std::uint64_t{sq.id} << 48) + sq.fetched;
    std::uint64_t const arrival_ps = sq.arrival_ps;
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
    if (!immediate && view_.options.frontend.aggregated_timing) {
      view_.timing.assign(lanes_, scratch_.timed, n, arrival_ps, scratch_.channel_ps);
    } else if (!immediate) {
      for (std::uint32_t i = 0; i < n; ++i) {
        view_.timing.assign(lanes_, scratch_.timed + i, 1, arrival_ps, scratch_.channel_ps);
      }
    }
    sq.pending.reserve(lanes_, n, scratch_.slots);

    tally counts;
    start(sq, n, immediate, counts);
    std::uint64_t first_due_ps = never_ps;
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      std::uint64_t const due_ps = scratch_.timed[i].target_ps;
      sq.pending.insert(scratch_.slots[i], due_ps, scratch_.commands[i]);
      if (due_ps < first_due_ps) first_due_ps = due_ps;
    }
    sq.pending.settle(lanes_, n, scratch_.slots, lanes_.min(first_due_ps));
    bool const polled = sq.gap_is_new;
    std::uint64_t const gap_ns = (sq.last_poll_ps - arrival_ps) / 1000;
    lanes_.sync();
    if (lanes_.leader()) {
      sq.head = head + n < sq.size ? head + n : head + n - sq.size;
      sq.fetched += n;
      sq.gap_is_new = false;
      count<M>(stats_.commands.fetches);
      count<M>(stats_.commands.commands_fetched, n);
    }
    lanes_.sync();
    stats_.poll_gap.template record<M>(lanes_, polled && lanes_.leader(), gap_ns);
    add(counts);
    return true;
  }

  /// Takes `n` submission entries over from the client's ring, in as few accesses as they fill.
  FOREBAY_DEVICE void load(submission_queue<M> const& sq, std::uint32_t head, std::uint32_t n) {
    for (std::uint32_t p = lanes_.rank(); p < n * 4; p += lanes_.count()) {
      std::uint32_t const i = p / 4;
      std::uint32_t const at = head + i < sq.size ? head + i : head + i - sq.size;
      scratch_.entries[i].part[p % 4] = M::ld(reinterpret_cast<simt::vec16 const*>(sq.entries + at) + p % 4);
    }
    lanes_.sync();
  }

  /// Executes the batch, each command now or later as faults want, and sets `commands` and due times.
  FOREBAY_DEVICE void start(submission_queue<M>& sq, std::uint32_t n, bool immediate, tally& counts) {
    std::uint32_t alone = 0;  // commands that the lanes execute together, one by one
    scratch_.moves.clear(lanes_);
    for (std::uint32_t first = 0; first < n; first += lanes_.count()) {
      std::uint32_t const i = first + lanes_.rank();
      bool moves = false;
      bool is_alone = false;
      dma_segment piece;
      if (i < n) {
        decoded_command const& command = scratch_.decoded[i];
        nvme::submission_entry const e = entry(i);
        pending_command pending{e.command_id(), command.status_field,
                                !immediate && command.status_field == 0 ? pending_command::timed : 0};
        if (command.status_field == 0 && view_.options.faults.any()) inject(sq, i, pending, counts);
        if (pending.status_field != 0) {
          ++counts.failed;
        } else if ((pending.flags & pending_command::held) == 0) {
          bool const plain = command.opcode == nvme::io_opcode::read || command.opcode == nvme::io_opcode::write;
          moves = plain && one_piece<M>(view_.regions, e.prp1, e.prp2, command.transfer_bytes, sq.page_bytes, piece);
          is_alone = !moves;
        }
        scratch_.commands[i] = pending;
        if (moves) {
          bool const read = command.opcode == nvme::io_opcode::read;
          (read ? counts.reads : counts.writes) += 1;
          (read ? counts.bytes_read : counts.bytes_written) += command.bytes;
        }
      }
      alone |= lanes_.ballot(is_alone) << first;
      if (view_.drive.data != nullptr) {
        bool const read = moves && scratch_.decoded[i].opcode == nvme::io_opcode::read;
        auto* const theirs = reinterpret_cast<std::byte*>(piece.address);
        std::byte* const ours = moves ? view_.drive.data + scratch_.decoded[i].offset_bytes : nullptr;
        scratch_.moves.append(lanes_, moves, read ? theirs : ours, read ? ours : theirs,
                              static_cast<std::uint32_t>(piece.bytes));
      }
    }
    scratch_.moves.run(lanes_);
    if (view_.drive.dirty != nullptr) mark_written(n, alone);
    for (; alone != 0; alone &= alone - 1) {
      std::uint32_t const i = team::lowest(alone);
      pending_command const done = execute(sq, entry(i), scratch_.decoded[i], scratch_.commands[i], counts);
      lanes_.sync();
      if (lanes_.leader()) scratch_.commands[i] = done;
      lanes_.sync();
    }
  }

  /// Marks what the writes of the batch wrote, but for those in `alone`.
  FOREBAY_DEVICE void mark_written(std::uint32_t n, std::uint32_t alone) {
    view_.drive.template before_marks<M>(lanes_);
    for (std::uint32_t i = lanes_.rank(); i < n; i += lanes_.count()) {
      decoded_command const& command = scratch_.decoded[i];
      pending_command const& pending = scratch_.commands[i];
      bool const wrote = command.opcode == nvme::io_opcode::write && pending.status_field == 0 &&
                         (pending.flags & pending_command::held) == 0 && (alone >> i & 1) == 0;
      if (wrote) view_.drive.template mark<M>(command.offset_bytes, command.bytes);
    }
  }

  /// Applies the fault that the plan has for entry `i`, by the one lane that calls it.
  FOREBAY_DEVICE void inject(submission_queue<M> const& sq, std::uint32_t i, pending_command& pending, tally& counts) {
    timed_command& timed = scratch_.timed[i];
    fault_plan const& plan = view_.options.faults;
    injected_fault const fault = plan.at(timed.sequence);
    pending.status_field = fault.status_field;
    timed.target_ps = fault.withheld ? never_ps : timed.target_ps + fault.delay_ps;
    counts.injected_errors += fault.status_field != 0;
    counts.injected_delays += fault.delay_ps != 0;
    counts.withheld += fault.withheld;
    // A Flush has no data to move late; the host's write-back takes its time anyhow.
    bool const moves = scratch_.decoded[i].opcode != nvme::io_opcode::flush;
    if (plan.late_data && moves && (fault.withheld || fault.delay_ps != 0)) {
      pending.flags |= pending_command::held;
      sq.held[scratch_.slots[i]] = entry(i);
    }
  }

  FOREBAY_DEVICE void mark_one(std::uint64_t offset, std::uint64_t bytes) const {
    view_.drive.template before_marks<M>(lanes_);
    if (lanes_.leader()) view_.drive.template mark<M>(offset, bytes);
  }

  /// Does what one valid command asks for; returns what is posted for it.
  FOREBAY_DEVICE pending_command execute(submission_queue<M> const& sq, nvme::submission_entry const& entry,
                                         decoded_command const& command, pending_command pending, tally& counts) {
    using nvme::io_opcode;
    dma_segment* const segments = view_.segments + std::size_t{index_} * view_.segments_per_dispatcher;
    std::uint32_t const one = lanes_.leader() ? 1 : 0;
    std::uint32_t segment_count = 0;
    if (command.transfer_bytes != 0) {
      prp_walk const walk =
          walk_prps<M>(lanes_, view_.regions, entry.prp1, entry.prp2, command.transfer_bytes, sq.page_bytes, segments);
      if (walk.status_field != 0) {
        pending.status_field = walk.status_field;
        counts.failed += one;
        return pending;
      }
      segment_count = walk.count;
    }
    media const& drive = view_.drive;
    switch (command.opcode) {
      case io_opcode::read:
        drive.template read<M>(lanes_, command.offset_bytes, segments, segment_count);
        counts.reads += one;
        counts.bytes_read += one * command.bytes;
        break;
      case io_opcode::write:
        drive.template write<M>(lanes_, command.offset_bytes, segments, segment_count);
        mark_one(command.offset_bytes, command.bytes);
        counts.writes += one;
        counts.bytes_written += one * command.bytes;
        break;
      case io_opcode::compare:
        counts.others += one;
        if (!drive.template equal<M>(lanes_, command.offset_bytes, segments, segment_count)) {
          pending.status_field =
              static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::compare_failure) | nvme::do_not_retry);
          counts.failed += one;
        }
        break;
      case io_opcode::write_zeroes:
        drive.template zero<M>(lanes_, command.offset_bytes, command.bytes);
        mark_one(command.offset_bytes, command.bytes);
        counts.others += one;
        break;
      case io_opcode::dataset_management:
        counts.others += one;
        pending.status_field = deallocate(entry, segments, segment_count);
        if (pending.status_field != 0) counts.failed += one;
        break;
      default:  // flush
        counts.flushes += one;
        if (drive.sync == nullptr) break;
        std::uint32_t ticket = 0;
        if (lanes_.leader()) {
          // Release: pairs with the host's acquire of the same word; the writes before this Flush are in place.
          ticket = simt::atomic<M, simt::scope::system>(drive.sync->requested).fetch_add(1, simt::order::release) + 1;
        }
        pending.flags = pending_command::waits_for_sync | lanes_.broadcast(ticket) << 8;
        break;
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

  /// Posts what is due in the queues from `first` on, one for each lane. Whether there was anything.
  FOREBAY_DEVICE bool post_due(std::uint32_t first) {
    std::uint32_t const k = first + lanes_.rank();
    std::uint32_t due_queues = lanes_.ballot(k < queue_count_ && queues_[k].size != 0 &&
                                             queues_[k].pending.next_due_ps() <= now_ps_ + ahead_ps());
    bool posted = false;
    for (; due_queues != 0; due_queues &= due_queues - 1) {
      if (post_due(queues_[first + team::lowest(due_queues)])) posted = true;
    }
    return posted;
  }

  /// Posts the commands of a queue that are due, as far as its completion queue has room. Whether any was.
  FOREBAY_DEVICE bool post_due(submission_queue<M>& sq) {
    completion_queue& cq = view_.completion_queues[sq.cq_slot];
    if (!hold(sq, cq)) return false;
    std::uint32_t const free = room(cq);
    std::uint32_t const most = free < scratch_.staged_completions ? free : scratch_.staged_completions;
    bool held = false;
    std::uint32_t const n = sq.pending.take_due(
        lanes_, now_ps_ + ahead_ps() + ahead_ps() / 2, most,  // what comes soon after comes along
        [&](std::uint64_t& due_ps, pending_command& command) {
          if ((command.flags & pending_command::waits_for_sync) == 0 || synced(command)) return true;
          // Looked at again after a while, so that it does not hold up the others.
          due_ps = now_ps_ + sync_poll_ps;
          return false;
        },
        [&](std::uint32_t position, std::uint32_t slot, std::uint64_t due_ps, pending_command const& command) {
          scratch_.staged[position] = command;
          scratch_.staged_due_ps[position] = due_ps;
          scratch_.staged_slots[position] = slot;
          held = held || (command.flags & pending_command::held) != 0;
        });
    lanes_.sync();
    if (lanes_.any(held)) execute_held(sq, n);
    bool const was_blocked = sq.blocked;
    if (n != 0) post_staged(sq, cq, n, !was_blocked);
    let_go(sq, cq);
    bool const waiting = n == free && sq.pending.next_due_ps() <= now_ps_;
    lanes_.sync();
    if (lanes_.leader()) {
      sq.blocked = waiting;
      if (n != 0) count<M>(stats_.commands.completions_posted, n);
      if (waiting) count<M>(stats_.commands.completions_blocked);
    }
    lanes_.sync();
    return n != 0;
  }

  /// Executes those of the `n` staged commands that were to move their data late.
  FOREBAY_DEVICE void execute_held(submission_queue<M> const& sq, std::uint32_t n) {
    tally counts;
    for (std::uint32_t i = 0; i < n; ++i) {
      pending_command command = scratch_.staged[i];
      if ((command.flags & pending_command::held) == 0) continue;
      nvme::submission_entry const& entry = sq.held[scratch_.staged_slots[i]];
      command.flags &= ~pending_command::held;
      pending_command const done =
          execute(sq, entry, decode(entry, view_.drive, view_.options.max_transfer_bytes), command, counts);
      lanes_.sync();
      if (lanes_.leader()) scratch_.staged[i] = done;
      lanes_.sync();
    }
    add(counts);
  }

  /// Posts the `n` staged commands, each when its time has come. `counts`: whether how late they are is the engine's
  /// doing.
  FOREBAY_DEVICE void post_staged(submission_queue<M> const& sq, completion_queue& cq, std::uint32_t n, bool counts) {
    cq.prepare(lanes_, n, 0, nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(sq.head), sq.id));
    for (std::uint32_t first = 0; first < n; first += lanes_.count()) {
      std::uint32_t const i = first + lanes_.rank();
      bool waits = i < n;
      pending_command const command = waits ? scratch_.staged[i] : pending_command{};
      std::uint64_t const due_ps = waits ? scratch_.staged_due_ps[i] : never_ps;
      std::uint64_t posted_ps = 0;
      for (;;) {
        std::uint64_t const now_ps = (M::clock_ns() - view_.options.epoch_ns) * 1000;
        if (waits && due_ps <= now_ps) {
          cq.publish<M>(i, command.command_id, command.status_field);
          posted_ps = now_ps;
          waits = false;
        }
        if (!lanes_.any(waits)) break;
        std::uint64_t const next_ps = lanes_.min(waits ? due_ps : never_ps);
        // All lanes until the same time, so that none waits for another's.
        (void)M::wait_until([] { return false; }, view_.options.epoch_ns + (next_ps + 999) / 1000);
      }
      bool const timed = counts && i < n && (command.flags & pending_command::timed) != 0;
      stats_.lateness.template record<M>(lanes_, timed, timed ? (posted_ps - due_ps) / 1000 : 0);
    }
    cq.advance(lanes_, n);
    read_clock();
  }

  /// Takes a completion queue for posting. False: another dispatcher has it at present.
  [[nodiscard]] FOREBAY_DEVICE bool hold(submission_queue<M> const& sq, completion_queue& cq) const {
    if (sq.owns_cq) return true;
    bool const held = lanes_.broadcast(lanes_.leader() ? (cq.try_lock<M>() ? 1u : 0u) : 0u) != 0;
    lanes_.sync();  // all see what the last holder left
    return held;
  }
  FOREBAY_DEVICE void let_go(submission_queue<M> const& sq, completion_queue& cq) const {
    lanes_.sync();
    if (!sq.owns_cq && lanes_.leader()) cq.unlock<M>();
  }
  /// Free entries of a completion queue that the team holds.
  FOREBAY_DEVICE std::uint32_t room(completion_queue& cq) const {
    std::uint32_t free = cq.known_free();
    if (free >= scratch_.staged_completions) return free;
    lanes_.sync();
    if (lanes_.leader() && !cq.free_entries<M>(free)) count_invalid_doorbell();
    return lanes_.broadcast(free);
  }

  /// Whether the host has written back what a Flush covers; sets its status. Called by one lane.
  FOREBAY_DEVICE bool synced(pending_command& command) const {
    sync_words& words = *view_.drive.sync;
    // Acquire: pairs with the host's release; its failure flag is visible.
    std::uint32_t const completed = simt::atomic<M, simt::scope::system>(words.completed).load(simt::order::acquire);
    if (static_cast<std::int32_t>((completed - (command.flags >> 8)) << 8) < 0) return false;
    // Relaxed: ordered by the acquire above.
    if (simt::atomic<M, simt::scope::system>(words.failed).load(simt::order::relaxed) != 0) {
      command.status_field = nvme::status_field(nvme::media_status::write_fault);
    }
    return true;
  }

  // Counting ----------------------------------------------------------------------------------------------------------

  /// Adds what the lanes counted to what the unit counts.
  FOREBAY_DEVICE void add(tally const& mine) {
    // Counts of a batch fit 8 bits each, and those of `staged_completions` as well.
    std::uint64_t const packed =
        lanes_.sum(mine.reads | std::uint64_t{mine.writes} << 8 | std::uint64_t{mine.flushes} << 16 |
                   std::uint64_t{mine.others} << 24 | std::uint64_t{mine.failed} << 32 |
                   std::uint64_t{mine.injected_errors} << 40 | std::uint64_t{mine.injected_delays} << 48 |
                   std::uint64_t{mine.withheld} << 56);
    std::uint64_t const bytes_read = lanes_.sum(mine.bytes_read);
    std::uint64_t const bytes_written = lanes_.sum(mine.bytes_written);
    if (!lanes_.leader()) return;
    counters& to = stats_.commands;
    auto const part = [&](std::uint64_t& counter, std::uint32_t shift) {
      if (std::uint64_t const n = packed >> shift & 0xff; n != 0) count<M>(counter, n);
    };
    part(to.read_commands, 0);
    part(to.write_commands, 8);
    part(to.flush_commands, 16);
    part(to.other_commands, 24);
    part(to.failed_commands, 32);
    part(to.injected_errors, 40);
    part(to.injected_delays, 48);
    part(to.withheld, 56);
    if (bytes_read != 0) count<M>(to.bytes_read, bytes_read);
    if (bytes_written != 0) count<M>(to.bytes_written, bytes_written);
  }

  static constexpr std::uint64_t sync_poll_ps = 20'000'000;

  engine_view<M> const& view_;
  team lanes_;
  std::uint32_t index_;
  dispatcher_scratch& scratch_;
  submission_queue<M>* queues_;
  std::uint32_t queue_count_;
  statistics& stats_;
  std::uint64_t now_ps_ = 0;  ///< not after the present
};

}  // namespace forebay::emulator
