// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the schedule tests know better than the code under test: which side owns which part of a queue, what every NVMe
//! command must look like, and which value each doorbell may have. Client and drive run on machines that report their
//! accesses here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/queue/queue_pair_state.hpp"
#include "forebay/detail/simt/fiber.hpp"

#if defined(__SANITIZE_THREAD__)
extern "C" {
void AnnotateIgnoreReadsBegin(char const*, int);
void AnnotateIgnoreReadsEnd(char const*, int);
void AnnotateIgnoreWritesBegin(char const*, int);
void AnnotateIgnoreWritesEnd(char const*, int);
}
#endif

namespace forebay::test {

/// The tests' own books are not part of the program in which races are looked for.
class unobserved {
 public:
#if defined(__SANITIZE_THREAD__)
  unobserved() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~unobserved() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  unobserved() {}
#endif
  unobserved(unobserved const&) = delete;
  unobserved& operator=(unobserved const&) = delete;
};

/// One NVMe command of a schedule. Its index is in its LBA, whatever its opcode.
struct planned_command {
  enum class state : std::uint8_t { planned, submitting, fetched, posted, cancelled };

  nvme::io_opcode opcode = nvme::io_opcode::flush;
  std::uint64_t slba = 0;
  std::uint32_t blocks = 0;  ///< 0 for a flush
  std::uint64_t buffer_offset_bytes = 0;
  state where = state::planned;
  std::uint16_t must_fail_with = 0;  ///< what the fault plan injects
  bool withheld = false;
  std::uint16_t posted_status = 0;
};

class audit {
 public:
  /// \param pairs where the client keeps queue pair `i`; \param rings its rings, of queue id i + 1.
  audit(std::span<queue_pair_state> pairs, std::span<queue_pair_rings const> rings, emulator::fault_plan const& faults,
        std::vector<planned_command>& commands, std::uint32_t lba_stride, std::uint32_t lanes)
      : pairs_(pairs), faults_(faults), commands_(commands), lba_stride_(lba_stride), held_(lanes) {
    for (std::size_t i = 0; i < rings.size(); ++i) {
      queue& q = queues_.emplace_back();
      q.state = &pairs[i];
      q.rings = rings[i];
      q.published.resize(rings[i].sq_entries);
      q.in_flight.assign(rings[i].cq_entries, none);
    }
  }

  /// The audit of the schedule that this OS thread runs.
  static audit*& current() {
    thread_local audit* now = nullptr;
    return now;
  }

  // The client's side
  // --------------------------------------------------------------------------------------------------

  void submitting(std::uint32_t command) {
    unobserved const quiet;
    commands_[command].where = planned_command::state::submitting;
  }

  void before_doorbell(std::uint32_t const* doorbell, std::uint32_t value) {
    unobserved const quiet;
    for (queue& q : queues_) {
      if (doorbell == q.rings.sq_doorbell) {
        check(!q.sq_ringing, "Q3: two threads write a submission doorbell at once");
        q.sq_ringing = true;
        check(value < q.rings.sq_entries, "Q3: submission doorbell beyond the ring");
        std::uint32_t const steps = distance(q.rung, value, q.rings.sq_entries);
        check(steps != 0, "Q3: a submission doorbell that says nothing new");
        for (std::uint32_t k = 0; k < steps; ++k, ++q.rung) {
          std::size_t const slot = q.rung % q.rings.sq_entries;
          check(q.published[slot], "Q3: submission doorbell backwards, or past an entry that was not published");
          q.published[slot] = false;
        }
        ++q.sq_doorbell_writes;
      } else if (doorbell == q.rings.cq_doorbell) {
        check(!q.cq_ringing, "Q6: two threads write a completion doorbell at once");
        q.cq_ringing = true;
        check(value < q.rings.cq_entries, "Q6: completion doorbell beyond the ring");
        q.consumed += distance(q.consumed, value, q.rings.cq_entries);
        check(q.consumed <= q.posted, "Q6: completion doorbell past the entries that the drive has posted");
        check(q.consumed <= q.delivered, "Q6: completion doorbell past the entries whose commands were delivered");
      }
    }
  }
  void after_doorbell(std::uint32_t const* doorbell) {
    unobserved const quiet;
    for (queue& q : queues_) {
      if (doorbell == q.rings.sq_doorbell) q.sq_ringing = false;
      if (doorbell == q.rings.cq_doorbell) q.cq_ringing = false;
    }
  }

  /// A lane stored `value` over `before`.
  void stored(void const* address, std::uint64_t value, std::uint64_t before) {
    unobserved const quiet;
    for (queue& q : queues_) {
      if (address == &q.state->cq_head) {
        check((before & queue_pair_state::taken) != 0, "Q4: the completion ring is let go of, but nobody held it");
        --held();
      } else if (std::size_t slot = 0; value != 0 && index_in(q.state->published, q.rings.sq_entries, address, slot)) {
        for (std::uint64_t k = 0; k < value; ++k) {
          std::size_t const at = (slot + k) % q.rings.sq_entries;
          check(!q.published[at], "Q2: a slot published twice");
          q.published[at] = true;
        }
        --held();
      } else if (std::size_t id = 0; index_in(q.state->commands, q.rings.cq_entries - 1, address, id)) {
        if (value == 0 && before != 0) ++q.delivered;
        check(value == 0 || before == 0, "Q2: a command id is given to two commands");
      }
    }
  }
  void exchanged(void const* address, std::uint64_t before) {
    unobserved const quiet;
    for (queue& q : queues_) {
      std::size_t id = 0;
      if (before != 0 && index_in(q.state->commands, q.rings.cq_entries - 1, address, id)) ++q.delivered;
    }
  }
  void compare_exchanged(void const* address) {
    unobserved const quiet;
    for (queue& q : queues_) {
      if (address == &q.state->sq_tail) ++held();
    }
  }
  void ored(void const* address, std::uint64_t before) {
    unobserved const quiet;
    for (queue& q : queues_) {
      if (address == &q.state->cq_head && (before & queue_pair_state::taken) == 0) ++held();
    }
  }
  void added(void const* address, std::uint64_t value, std::uint64_t before) {
    unobserved const quiet;
    for (queue& q : queues_) {
      if (address != &q.state->doorbell) continue;
      if (value == 1 && static_cast<std::uint32_t>(before) == 0) ++held();
      if (static_cast<std::uint32_t>(before + value) == 0) --held();
    }
  }
  void about_to_wait() {
    unobserved const quiet;
    check(held() == 0, "Q4: a thread waits with a completion ring, a doorbell or an unpublished slot");
  }

  // The drive's side
  // ---------------------------------------------------------------------------------------------------

  /// The drive loaded 16 bytes; the last of an entry's four loads completes it.
  void drive_loaded(void const* address, simt::vec16 value) {
    unobserved const quiet;
    for (queue& q : queues_) {
      std::size_t index = 0;
      if (!index_in(reinterpret_cast<simt::vec16 const*>(q.rings.sq), q.rings.sq_entries * 4u, address, index))
        continue;
      q.fetching[index % 4] = value;
      if (index % 4 == 3) fetched(q, __builtin_bit_cast(nvme::submission_entry, q.fetching));
    }
  }

  void drive_stored(void const* address, std::uint64_t value) {
    unobserved const quiet;
    for (queue& q : queues_) {
      if (address < q.rings.cq || address >= q.rings.cq + q.rings.cq_entries) continue;
      auto const dw3 = static_cast<std::uint32_t>(value);
      check((dw3 & 0xffff) < q.in_flight.size() && q.in_flight[dw3 & 0xffff] != none, "the drive posts for no command");
      planned_command& command = commands_[q.in_flight[dw3 & 0xffff]];
      q.in_flight[dw3 & 0xffff] = none;
      command.posted_status = static_cast<std::uint16_t>(dw3 >> 17);
      command.where = planned_command::state::posted;
      ++q.posted;
      ++posted_;
    }
  }

  // Afterwards
  // ---------------------------------------------------------------------------------------------------------

  std::uint64_t posted() const { return posted_; }
  std::uint64_t fetched() const { return fetched_; }
  std::uint64_t doorbell_writes() const {
    std::uint64_t sum = 0;
    for (queue const& q : queues_) sum += q.sq_doorbell_writes;
    return sum;
  }

 private:
  static constexpr std::uint32_t none = ~0u;

  struct queue {
    queue_pair_state* state = nullptr;
    queue_pair_rings rings;
    std::vector<bool> published;  // per slot: published and not yet rung for
    bool sq_ringing = false;
    bool cq_ringing = false;
    // Counted from 0, so that each modulo its ring's entries is a slot.
    std::uint64_t rung = 0;
    std::uint64_t consumed = 0;
    std::uint64_t posted = 0;
    std::uint64_t delivered = 0;
    std::uint64_t fetched = 0;
    std::uint64_t sq_doorbell_writes = 0;
    std::array<simt::vec16, 4> fetching{};
    std::vector<std::uint32_t> in_flight;  // per command id, as the drive sees it
  };

  static void check(bool holds, char const* what) { simt::fiber::check(holds, what); }
  static std::uint32_t distance(std::uint64_t from, std::uint32_t to, std::uint32_t entries) {
    auto const at = static_cast<std::uint32_t>(from % entries);
    return to >= at ? to - at : to + entries - at;
  }
  template <class T>
  static bool index_in(T const* array, std::size_t count, void const* address, std::size_t& index) {
    if (address < array || address >= array + count) return false;
    index = static_cast<std::size_t>(static_cast<T const*>(address) - array);
    return true;
  }
  std::int32_t& held() { return held_[simt::fiber::thread_rank()]; }

  void fetched(queue& q, nvme::submission_entry const& entry) {
    std::uint64_t const index = entry.slba() / lba_stride_;
    check(index < commands_.size(), "Q3: the drive fetched an entry that nobody wrote");
    planned_command& command = commands_[index];
    check(command.where == planned_command::state::submitting,
          "Q2: the drive fetched a command twice, or before its time");
    check(entry.nsid == 1 && entry.opcode() == static_cast<std::uint8_t>(command.opcode) &&
              entry.slba() == command.slba && entry.block_count() == (command.blocks != 0 ? command.blocks : 1),
          "Q3: the drive fetched an entry that is not what was submitted");
    std::uint16_t const id = entry.command_id();
    check(id < q.in_flight.size(), "Q2: a command id out of range");
    check(q.in_flight[id] == none, "Q2: a command id is used by two commands in flight");
    q.in_flight[id] = static_cast<std::uint32_t>(index);
    auto const fault = faults_.at((std::uint64_t{q.rings.queue_id} << 48) + q.fetched++);
    command.must_fail_with = fault.status_field;
    command.withheld = fault.withheld;
    command.where = planned_command::state::fetched;
    check(q.fetched - q.consumed < q.rings.cq_entries, "Q2: more commands in flight than completion entries less one");
    ++fetched_;
  }

  std::span<queue_pair_state> pairs_;
  emulator::fault_plan faults_;
  std::vector<planned_command>& commands_;
  std::uint32_t lba_stride_;
  std::vector<std::int32_t> held_;  // per lane: completion rings, doorbells and unpublished slots
  std::vector<queue> queues_;
  std::uint64_t fetched_ = 0;
  std::uint64_t posted_ = 0;
};

/// The client's machine: fibers that report to the audit.
struct audited_client : simt::fiber {
  template <simt::word T, simt::scope S>
  class atomic_ref : public simt::fiber::atomic_ref<T, S> {
    using base = simt::fiber::atomic_ref<T, S>;

   public:
    explicit atomic_ref(T& object) : base(object), object_(&object) {}
    void store(T value, simt::order o, location where = location::current()) const {
      T const before = simt::detail::host_load(object_, simt::order::relaxed);
      base::store(value, o, where);
      if (audit* a = audit::current())
        a->stored(object_, static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(before));
    }
    T exchange(T value, simt::order o, location where = location::current()) const {
      T const before = base::exchange(value, o, where);
      if (audit* a = audit::current()) a->exchanged(object_, static_cast<std::uint64_t>(before));
      return before;
    }
    T fetch_add(T value, simt::order o, location where = location::current()) const {
      T const before = base::fetch_add(value, o, where);
      if (audit* a = audit::current()) {
        a->added(object_, static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(before));
      }
      return before;
    }
    T fetch_or(T value, simt::order o, location where = location::current()) const {
      T const before = base::fetch_or(value, o, where);
      if (audit* a = audit::current()) a->ored(object_, static_cast<std::uint64_t>(before));
      return before;
    }
    bool compare_exchange(T& expected, T desired, simt::order success, location where = location::current()) const {
      bool const stored = base::compare_exchange(expected, desired, success, where);
      if (audit* a = audit::current(); a != nullptr && stored) a->compare_exchanged(object_);
      return stored;
    }

   private:
    T* object_;
  };

  static void st_mmio(std::uint32_t* doorbell, std::uint32_t value, location where = location::current()) {
    audit* const a = audit::current();
    if (a != nullptr) a->before_doorbell(doorbell, value);
    simt::fiber::st_mmio(doorbell, value, where);
    if (a != nullptr) a->after_doorbell(doorbell);
  }

  template <class Predicate>
  [[nodiscard]] static bool wait_until(Predicate&& predicate, std::uint64_t deadline_ns,
                                       location where = location::current()) {
    return simt::fiber::wait_until(
        [&] {
          if (predicate()) return true;
          if (audit* a = audit::current()) a->about_to_wait();
          return false;
        },
        deadline_ns, where);
  }
};

/// The drive's machine. Its statistics, which only their unit writes, cost no scheduling points.
struct audited_drive : simt::fiber {
  template <simt::word T, simt::scope S>
  class atomic_ref : public simt::fiber::atomic_ref<T, S> {
    using base = simt::fiber::atomic_ref<T, S>;

   public:
    explicit atomic_ref(T& object) : base(object), object_(&object) {}
    T load(simt::order o, location where = location::current()) const {
      if (is_statistic(o)) return simt::detail::host_load(object_, o);
      return base::load(o, where);
    }
    void store(T value, simt::order o, location where = location::current()) const {
      if (is_statistic(o)) return simt::detail::host_store(object_, value, o);
      base::store(value, o, where);
      if (audit* a = audit::current()) a->drive_stored(object_, static_cast<std::uint64_t>(value));
    }

   private:
    static bool is_statistic(simt::order o) { return sizeof(T) == 8 && o == simt::order::relaxed; }
    T* object_;
  };

  template <simt::plain T>
  static T ld(T const* address, location where = location::current()) {
    T const value = simt::fiber::ld(address, where);
    if constexpr (std::is_same_v<T, simt::vec16>) {
      if (audit* a = audit::current()) a->drive_loaded(address, value);
    }
    return value;
  }
};

}  // namespace forebay::test
