// SPDX-License-Identifier: Apache-2.0
//! \file
//! The I/O engine of an emulated drive: fetches submission entries, times them, moves the data and posts completions.
//! It has no admin queue: its owner attaches queues by address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "forebay/detail/emulator/dispatcher.hpp"
#include "forebay/detail/emulator/dispatcher_mailbox.hpp"
#include "forebay/detail/emulator/dispatcher_scratch.hpp"
#include "forebay/detail/emulator/engine_options.hpp"
#include "forebay/detail/emulator/engine_view.hpp"
#include "forebay/detail/emulator/flash_state.hpp"
#include "forebay/detail/emulator/io_engine.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/pending_set.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// A drive's service units on machine `M`; `Host` is the machine of the threads that own the engine. On the CPU one
/// thread at a time (or one agent of a schedule) steps each unit, always the same one unless
/// `engine_options::waiters_serve`; if dispatchers are warps, a kernel runs them on
/// `view()`.
///
/// Fault plan and jitter identify a command by (submission queue id << 48) + the number of commands before it in the
/// queue.
template <class M, class Host = simt::native>
class engine final : public io_engine {
 public:
  /// State lies in `state_memory`; what `drive` points to must outlive the engine. Throws `operation_failed` once
  /// `cancel` says so, since writing the flash of a large drive takes minutes.
  engine(engine_options const& options, media const& drive, memory::resource& state_memory = memory::host(),
         std::stop_token const& cancel = {})
      : memory_(state_memory),
        near_(state_memory.kind() != memory::kind::device),
        mailboxes_(state_memory, options.dispatchers()),
        submission_queues_(state_memory, std::size_t{options.dispatchers()} * options.queues_per_dispatcher()),
        completion_queues_(state_memory, options.queue_slots),
        answers_(state_memory, options.queue_slots),
        statistics_(state_memory, options.units),
        words_(state_memory, 1),
        lagging_(state_memory, options.faults.data_after_completion_ppm != 0 ? options.dispatchers() : 0),
        next_free_ps_(state_memory, timing_parameters::max_channels),
        scratch_(state_memory, M::blocks_bring_scratch ? 0 : options.dispatchers()),
        segments_(state_memory, std::size_t{options.dispatchers()} *
                                    max_segments(options.max_transfer_bytes, options.page_bytes_min)),
        submission_slots_(options.queue_slots),
        completion_slots_(options.queue_slots),
        posted_(options.dispatchers()) {
    view_.options = options;
    view_.drive = drive;
    if (options.timing.flash.channels != 0) {
      flash_ = std::make_unique<flash_state<M>>(options.timing.flash, drive.bytes, options.timing.seed, state_memory,
                                                cancel);
    }
    view_.timing = timing_model<M>(options.timing, next_free_ps_.data(), options.link_free_ps,
                                   flash_ ? flash_->model() : nullptr, flash_ ? flash_->geometry() : flash_geometry{});
    view_.mailboxes = mailboxes_.data();
    view_.submission_queues = submission_queues_.data();
    view_.completion_queues = completion_queues_.data();
    view_.answers = answers_.data();
    view_.unit_statistics = statistics_.data();
    view_.words = words_.data();
    if (options.faults.data_after_completion_ppm != 0) view_.lagging = lagging_.data();
    view_.segments = segments_.data();
    view_.segments_per_dispatcher = max_segments(options.max_transfer_bytes, options.page_bytes_min);
    if constexpr (M::reaches_files) {
      for (std::uint32_t i = 0; drive.pieces != nullptr && i < options.dispatchers(); ++i) {
        media_owned_.push_back(std::make_unique<medium_commands>(
            *drive.pieces, options.waiters_serve ? port_use::by_any_thread : port_use::by_one_thread));
        in_medium_.push_back(media_owned_.back().get());
      }
      view_.in_medium = in_medium_.data();
    }
  }

  engine_options const& options() const { return view_.options; }
  engine_view<M> const& view() const { return view_; }

  // Host side ---------------------------------------------------------------------------------------------------------

  void attach_completion_queue(completion_queue_addresses const& queue) override {
    write(completion_queues_[queue.slot], completion_queue(queue));
    completion_slots_[queue.slot] = {.size = queue.size};
  }

  void attach_submission_queue(submission_queue_addresses const& queue) override {
    submission_slot& mine = submission_slots_[queue.slot];
    completion_slot& cq = completion_slots_[queue.cq_slot];
    mine.cq_slot = queue.cq_slot;
    dispatcher_request request{.what = dispatcher_request::kind::attach, .slot = queue.slot, .queue = queue};
    if (cq.users == 0) {
      cq.owner_slot = queue.slot;
      cq.owned = request.owns_cq = true;
    } else if (cq.owned && view_.options.dispatchers_per_unit == 1 &&
               dispatcher_of(cq.owner_slot) == dispatcher_of(queue.slot)) {
      request.owns_cq = true;
    } else if (cq.owned) {
      // Until now its dispatcher posted without the lock.
      for (std::uint32_t slot = 0; slot < submission_slots_.size(); ++slot) {
        if (submission_slots_[slot].attached && submission_slots_[slot].cq_slot == queue.cq_slot) {
          post(slot, {.what = dispatcher_request::kind::share_cq, .slot = slot});
          cq.shared_slot = slot;
        }
      }
      cq.shared_ticket = submission_slots_[cq.shared_slot].ticket;
      cq.owned = false;
    }
    if (!request.owns_cq) {
      request.waits = true;
      request.after_slot = cq.shared_slot;
      request.after_ticket = cq.shared_ticket;
    }
    ++cq.users;
    mine.attached = true;
    // As many in flight as the completion queue can take: more would have to wait there anyway.
    std::uint32_t const wanted = queue.size > cq.size ? queue.size : cq.size;
    std::uint32_t capacity = 32;
    while (capacity < wanted && capacity < 32768) capacity *= 2;
    bool const holds = view_.options.faults.holds_commands();
    std::size_t const held_bytes = holds ? capacity * sizeof(nvme::submission_entry) : 0;
    mine.storage = take_storage(held_bytes + pending_set<M>::storage_bytes(capacity));
    request.held = holds ? mine.storage.template as<nvme::submission_entry>() : nullptr;
    request.pending_storage = mine.storage.template as<std::byte>() + held_bytes;
    request.pending_commands = capacity;
    post(queue.slot, request);
  }

  bool begin_detach(std::uint32_t sq_slot, bool silently) override {
    if (!has_room(sq_slot)) return false;
    submission_slots_[sq_slot].leaving = true;
    post(sq_slot, {.what = silently ? dispatcher_request::kind::detach_silently : dispatcher_request::kind::detach,
                   .slot = sq_slot});
    return true;
  }

  void begin_abort(std::uint32_t sq_slot, std::uint16_t command_id) override {
    post(sq_slot, {.what = dispatcher_request::kind::abort, .slot = sq_slot, .command_id = command_id});
  }

  bool answered(std::uint32_t sq_slot, bool* found = nullptr) override {
    submission_slot& mine = submission_slots_[sq_slot];
    // Acquire: pairs with the dispatcher's release when it answers; it is done with the queue's memory.
    std::uint32_t const answer = read_word(answers_[sq_slot]);
    if (answer >> 1 != (mine.ticket & ~std::uint32_t{0} >> 1)) return false;
    if (found != nullptr) *found = (answer & 1) != 0;
    if (mine.leaving) {
      completion_slot& cq = completion_slots_[mine.cq_slot];
      if (--cq.users == 0) cq.owned = false;
      storage_[mine.storage.size_bytes()].push_back(std::move(mine.storage));
      mine.attached = mine.leaving = false;
    }
    return true;
  }

  void order_data() override {
    if (view_.lagging == nullptr) return;
    for (std::uint32_t i = 0; i < view_.dispatchers(); ++i) {
      // Acquire, both. The first: the caller saw a completion, before which its batch was announced. The second pairs
      // with the dispatcher's release: the data is there.
      std::uint32_t const announced = read_word(lagging_[i].announced);
      bool const moved =
          Host::wait_until([&] { return static_cast<std::int32_t>(read_word(lagging_[i].moved) - announced) >= 0; },
                           Host::clock_ns() + patience_ns);
      if (!moved) throw operation_failed("the I/O engine does not move its data: its service units are not running");
    }
  }

  std::uint64_t invalid_doorbells() override { return read_word(words_[0].invalid_doorbells); }

  void collect(statistics& sum) override {
    auto const copy = near_ ? nullptr : std::make_unique<statistics>();
    for (std::uint32_t unit = 0; unit < view_.options.units; ++unit) {
      statistics* from = &statistics_[unit];
      if (copy) {
        memory_.copy_out(copy.get(), from, sizeof *from);
        from = copy.get();
      }
      counters::for_each([&](char const*, std::uint64_t counters::* counter) {
        // Relaxed: pairs with nothing; see `count`.
        sum.commands.*counter +=
            simt::atomic<Host, simt::scope::system>(from->commands.*counter).load(simt::order::relaxed);
      });
      statistics::for_each_histogram(
          [&](char const*, histogram statistics::* member) { (sum.*member).template merge<Host>((*from).*member); });
    }
    sum.commands.invalid_doorbells += invalid_doorbells();
    if (flash_) flash_->template collect<Host>(sum.flash);
  }

  // Unit side, where a unit is one dispatcher
  // ---------------------------------------------------------------------------

  /// One visit of service unit `unit` to each of its queues. Returns whether it did anything.
  bool step(std::uint32_t unit) { return at(unit).step(); }

  /// Called by the unit's thread, or agent, after its last step. Waits until a medium no longer uses clients' memory.
  void finish(std::uint32_t unit) { at(unit).leave_medium(); }

  /// When the next completion of the unit becomes due, on `M::clock_ns()`; `simt::no_deadline` if none will. A
  /// completion that was due at the last step, when that step did nothing, waits for its completion queue, not for
  /// time.
  std::uint64_t next_due_ns(std::uint32_t unit) { return at(unit).next_due_ns(); }

  /// Whether the drive's medium has commands of the unit.
  bool has_in_medium(std::uint32_t unit) const { return !in_medium_.empty() && in_medium_[unit]->in_flight() != 0; }
  /// Waits until the drive's medium has done a command of the unit, or for `most_ns`. It may return earlier. Any thread
  /// may call it meanwhile, and may step the unit; there must be a medium.
  void wait_for_medium(std::uint32_t unit, std::uint64_t most_ns) { in_medium_[unit]->wait(most_ns); }

  dispatcher<M> at(std::uint32_t index) {
    return {view_,
            index,
            scratch_[index],
            {.queues = view_.submission_queues + std::size_t{index} * view_.queues_per_dispatcher()}};
  }

 private:
  /// `count` value-initialised objects in memory of a resource.
  template <class T>
  class array {
   public:
    array(memory::resource& from, std::size_t count)
        : memory_(from, (count == 0 ? 1 : count) * sizeof(T), alignof(T) < 128 ? 128 : alignof(T)) {
      static_assert(std::is_trivially_destructible_v<T>);
      if (from.kind() != memory::kind::device) {
        std::uninitialized_value_construct_n(data(), count);
        return;
      }
      std::vector<T> const fresh(count < piece ? count : piece);
      for (std::size_t i = 0; i < count; i += piece) {
        from.copy_in(data() + i, fresh.data(), (count - i < piece ? count - i : piece) * sizeof(T));
      }
    }
    T* data() const { return memory_.template as<T>(); }
    T& operator[](std::size_t i) const { return data()[i]; }

   private:
    static constexpr std::size_t piece = sizeof(T) > 65536 ? 1 : 65536 / sizeof(T);
    memory::allocation memory_;
  };

  struct submission_slot {
    bool attached = false;
    bool leaving = false;
    std::uint32_t cq_slot = 0;
    std::uint32_t ticket = 0;
    memory::allocation storage;
  };
  struct completion_slot {
    std::uint32_t size = 0;
    std::uint32_t users = 0;
    std::uint32_t owner_slot = 0;  ///< one of the users
    bool owned = false;            ///< all its users belong to one dispatcher
    // Set when that ended: the answer that says that the dispatcher knows.
    std::uint32_t shared_slot = 0;
    std::uint32_t shared_ticket = 0;
  };

  std::uint32_t dispatcher_of(std::uint32_t slot) const { return slot % view_.dispatchers(); }

  bool has_room(std::uint32_t slot) {
    std::uint32_t const index = dispatcher_of(slot);
    // Acquire: pairs with the dispatcher's release; it has read the request that the next one replaces.
    return posted_[index] - read_word(mailboxes_[index].handled) < dispatcher_mailbox::capacity;
  }

  /// Posts a request. If the dispatcher's mailbox is full, waits.
  void post(std::uint32_t slot, dispatcher_request request) {
    std::uint32_t const index = dispatcher_of(slot);
    std::uint32_t& posted = posted_[index];
    dispatcher_mailbox& mail = mailboxes_[index];
    bool const fits = Host::wait_until([&] { return has_room(slot); }, Host::clock_ns() + patience_ns);
    if (!fits) throw operation_failed("the I/O engine does not answer: its service units are not running");
    request.ticket = ++submission_slots_[slot].ticket;
    write(mail.ring[posted % dispatcher_mailbox::capacity], request);
    ++posted;
    if (near_) {
      // Release: pairs with the dispatcher's acquire; the request is visible.
      simt::atomic<Host, simt::scope::system>(mail.posted).store(posted, simt::order::release);
    } else {
      write(mail.posted, posted);  // the copy above has ended
    }
  }

  /// Storage of a former queue, for reuse: memory of a GPU cannot be freed while a kernel runs.
  memory::allocation take_storage(std::size_t bytes) {
    auto& free = storage_[bytes];
    if (free.empty()) return memory::allocation(memory_, bytes, 128);
    memory::allocation taken = std::move(free.back());
    free.pop_back();
    return taken;
  }

  template <class T>
  void write(T& to, T const& value) {
    if (near_) {
      to = value;
    } else {
      memory_.copy_in(&to, &value, sizeof value);
    }
  }
  template <class T>
  T read_word(T& word) {
    // Acquire: the callers say what it pairs with. A copy out of a GPU's memory is ordered by itself.
    if (near_) return simt::atomic<Host, simt::scope::system>(word).load(simt::order::acquire);
    T value;
    memory_.copy_out(&value, &word, sizeof value);
    return value;
  }

  static constexpr std::uint64_t patience_ns = 10'000'000'000;

  memory::resource& memory_;
  bool const near_;  ///< whether host threads reach the state by loads and stores
  array<dispatcher_mailbox> mailboxes_;
  array<submission_queue<M>> submission_queues_;
  array<completion_queue> completion_queues_;
  array<std::uint32_t> answers_;
  array<statistics> statistics_;
  array<engine_words> words_;
  array<lagging_data> lagging_;
  array<std::uint64_t> next_free_ps_;
  array<dispatcher_scratch> scratch_;
  array<dma_segment> segments_;
  std::unique_ptr<flash_state<M>> flash_;  ///< null: the drive has no flash model
  engine_view<M> view_;
  std::vector<std::unique_ptr<medium_commands>> media_owned_;
  std::vector<medium_commands*> in_medium_;

  std::vector<submission_slot> submission_slots_;
  std::vector<completion_slot> completion_slots_;
  std::vector<std::uint32_t> posted_;
  std::map<std::size_t, std::vector<memory::allocation>> storage_;
};

}  // namespace forebay::emulator
