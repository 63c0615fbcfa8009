// SPDX-License-Identifier: Apache-2.0
//! \file
//! The I/O engine of an emulated drive: fetches submission entries, times them, moves the data and posts completions.
//! It knows no admin queue; whoever owns it attaches queues by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "forebay/emulator/decode.hpp"
#include "forebay/emulator/dma_regions.hpp"
#include "forebay/emulator/fault_plan.hpp"
#include "forebay/emulator/media.hpp"
#include "forebay/emulator/prp.hpp"
#include "forebay/emulator/queues.hpp"
#include "forebay/emulator/statistics.hpp"
#include "forebay/emulator/timing_model.hpp"
#include "forebay/memory/resource.hpp"
#include "forebay/nvme/command.hpp"
#include "forebay/nvme/status_code.hpp"
#include "forebay/simt/native.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

struct engine_options {
  std::uint32_t units = 1;          ///< service units; unit (id - 1) % units serves submission queue `id`
  std::uint32_t max_queues = 128;   ///< largest I/O queue id, of submission and completion queues alike
  std::uint64_t page_bytes = 4096;  ///< CC.MPS
  std::uint64_t max_transfer_bytes = std::uint64_t{1} << 20;
  std::uint64_t epoch_ns = 0;  ///< what `M::clock_ns()` read at start; times count from here
  timing_parameters timing;
  fault_plan faults;
};

/// How a completion queue is attached: addresses as the engine reaches them.
struct completion_queue_addresses {
  std::uint32_t id = 1;                       ///< 1 to `max_queues`
  nvme::completion_entry* entries = nullptr;  ///< zeroed by the client
  std::uint32_t size = 0;
  std::uint32_t* head_doorbell = nullptr;  ///< 0 when attached
};

struct submission_queue_addresses {
  std::uint32_t id = 1;  ///< 1 to `max_queues`
  nvme::submission_entry const* entries = nullptr;
  std::uint32_t size = 0;
  std::uint32_t* tail_doorbell = nullptr;  ///< 0 when attached
  std::uint32_t cq_id = 1;                 ///< attached before; several submission queues may share it
};

/// A drive's service units on machine `M`. Each unit is stepped by one thread (or one agent of a schedule) at a time.
/// Attach, detach and abort are for one host thread at a time, while units run; the machine `Caller` is the one that
/// this thread runs on.
///
/// A command is identified to fault plan and jitter by (submission queue id << 48) + how many the queue had before it.
template <class M>
class engine {
 public:
  static constexpr std::uint32_t batch_entries = 64;

  /// State lives in `state_memory`, `drive` and `regions` must outlive the engine.
  engine(engine_options const& options, media const& drive, dma_region_table const& regions,
         memory::resource& state_memory = memory::host())
      : options_(options),
        drive_(drive),
        regions_(regions),
        words_per_unit_(((options.max_queues + options.units - 1) / options.units + 31) / 32),
        sqs_(state_memory, options.max_queues + 1),
        cqs_(state_memory, options.max_queues + 1),
        units_(state_memory, options.units),
        active_(state_memory, std::size_t{words_per_unit_} * options.units),
        next_free_ps_(state_memory, timing_parameters::max_channels),
        segments_per_unit_(max_segments(options.max_transfer_bytes, options.page_bytes)),
        segments_(state_memory, std::size_t{options.units} * segments_per_unit_),
        storage_(new memory::allocation[options.max_queues + 1]),
        timing_(options.timing, next_free_ps_.data()) {}

  engine_options const& options() const { return options_; }

  // Host side ---------------------------------------------------------------------------------------------------------

  void attach_completion_queue(completion_queue_addresses const& queue) {
    cqs_[queue.id].open(queue.entries, queue.size, queue.head_doorbell);
  }

  /// No attached submission queue may name it.
  void detach_completion_queue(std::uint32_t id) { cqs_[id].close(); }

  template <class Caller = simt::native>
  void attach_submission_queue(submission_queue_addresses const& queue) {
    submission_queue& sq = sqs_[queue.id];
    // As many in flight as the completion queue can take: more would wait there anyway.
    std::uint32_t const wanted = queue.size > cqs_[queue.cq_id].size() ? queue.size : cqs_[queue.cq_id].size();
    std::uint32_t capacity = 1;
    while (capacity < wanted && capacity < 32768) capacity *= 2;
    storage_[queue.id] = memory::allocation(sqs_.from(), submission_queue::storage_bytes(capacity), 128);
    sq.open(storage_[queue.id].data(), capacity);
    sq.id = static_cast<std::uint16_t>(queue.id);
    sq.cq_id = static_cast<std::uint16_t>(queue.cq_id);
    sq.entries = queue.entries;
    sq.size = queue.size;
    sq.tail_doorbell = queue.tail_doorbell;
    // Release: pairs with the unit's acquire of its active words in `step`.
    simt::atomic<Caller, simt::scope::system>(active_word(queue.id))
        .fetch_or(active_bit(queue.id), simt::order::release);
  }

  /// Asks the unit to let go of a queue; `silently` leaves outstanding commands without a completion. Done when
  /// `answered` says so: from then on no memory that the queue's commands named is touched.
  template <class Caller = simt::native>
  void begin_detach(std::uint32_t sq_id, bool silently) {
    request<Caller>(sq_id, silently ? queue_request::detach_silently : queue_request::detach);
  }

  /// Asks the unit to complete a command as aborted. One request for a queue at a time.
  template <class Caller = simt::native>
  void begin_abort(std::uint32_t sq_id, std::uint16_t command_id) {
    request<Caller>(sq_id, queue_request::abort_flag | command_id);
  }

  /// Whether the unit answered the last request; once true, the next request may follow. `found`: an abort found its
  /// command in flight.
  template <class Caller = simt::native>
  bool answered(std::uint32_t sq_id, bool* found = nullptr) {
    // Acquire: pairs with the unit's release in `answer`; the unit is done with the queue's memory.
    std::uint32_t const word =
        simt::atomic<Caller, simt::scope::system>(sqs_[sq_id].request).load(simt::order::acquire);
    if (word != queue_request::done && word != queue_request::done_found) return false;
    if (found != nullptr) *found = word == queue_request::done_found;
    return true;
  }

  /// Doorbell values that could not be right, of all queues so far.
  template <class Caller = simt::native>
  std::uint64_t invalid_doorbells() {
    std::uint64_t sum = 0;
    for (std::uint32_t unit = 0; unit < options_.units; ++unit) {
      // Relaxed: pairs with nothing; see `count`.
      sum += simt::atomic<Caller, simt::scope::system>(units_[unit].stats.commands.invalid_doorbells)
                 .load(simt::order::relaxed);
    }
    return sum;
  }

  /// Sets CC.MPS, not below that of the options. No submission queue may be attached.
  void set_page_bytes(std::uint64_t page_bytes) { options_.page_bytes = page_bytes; }

  /// Adds up what all units counted, while they run.
  template <class Caller = simt::native>
  void collect(statistics& sum) {
    for (std::uint32_t unit = 0; unit < options_.units; ++unit) {
      statistics& from = units_[unit].stats;
      counters::for_each([&](char const*, std::uint64_t counters::* counter) {
        // Relaxed: pairs with nothing; see `count`.
        sum.commands.*counter +=
            simt::atomic<Caller, simt::scope::system>(from.commands.*counter).load(simt::order::relaxed);
      });
      sum.lateness.merge<Caller>(from.lateness);
      sum.poll_gap.merge<Caller>(from.poll_gap);
    }
  }

  // Unit side ---------------------------------------------------------------------------------------------------------

  /// One visit of service unit `unit_index` to each of its queues: fetch, time, move, post. Whether it did anything.
  FOREBAY_DEVICE bool step(std::uint32_t unit_index) {
    unit_state& unit = units_[unit_index];
    read_clock(unit);
    // Acquire: pairs with the release in `request`, which comes after the queue's own word was written.
    std::uint32_t const requests = simt::atomic<M, simt::scope::system>(unit.requests).load(simt::order::acquire);
    bool const asked = requests != unit.requests_handled;
    bool unanswered = false;
    bool worked = false;
    for (std::uint32_t word = 0; word < words_per_unit_; ++word) {
      // Acquire: pairs with the release in `attach_submission_queue`.
      std::uint32_t const active =
          simt::atomic<M, simt::scope::system>(active_[std::size_t{unit_index} * words_per_unit_ + word])
              .load(simt::order::acquire);
      for (std::uint32_t bit = 0; bit < 32 && active >> bit != 0; ++bit) {
        if ((active >> bit & 1) == 0) continue;
        submission_queue& sq = sqs_[(word * 32 + bit) * options_.units + unit_index + 1];
        if (asked) {
          bool detached = false;
          if (!answer(unit, sq, detached)) unanswered = true;
          worked = true;
          if (detached) continue;
        }
        if (post_due(unit, sq)) worked = true;
        if (fetch(unit, sq)) {
          worked = true;
          read_clock(unit);
          post_due(unit, sq);
        }
      }
    }
    if (!unanswered) unit.requests_handled = requests;
    return worked;
  }

  /// When the next completion of the unit becomes due, on `M::clock_ns()`; `simt::no_deadline` when none will. One that
  /// was due at the last visit already waits for its completion queue, not for time.
  FOREBAY_DEVICE std::uint64_t next_due_ns(std::uint32_t unit_index) {
    std::uint64_t next_ps = never_ps;
    for (std::uint32_t id = unit_index + 1; id <= options_.max_queues; id += options_.units) {
      // Acquire: pairs with the release in `attach_submission_queue`.
      std::uint32_t const active = simt::atomic<M, simt::scope::system>(active_word(id)).load(simt::order::acquire);
      if ((active & active_bit(id)) == 0) continue;
      std::uint64_t const due_ps = sqs_[id].pending.next_due_ps();
      if (due_ps > units_[unit_index].now_ps && due_ps < next_ps) next_ps = due_ps;
    }
    return next_ps == never_ps ? simt::no_deadline : options_.epoch_ns + (next_ps + 999) / 1000;
  }

 private:
  /// `count` value-initialised objects in memory of a resource.
  template <class T>
  class array {
   public:
    array(memory::resource& from, std::size_t count)
        : memory_(from, (count == 0 ? 1 : count) * sizeof(T), alignof(T) < 128 ? 128 : alignof(T)),
          data_(memory_.template as<T>()) {
      static_assert(std::is_trivially_destructible_v<T>);
      std::uninitialized_value_construct_n(data_, count);
    }
    FOREBAY_DEVICE T* data() const { return data_; }
    FOREBAY_DEVICE T& operator[](std::size_t i) const { return data_[i]; }
    memory::resource& from() const { return memory_.from(); }

   private:
    memory::allocation memory_;
    T* data_;
  };

  struct alignas(128) unit_state {
    std::uint32_t requests = 0;  ///< the host adds one for each request
    alignas(128) std::uint32_t requests_handled = 0;
    std::uint64_t now_ps = 0;  ///< not after the present
    // The batch at hand.
    nvme::submission_entry entries[batch_entries];
    decoded_command decoded[batch_entries];
    timed_command timed[batch_entries];
    std::uint64_t channel_ps[timing_parameters::max_channels];
    std::uint64_t posted_due_ps[batch_entries];
    nvme::dataset_management_range ranges[256];
    statistics stats;
  };

  FOREBAY_DEVICE std::uint32_t& active_word(std::uint32_t sq_id) {
    std::uint32_t const slot = (sq_id - 1) / options_.units;
    return active_[std::size_t{(sq_id - 1) % options_.units} * words_per_unit_ + slot / 32];
  }
  FOREBAY_DEVICE std::uint32_t active_bit(std::uint32_t sq_id) const {
    return std::uint32_t{1} << (sq_id - 1) / options_.units % 32;
  }
  FOREBAY_DEVICE void read_clock(unit_state& unit) { unit.now_ps = (M::clock_ns() - options_.epoch_ns) * 1000; }

  template <class Caller>
  void request(std::uint32_t sq_id, std::uint32_t what) {
    // Relaxed: the release below publishes it.
    simt::atomic<Caller, simt::scope::system>(sqs_[sq_id].request).store(what, simt::order::relaxed);
    // Release: pairs with the unit's acquire of the same word in `step`.
    simt::atomic<Caller, simt::scope::system>(units_[(sq_id - 1) % options_.units].requests)
        .fetch_add(1, simt::order::release);
  }

  /// Serves the host's request for a queue, if there is one. False: not yet possible, try again.
  FOREBAY_DEVICE bool answer(unit_state& unit, submission_queue& sq, bool& detached) {
    auto const word = simt::atomic<M, simt::scope::system>(sq.request);
    // Relaxed: `step` acquired the count of requests.
    std::uint32_t const what = word.load(simt::order::relaxed);
    std::uint32_t reply = queue_request::done;
    if (what == queue_request::detach || what == queue_request::detach_silently) {
      if (what == queue_request::detach && !abort_all(unit, sq)) return false;
      count<M>(unit.stats.commands.dropped, sq.pending.size());
      // Relaxed: only this unit reads the bit, and the reply below releases.
      simt::atomic<M, simt::scope::system>(active_word(sq.id)).fetch_and(~active_bit(sq.id), simt::order::relaxed);
      detached = true;
    } else if ((what & queue_request::abort_flag) != 0) {
      pending_command command;
      if (sq.pending.take(static_cast<std::uint16_t>(what), command)) {
        push_aborted(unit, sq, command, nvme::generic_status::command_abort_requested);
        reply = queue_request::done_found;
      }
    } else {
      return true;
    }
    // Release: pairs with the acquire in `answered`.
    word.store(reply, simt::order::release);
    return true;
  }

  FOREBAY_DEVICE void push_aborted(unit_state& unit, submission_queue& sq, pending_command& command,
                                   nvme::generic_status why) {
    if (command.held != pending_command::not_held) sq.release(command.held);
    command = {.due_ps = unit.now_ps,
               .command_id = command.command_id,
               .status_field = nvme::status_field(why),
               .timed = false};
    sq.pending.push(command);
  }

  /// Completes everything in flight as aborted, as far as the completion queue has room. False: it is locked.
  FOREBAY_DEVICE bool abort_all(unit_state& unit, submission_queue& sq) {
    completion_queue& cq = cqs_[sq.cq_id];
    if (sq.pending.empty()) return true;
    if (!cq.template try_lock<M>()) return false;
    std::uint32_t free = 0;
    cq.template free_entries<M>(free);
    std::uint32_t posted = 0;
    for (; posted < free && !sq.pending.empty(); ++posted) {
      pending_command const command = sq.pending.pop();
      cq.template post<M>(0, nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(sq.head), sq.id),
                          command.command_id,
                          nvme::status_field(nvme::generic_status::command_aborted_due_to_sq_deletion));
    }
    cq.template unlock<M>();
    count<M>(unit.stats.commands.completions_posted, posted);
    return true;
  }

  /// Fetches what is new in a queue, up to a batch, and takes it as far as its due time. Whether there was anything.
  FOREBAY_DEVICE bool fetch(unit_state& unit, submission_queue& sq) {
    if (sq.head == sq.seen_tail && !poll(unit, sq)) return false;
    std::uint32_t n = sq.seen_tail > sq.head ? sq.seen_tail - sq.head : sq.seen_tail + sq.size - sq.head;
    if (n > batch_entries) n = batch_entries;
    if (n > sq.pending.free()) n = sq.pending.free();
    if (n == 0) return false;

    for (std::uint32_t i = 0; i < n; ++i) {
      load(unit.entries[i], sq.entries + sq.head);
      sq.head = sq.head + 1 == sq.size ? 0 : sq.head + 1;
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      decoded_command const& command = unit.decoded[i] = decode(unit.entries[i], drive_, options_.max_transfer_bytes);
      unit.timed[i] = {.offset_bytes = command.offset_bytes,
                       .bytes = command.bytes,
                       .sequence = (std::uint64_t{sq.id} << 48) + sq.fetched++,
                       .op = command.op,
                       .charged = command.status_field == 0};
    }
    bool const immediate = options_.timing.immediate();
    if (immediate) {
      for (std::uint32_t i = 0; i < n; ++i) unit.timed[i].target_ps = sq.arrival_ps;
    } else {
      timing_.assign(unit.timed, n, sq.arrival_ps, unit.channel_ps);
    }
    constexpr std::uint32_t ahead = 4;
    for (std::uint32_t i = 0; i < ahead && i < n; ++i) prefetch(unit, i);
    for (std::uint32_t i = 0; i < n; ++i) {
      if (i + ahead < n) prefetch(unit, i + ahead);
      start(unit, sq, i, immediate);
    }
    count<M>(unit.stats.commands.fetches);
    count<M>(unit.stats.commands.commands_fetched, n);
    return true;
  }

  /// Takes a submission entry over from the client's ring into memory that the unit alone uses.
  FOREBAY_DEVICE static void load(nvme::submission_entry& entry, nvme::submission_entry const* from) {
    auto const* const words = reinterpret_cast<simt::vec16 const*>(from);
    auto* const to = reinterpret_cast<std::byte*>(&entry);
    for (std::uint32_t i = 0; i < sizeof entry / sizeof(simt::vec16); ++i) {
      simt::vec16 const word = M::ld(words + i);
      std::memcpy(to + i * sizeof word, &word, sizeof word);
    }
  }

  /// Reads the tail doorbell. Whether it names entries that were not seen before.
  FOREBAY_DEVICE bool poll(unit_state& unit, submission_queue& sq) {
    // Acquire: pairs with the client's release before it rings the tail doorbell; the entries are visible.
    std::uint32_t const tail = simt::atomic<M, simt::scope::system>(*sq.tail_doorbell).load(simt::order::acquire);
    if (tail >= sq.size) {
      if (tail != sq.bad_tail) count<M>(unit.stats.commands.invalid_doorbells);
      sq.bad_tail = tail;
      return false;
    }
    std::uint64_t const last_ps = sq.last_poll_ps == never_ps ? unit.now_ps : sq.last_poll_ps;
    sq.last_poll_ps = unit.now_ps;
    if (tail == sq.head) return false;
    sq.seen_tail = tail;
    sq.arrival_ps = last_ps;
    unit.stats.poll_gap.template record<M>((unit.now_ps - last_ps) / 1000);
    return true;
  }

  /// Executes entry `i` of the batch, now or later as faults and timing want, and enters its completion.
  FOREBAY_DEVICE void start(unit_state& unit, submission_queue& sq, std::uint32_t i, bool immediate) {
    nvme::submission_entry const& entry = unit.entries[i];
    decoded_command const& command = unit.decoded[i];
    pending_command pending{.due_ps = unit.timed[i].target_ps,
                            .command_id = entry.command_id(),
                            .status_field = command.status_field,
                            .timed = !immediate && command.status_field == 0};
    if (command.status_field == 0 && options_.faults.any()) {
      injected_fault const fault = options_.faults.at(unit.timed[i].sequence);
      pending.status_field = fault.status_field;
      pending.due_ps = fault.withheld ? never_ps : pending.due_ps + fault.delay_ps;
      if (fault.status_field != 0) count<M>(unit.stats.commands.injected_errors);
      if (fault.delay_ps != 0) count<M>(unit.stats.commands.injected_delays);
      if (fault.withheld) count<M>(unit.stats.commands.withheld);
      if (options_.faults.late_data && (fault.withheld || fault.delay_ps != 0)) pending.held = sq.hold(entry);
    }
    if (pending.status_field != 0) {
      count<M>(unit.stats.commands.failed_commands);
    } else if (pending.held == pending_command::not_held) {
      execute(unit, entry, command, pending);
    }
    sq.pending.push(pending);
  }

  /// Does what a valid command asks for, and sets status and result in `pending`.
  FOREBAY_DEVICE void execute(unit_state& unit, nvme::submission_entry const& entry, decoded_command const& command,
                              pending_command& pending) {
    using nvme::io_opcode;
    counters& stats = unit.stats.commands;
    dma_segment* const segments =
        segments_.data() + static_cast<std::size_t>(&unit - units_.data()) * segments_per_unit_;
    std::uint32_t segment_count = 0;
    if (command.transfer_bytes != 0) {
      prp_walk const walk =
          walk_prps<M>(regions_, entry.prp1, entry.prp2, command.transfer_bytes, options_.page_bytes, segments);
      if (walk.status_field != 0) {
        pending.status_field = walk.status_field;
        count<M>(stats.failed_commands);
        return;
      }
      segment_count = walk.count;
    }
    switch (command.opcode) {
      case io_opcode::read:
        drive_.template read<M>(command.offset_bytes, segments, segment_count);
        count<M>(stats.read_commands);
        count<M>(stats.bytes_read, command.bytes);
        break;
      case io_opcode::write:
        drive_.template write<M>(command.offset_bytes, segments, segment_count);
        count<M>(stats.write_commands);
        count<M>(stats.bytes_written, command.bytes);
        break;
      case io_opcode::compare:
        count<M>(stats.other_commands);
        if (!drive_.template equal<M>(command.offset_bytes, segments, segment_count)) {
          pending.status_field =
              static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::compare_failure) | nvme::do_not_retry);
          count<M>(stats.failed_commands);
        }
        break;
      case io_opcode::write_zeroes:
        drive_.template zero<M>(command.offset_bytes, command.bytes);
        count<M>(stats.other_commands);
        break;
      case io_opcode::dataset_management:
        count<M>(stats.other_commands);
        pending.status_field = deallocate(unit, entry, segments, segment_count);
        if (pending.status_field != 0) count<M>(stats.failed_commands);
        break;
      default:  // flush
        count<M>(stats.flush_commands);
        if (drive_.sync == nullptr) break;
        // Release: pairs with the host's acquire of the same word; the writes before this Flush are in the mapping.
        pending.result =
            simt::atomic<M, simt::scope::system>(drive_.sync->requested).fetch_add(1, simt::order::release) + 1;
        pending.waits_for_sync = true;
        pending.timed = false;
        break;
    }
  }

  FOREBAY_DEVICE std::uint16_t deallocate(unit_state& unit, nvme::submission_entry const& entry,
                                          dma_segment const* segments, std::uint32_t segment_count) {
    if ((entry.cdw11 & nvme::cdw11_attribute_deallocate) == 0) return 0;  // the other attributes are hints
    // Words, because PRP entries are aligned to no more than that; stored untracked, because the unit alone reads them.
    auto* to = reinterpret_cast<std::byte*>(unit.ranges);
    for (std::uint32_t i = 0; i < segment_count; ++i) {
      auto const* const from = reinterpret_cast<std::uint32_t const*>(segments[i].address);
      for (std::uint64_t at = 0; at < segments[i].bytes / 4; ++at, to += 4) {
        std::uint32_t const word = M::ld(from + at);
        std::memcpy(to, &word, sizeof word);
      }
    }
    std::uint32_t const n = (entry.cdw10 & 0xff) + 1;
    std::uint64_t const blocks = drive_.blocks();
    for (std::uint32_t i = 0; i < n; ++i) {
      nvme::dataset_management_range const& range = unit.ranges[i];
      if (range.slba > blocks || range.length_blocks > blocks - range.slba) {
        return static_cast<std::uint16_t>(nvme::status_field(nvme::generic_status::lba_out_of_range) |
                                          nvme::do_not_retry);
      }
    }
    for (std::uint32_t i = 0; i < n; ++i) {
      nvme::dataset_management_range const& range = unit.ranges[i];
      drive_.template zero<M>(range.slba * drive_.block_bytes, std::uint64_t{range.length_blocks} * drive_.block_bytes);
    }
    return 0;
  }

  /// Posts the commands of a queue that are due, in due order, as far as its completion queue has room. Whether any
  /// was.
  FOREBAY_DEVICE bool post_due(unit_state& unit, submission_queue& sq) {
    if (sq.pending.next_due_ps() > unit.now_ps) return false;
    completion_queue& cq = cqs_[sq.cq_id];
    if (!cq.template try_lock<M>()) return false;
    std::uint32_t free = 0;
    if (!cq.template free_entries<M>(free)) count<M>(unit.stats.commands.invalid_doorbells);
    std::uint32_t posted = 0;
    std::uint32_t timed = 0;
    while (posted < free && timed < batch_entries && sq.pending.next_due_ps() <= unit.now_ps) {
      pending_command command = sq.pending.pop();
      if (command.held != pending_command::not_held) {
        nvme::submission_entry const& entry = sq.held[command.held];
        execute(unit, entry, decode(entry, drive_, options_.max_transfer_bytes), command);
        sq.release(command.held);
        command.held = pending_command::not_held;
      }
      if (command.waits_for_sync && !synced(command)) {
        // Looked at again after a while, so that it does not hold up the others.
        command.due_ps = unit.now_ps + sync_poll_ps;
        sq.pending.push(command);
        continue;
      }
      cq.template post<M>(command.result, nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(sq.head), sq.id),
                          command.command_id, command.status_field);
      ++posted;
      if (command.timed) unit.posted_due_ps[timed++] = command.due_ps;
    }
    bool const waiting = sq.pending.next_due_ps() <= unit.now_ps && posted == free;
    cq.template unlock<M>();
    if (posted != 0) count<M>(unit.stats.commands.completions_posted, posted);
    if (waiting) count<M>(unit.stats.commands.completions_blocked);
    if (timed != 0) {
      read_clock(unit);  // after the stores: the lateness of all of them, rounded up
      if (!sq.blocked) {
        for (std::uint32_t i = 0; i < timed; ++i) {
          unit.stats.lateness.template record<M>((unit.now_ps - unit.posted_due_ps[i]) / 1000);
        }
      }
    }
    sq.blocked = waiting;
    return posted != 0;
  }

  /// Whether the host has written back what a Flush covers; sets its status.
  FOREBAY_DEVICE bool synced(pending_command& command) {
    // Acquire: pairs with the host's release; its failure flag is visible.
    std::uint32_t const completed =
        simt::atomic<M, simt::scope::system>(drive_.sync->completed).load(simt::order::acquire);
    if (static_cast<std::int32_t>(completed - command.result) < 0) return false;
    command.result = 0;
    // Relaxed: ordered by the acquire above.
    if (simt::atomic<M, simt::scope::system>(drive_.sync->failed).load(simt::order::relaxed) != 0) {
      command.status_field = nvme::status_field(nvme::media_status::write_fault);
    }
    return true;
  }

  /// Brings the bytes that entry `i` of the batch moves towards the caches of a CPU.
  FOREBAY_DEVICE void prefetch([[maybe_unused]] unit_state& unit, [[maybe_unused]] std::uint32_t i) const {
    if constexpr (std::is_same_v<M, simt::native>) {
      decoded_command const& command = unit.decoded[i];
      if (command.status_field != 0 || command.transfer_bytes == 0 || command.bytes == 0 || drive_.data == nullptr) {
        return;
      }
      std::uint64_t const bytes = command.bytes < 512 ? command.bytes : 512;
      for (std::uint64_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(drive_.data + command.offset_bytes + at);
      }
    }
  }

  static constexpr std::uint64_t sync_poll_ps = 20'000'000;

  engine_options options_;
  media drive_;
  dma_region_table regions_;
  std::uint32_t words_per_unit_;
  array<submission_queue> sqs_;
  array<completion_queue> cqs_;
  array<unit_state> units_;
  array<std::uint32_t> active_;
  array<std::uint64_t> next_free_ps_;
  std::uint32_t segments_per_unit_;
  array<dma_segment> segments_;
  std::unique_ptr<memory::allocation[]> storage_;
  timing_model<M> timing_;
};

}  // namespace forebay::emulator
