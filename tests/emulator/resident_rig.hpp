// SPDX-License-Identifier: Apache-2.0
//! \file
//! Resident units and their clients as blocks of one launch, with the host beside them. Clients know what every block
//! of the drive holds and check every byte, status and count.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "emulator/resident_commands.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/emulator/resident_units.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/memory.hpp"
#include "support/schedules.hpp"

namespace forebay::emulator::testing {

/// The units run on `M`, a machine of fibers.
template <class M = simt::fiber>
class resident_rig : private resident_commands {
 public:
  resident_rig(resident_shape const& shape, std::uint64_t seed)
      : resident_commands(shape, seed), regions_(memory::host(), 6), doorbells_(2 * shape.queues) {
    regions_.add(buffers_.data(), buffers_.size_bytes());
    engine_options options = shape.options;
    options.units = shape.units;
    options.dispatchers_per_unit = shape.warps;
    options.queue_slots = shape.queues;
    options.faults = plan_;
    engine_ = std::make_unique<engine<M, simt::fiber>>(
        options, media{store_.as<std::byte>(), store_.size_bytes(), 512, shape.syncs ? &sync_ : nullptr});
    units_.view = engine_->view();
    units_.words = &words_;
    for (std::uint32_t q = 0; q < shape.queues; ++q) {
      queues_[q]->attached = !shape.attaches_late || cq_of(q) == q;
      if (queues_[q]->attached) attach(q, true);
    }
  }

  /// Runs until every command has completed, in one launch or two. Everything is checked.
  void run(simt::memory_model memory, simt::scheduler& schedule) {
    ASSERT_EQ(launch(memory, schedule), "");
    end_launch();
    if (shape_.stop_after != 0) {
      words_.stop = 0;
      stop_after_ = 0;
      ASSERT_EQ(launch(memory, schedule), "");
      end_launch();
    }
    check_counts();
    // Virtual time passes when no thread can go on: a completion that is due must not wait until a dispatcher has
    // rested.
    EXPECT_LT(time_ns_, 100'000'000u);
    // While all sleep, time jumps to what becomes due next: a command, or another look at a Flush that waits for the
    // host, 20 us later. A thread that wakes has not looked at its doorbells during the jump, but none sleeps through a
    // doorbell for longer than one jump.
    timing_parameters const& timing = shape_.options.timing;
    EXPECT_LE(poll_gap_ns_,
              (timing.read.latency_min_ps + timing.jitter_ps) / 1000 + shape_.options.faults.delay_max_ns + 20'000);
  }

  /// One launch of units that may be wrong. Returns the error that the clients or the executor found; empty if none.
  std::string failure_of(simt::memory_model memory, simt::scheduler& schedule) {
    return launch(memory, schedule, 3'000'000);
  }

  /// The most by which a command took less time than the drive needs for it, once `run` has ended: it was dated to the
  /// last look that did not find it.
  std::uint64_t dated_early_ns() const { return dated_early_ns_; }

  /// The same in real time, on OS threads.
  void run_in_real_time() {
    simt::grid const grid = begin_launch();
    std::thread host_thread([this] { host(); });
    std::string failure;
    try {
      simt::launch<fiber>(grid, [this] { lane(0); }, {.os_threads = 2});
    } catch (std::exception const& e) {
      failure = e.what();
    }
    // Relaxed: `join` orders what follows.
    simt::atomic<fiber, system>(ended_).store(1, order::relaxed);
    host_thread.join();
    ASSERT_EQ(failure, "");
    end_launch();
    check_counts();
  }

 private:
  static constexpr std::uint64_t patience_ns = 5'000'000'000;
  static constexpr std::uint32_t demand_detach = 0x10000, demand_attach = 0x20000, demand_silent_detach = 0x30000;

  // Host --------------------------------------------------------------------------------------------------------------

  std::uint32_t cq_of(std::uint32_t q) const { return shape_.shared_cq ? 0 : q; }

  void attach(std::uint32_t q, bool with_cq) {
    if (with_cq && cq_of(q) == q) {
      engine_->attach_completion_queue({q, queues_[q]->cq.data(), shape_.cq_entries, &doorbells_[q * 2 + 1]});
    }
    engine_->attach_submission_queue({.slot = q,
                                      .id = static_cast<std::uint16_t>(q + 1),
                                      .entries = queues_[q]->sq.data(),
                                      .size = shape_.sq_entries,
                                      .tail_doorbell = &doorbells_[q * 2],
                                      .cq_slot = cq_of(q),
                                      .regions = regions_.table()});
  }

  bool ended() { return fiber::stopping() || simt::atomic<fiber, system>(ended_).load(order::relaxed) != 0; }

  /// Serves demands of the clients and the engine's wishes for a write-back, until the grid has ended.
  void host() {
    while (!ended()) {
      std::uint32_t which = shape_.queues;
      std::uint32_t demand = 0;
      std::uint32_t requested = 0, completed = 0;
      (void)fiber::wait_until(
          [&] {
            which = shape_.queues;
            for (std::uint32_t q = 0; q < shape_.queues; ++q) {
              // Acquire: pairs with the release in `ask`.
              std::uint32_t const asked = simt::atomic<fiber, system>(queues_[q]->asked).load(order::acquire);
              if (asked == simt::atomic<fiber, system>(queues_[q]->served).load(order::relaxed)) continue;
              which = q;
              demand = asked;
            }
            // Acquire: pairs with the unit's release; the writes that the Flush covers are visible.
            requested = simt::atomic<fiber, system>(sync_.requested).load(order::acquire);
            completed = simt::atomic<fiber, system>(sync_.completed).load(order::relaxed);
            return which != shape_.queues || requested != completed || ended();
          },
          simt::no_deadline);
      if (which != shape_.queues) serve(which, demand);
      if (requested != completed) {
        // Units look at it more than once.
        if (fiber::choose(2) == 0) (void)fiber::wait_until([] { return false; }, fiber::clock_ns() + 50'000);
        // Release: pairs with the unit's acquire.
        simt::atomic<fiber, system>(sync_.completed).store(requested, order::release);
      }
    }
  }

  void serve(std::uint32_t q, std::uint32_t asked) {
    queue& mine = *queues_[q];
    std::uint32_t const demand = fiber::ld(&mine.demand);
    if (demand == demand_attach) {
      attach(q, !shape_.shared_cq);
    } else if (demand == demand_detach || demand == demand_silent_detach) {
      fiber::check(engine_->begin_detach(q, demand == demand_silent_detach), "the engine takes the request");
      if (!answered(q, nullptr)) return;
    } else {
      // A withheld command comes back only by an abort that finds it; but it may not be fetched yet.
      record& command = records_[demand];
      bool found = false;
      do {
        engine_->begin_abort(q, static_cast<std::uint16_t>(demand));
        if (!answered(q, &found)) return;
      } while (!found && command.fault.withheld);
      command.abort_found = found;
      command.abort_answered = true;
    }
    // Release: pairs with the acquire in `ask` and `may_ask`.
    simt::atomic<fiber, system>(mine.served).store(asked, order::release);
  }

  /// Returns false if the grid has ended first.
  bool answered(std::uint32_t q, bool* found) {
    bool came = false;
    bool const in_time = fiber::wait_until([&] { return (came = engine_->answered(q, found)) || ended(); },
                                           fiber::clock_ns() + patience_ns);
    fiber::check(in_time, "the engine answers the host");
    return came;
  }

  // Clients -----------------------------------------------------------------------------------------------------------

  /// The error; empty if there was none.
  std::string launch(simt::memory_model memory, simt::scheduler& schedule, std::uint64_t max_steps = 100'000'000) {
    simt::run_options options;
    options.memory = memory;
    options.max_steps = max_steps;
    options.record = false;
    simt::grid const grid = begin_launch();
    std::uint64_t const from_ns = time_ns_;
    auto const result = simt::run(options, schedule, grid, [&] { lane(from_ns); },
                                  {{.name = "host", .body = [this] { host(); }, .daemon = true, .domain = 1}});
    time_ns_ = result.time_ns;
    return result.ok ? "" : result.what;
  }

  std::uint32_t clients() const { return shape_.shared_cq ? 1 : shape_.queues; }

  simt::grid begin_launch() {
    clients_left_ = clients();
    simt::grid grid = units_.shape();
    grid.blocks += clients();
    return grid;
  }
  void end_launch() {
    EXPECT_EQ(words_.arrived, shape_.units * shape_.warps);
    EXPECT_EQ(words_.orphaned, 0u);
    words_.arrived = 0;
  }

  /// The work of each lane of the grid. Time continues where the last launch left it, at `from_ns`.
  void lane(std::uint64_t from_ns) {
    if (from_ns != 0) (void)fiber::wait_until([] { return false; }, from_ns);
    if (fiber::this_block().rank < shape_.units) return units_();
    if (fiber::this_block().thread_rank() != 0) return;
    client(fiber::this_block().rank - shape_.units, shape_.shared_cq ? shape_.queues : 1);
    // Acquire and release: the last one gives the order to leave for all.
    if (simt::atomic<fiber>(clients_left_).fetch_sub(1, order::acq_rel) == 1) stop();
  }

  void stop() { simt::atomic<fiber, system>(words_.stop).store(1, order::relaxed); }
  bool stopped() { return simt::atomic<fiber, system>(words_.stop).load(order::relaxed) != 0; }

  /// One client of `count` queues, which post to the completion queue of the first.
  void client(std::uint32_t first, std::uint32_t count) {
    queue& ring = *queues_[first];
    for (;;) {
      bool left = false;
      bool can_submit = false;
      for (std::uint32_t q = first; q < first + count; ++q) {
        submit_some(q);
        can_submit = maybe_ask(q) || can_submit;
        left = left || queues_[q]->completed < shape_.commands;
      }
      if (!left) return;
      if (can_submit) continue;
      std::uint32_t dw3 = 0;
      bool leaves = false;
      bool const came = fiber::wait_until(
          [&] {
            leaves = shape_.stop_after != 0 && stopped();
            bool asks = false;
            for (std::uint32_t q = first; q < first + count; ++q) {
              asks = asks || (next_to_abort(*queues_[q]) != nullptr && may_ask(*queues_[q]));
            }
            // Acquire: pairs with the engine's release of the same word.
            dw3 = simt::atomic<fiber, system>(ring.cq[ring.cq_head].dw3).load(order::acquire);
            return (dw3 >> 16 & 1) == ring.phase || leaves || asks;
          },
          fiber::clock_ns() + patience_ns);
      fiber::check(came, "a completion came");
      if (leaves) return;
      // All completions that have come, and one doorbell for them.
      while ((dw3 >> 16 & 1) == ring.phase) {
        consume(ring, first, count, dw3);
        // Acquire: as above.
        dw3 = simt::atomic<fiber, system>(ring.cq[ring.cq_head].dw3).load(order::acquire);
        if (fiber::choose(4) == 0) ring_head(first);
      }
      ring_head(first);
    }
  }

  void ring_head(std::uint32_t first) {
    // Release: pairs with the engine's acquire of the head doorbell.
    simt::atomic<fiber, system>(doorbells_[first * 2 + 1]).store(queues_[first]->cq_head, order::release);
  }

  void consume(queue& ring, std::uint32_t first, std::uint32_t count, std::uint32_t dw3) {
    nvme::completion_entry& entry = ring.cq[ring.cq_head];
    std::uint32_t const dw2 = fiber::ld(&entry.dw2);
    fiber::check(fiber::ld(&entry.dw0) == 0 && fiber::ld(&entry.dw1) == 0, "dwords 0 and 1 are 0");
    std::uint32_t const q = (dw2 >> 16) - 1;
    fiber::check(q >= first && q - first < count, "a completion names a queue of this client");
    if (++ring.cq_head == shape_.cq_entries) {
      ring.cq_head = 0;
      ring.phase ^= 1;
    }
    queue& mine = *queues_[q];
    std::uint32_t const head = dw2 & 0xffff;
    fiber::check(head < shape_.sq_entries, "SQHD is an entry");
    fiber::check((mine.tail + shape_.sq_entries - head) % shape_.sq_entries <=
                     (mine.tail + shape_.sq_entries - mine.head) % shape_.sq_entries,
                 "SQHD moves forwards, not beyond the tail");
    mine.head = head;
    finish(q, dw3 & 0xffff, static_cast<std::uint16_t>(dw3 >> 17));
    // Counted by clients of all queues; relaxed: the order to leave carries nothing.
    if (stop_after_ != 0 && simt::atomic<fiber>(completed_).fetch_add(1, order::relaxed) + 1 == stop_after_) stop();
  }

  void submit_some(std::uint32_t q) {
    queue& mine = *queues_[q];
    if (!mine.attached && queues_[cq_of(q)]->completed > q) {
      ask(mine, demand_attach, true);
      mine.attached = true;
    }
    bool rung = true;
    while (mine.attached && mine.submitted < shape_.commands) {
      std::uint32_t const id = q * shape_.commands + mine.submitted;
      record& command = records_[id];
      if (mine.drawn == mine.submitted) {
        draw(q, id);
        ++mine.drawn;
      }
      if (mine.busy[command.extent] != 0 || (mine.tail + 1) % shape_.sq_entries == mine.head) break;
      draw_kind(id);
      prepare(mine, id);
      mine.tail = (mine.tail + 1) % shape_.sq_entries;
      ++mine.submitted;
      ++mine.in_life;
      mine.busy[command.extent] = id + 1;
      rung = fiber::choose(4) == 0;
      if (rung) ring_tail(q);
    }
    if (!rung) ring_tail(q);
  }

  void ring_tail(std::uint32_t q) {
    // Release: pairs with the engine's acquire of the tail doorbell.
    simt::atomic<fiber, system>(doorbells_[q * 2]).store(queues_[q]->tail, order::release);
  }

  bool may_ask(queue& mine) {
    // Acquire: pairs with the release in `serve`.
    return simt::atomic<fiber, system>(mine.served).load(order::acquire) == mine.asks;
  }
  void ask(queue& mine, std::uint32_t demand, bool waits) {
    fiber::st(&mine.demand, demand);
    // Release: pairs with the acquire in `host`.
    simt::atomic<fiber, system>(mine.asked).store(++mine.asks, order::release);
    if (!waits) return;
    bool const in_time = fiber::wait_until([&] { return may_ask(mine); }, fiber::clock_ns() + patience_ns);
    fiber::check(in_time, "the host serves the client");
  }

  /// A command that is withheld, which the host has not been asked to abort.
  record* next_to_abort(queue& mine) {
    for (std::uint32_t const id_plus_one : mine.busy) {
      if (id_plus_one == 0) continue;
      record& command = records_[id_plus_one - 1];
      if (command.fault.withheld && !command.abort_asked) return &command;
    }
    return nullptr;
  }

  /// Makes the host abort or detach, now and then. Returns whether it is a fresh queue now.
  bool maybe_ask(std::uint32_t q) {
    queue& mine = *queues_[q];
    if (!may_ask(mine)) return false;
    if (shape_.detaches && !mine.detached_once && mine.submitted > shape_.commands / 2) {
      detach(q);
      return true;
    }
    record* command = next_to_abort(mine);
    if (command == nullptr && shape_.aborts && fiber::choose(8) == 0) {
      std::uint32_t const id_plus_one = mine.busy[fiber::choose(extents)];
      if (id_plus_one != 0 && !records_[id_plus_one - 1].abort_asked) command = &records_[id_plus_one - 1];
    }
    if (command == nullptr) return false;
    command->abort_asked = true;
    ask(mine, static_cast<std::uint32_t>(command - records_.data()), false);
    return false;
  }

  /// Lets the host take the queue away with its commands in flight, and attach it anew.
  void detach(std::uint32_t q) {
    queue& mine = *queues_[q];
    mine.detached_once = true;
    ask(mine, fiber::choose(3) == 0 ? demand_silent_detach : demand_detach, true);
    if (!shape_.shared_cq) {
      for (;;) {
        // Acquire: pairs with the engine's release of the same word.
        std::uint32_t const dw3 = simt::atomic<fiber, system>(mine.cq[mine.cq_head].dw3).load(order::acquire);
        if ((dw3 >> 16 & 1) != mine.phase) break;
        consume(mine, q, 1, dw3);
      }
      for (nvme::completion_entry& entry : mine.cq) {
        fiber::st(reinterpret_cast<simt::vec16*>(&entry), {0, 0});
      }
      mine.cq_head = 0;
      mine.phase = 1;
    } else {
      // Its completions lie between those of other queues.
      queue& ring = *queues_[0];
      for (;;) {
        // Acquire: as above.
        std::uint32_t const dw3 = simt::atomic<fiber, system>(ring.cq[ring.cq_head].dw3).load(order::acquire);
        if ((dw3 >> 16 & 1) != ring.phase) break;
        consume(ring, 0, shape_.queues, dw3);
      }
      ring_head(0);
    }
    for (std::uint32_t& id_plus_one : mine.busy) {
      if (id_plus_one == 0) continue;
      forget(mine, records_[id_plus_one - 1]);
      id_plus_one = 0;
      ++mine.completed;
      ++mine.dropped;
    }
    mine.tail = mine.head = mine.in_life = 0;
    simt::atomic<fiber, system>(doorbells_[q * 2]).store(0, order::relaxed);
    if (!shape_.shared_cq) simt::atomic<fiber, system>(doorbells_[q * 2 + 1]).store(0, order::relaxed);
    ask(mine, demand_attach, true);
  }

  // Afterwards --------------------------------------------------------------------------------------------------------

  void check_counts() {
    auto const sum = std::make_unique<statistics>();
    engine_->collect(*sum);
    counters const& counts = sum->commands;
    counters wanted;
    std::uint64_t completed = 0;
    for (record const& command : records_) {
      completed += command.completed;
      // An injected error replaces what else would fail.
      bool const fails = expected_status(command) != 0;
      wanted.read_commands += command.what == kind::read && !fails;
      wanted.write_commands += command.what == kind::write && !fails;
      if (command.what == kind::read && !fails) wanted.bytes_read += command.blocks * 512;
      if (command.what == kind::write && !fails) wanted.bytes_written += command.blocks * 512;
      wanted.failed_commands += fails;
      bool const aborted = command.status == nvme::status_field(nvme::generic_status::command_abort_requested);
      if (command.abort_answered && command.completed) {
        EXPECT_EQ(command.abort_found, aborted) << "what the host was told of an abort";
      }
      if (command.completed && command.status == 0) {
        EXPECT_GE(command.took_ns + sum->poll_gap.max_ns, command.alone_ns);
        if (command.took_ns < command.alone_ns) {
          dated_early_ns_ = std::max(dated_early_ns_, command.alone_ns - command.took_ns);
        }
      }
    }
    EXPECT_EQ(counts.completions_posted, completed);
    EXPECT_EQ(counts.commands_fetched, counts.completions_posted + counts.dropped);
    std::uint64_t dropped = 0;
    for (auto const& mine : queues_) dropped += mine->dropped;
    EXPECT_LE(counts.dropped, dropped);
    EXPECT_EQ(counts.invalid_doorbells, 0u);
    poll_gap_ns_ = sum->poll_gap.max_ns;
    if (!shape_.options.frontend.coalesced_fetch) {
      EXPECT_EQ(counts.fetches, counts.commands_fetched);
    }
    if (shape_.detaches) return;
    EXPECT_EQ(completed, records_.size());
    EXPECT_EQ(counts.dropped, 0u);
    EXPECT_EQ(sum->processing.total(), counts.commands_fetched);
    if (plan_.withhold_ppm != 0 || shape_.aborts) return;
    EXPECT_EQ(counts.read_commands, wanted.read_commands);
    EXPECT_EQ(counts.write_commands, wanted.write_commands);
    EXPECT_EQ(counts.bytes_read, wanted.bytes_read);
    EXPECT_EQ(counts.bytes_written, wanted.bytes_written);
    EXPECT_EQ(counts.failed_commands, wanted.failed_commands);
  }

  dma_regions regions_;
  std::vector<std::uint32_t> doorbells_;
  std::unique_ptr<engine<M, fiber>> engine_;
  resident_units<M> units_;
  residency_words words_;
  std::uint32_t clients_left_ = 0;
  std::uint32_t stop_after_ = shape_.stop_after;
  std::uint32_t completed_ = 0;
  std::uint64_t time_ns_ = 0;
  std::uint64_t poll_gap_ns_ = 0;
  std::uint64_t dated_early_ns_ = 0;
  std::uint32_t ended_ = 0;
};

}  // namespace forebay::emulator::testing
