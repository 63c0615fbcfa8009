// SPDX-License-Identifier: Apache-2.0
//! \file
//! The engine's units as agents of deterministic schedules: clients on simulated lanes, several units, completion
//! queues that submission queues of different units share, faults, weak memory.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "emulator/fake_medium.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/simt/run.hpp"
#include "support/schedules.hpp"

namespace forebay::emulator::testing {
namespace {

using simt::fiber;
using simt::order;
using simt::scope;

constexpr std::uint64_t patience_ns = 1'000'000'000;

/// Fibers whose units may hand commands to a medium.
struct reaching_files : fiber {
  static constexpr bool reaches_files = true;
};

struct shape {
  std::uint32_t queues = 2;
  std::uint32_t units = 1;
  std::uint32_t sq_entries = 3;
  bool shared_cq = false;
  std::uint32_t commands = 6;  ///< of each queue
  fault_plan faults = {};
  timing_parameters timing = {};
  std::optional<fake_behaviour> medium = {};  ///< the drive's bytes are in a medium
};

/// One lane for each queue: it writes blocks and reads them back, several in flight, and checks every byte and SQHD.
template <class M>
class system {
 public:
  explicit system(shape const& s)
      : shape_(s),
        store_(memory::host(), 1 << 16, 4096),
        buffers_(memory::host(), 64 * 4096, 4096),
        regions_(memory::host(), 6),
        doorbells_(64),
        medium_(store_.as<std::byte>(), s.medium.value_or(fake_behaviour{})) {
    regions_.add(buffers_.data(), buffers_.size_bytes());
    engine_options options;
    options.units = s.units;
    options.queue_slots = 8;
    options.faults = s.faults;
    options.timing = s.timing;
    media drive{store_.as<std::byte>(), 1 << 16, 512, nullptr};
    if (s.medium) drive = {.bytes = 1 << 16, .block_bytes = 512, .pieces = &medium_};
    engine_ = std::make_unique<engine<M>>(options, drive);
    for (std::uint32_t q = 0; q < s.queues; ++q) {
      rings_.push_back(std::make_unique<rings>());
      std::uint32_t const id = q + 1;
      std::uint32_t const cq = s.shared_cq ? 1 : id;
      if (cq == id) {
        engine_->attach_completion_queue({q, rings_[q]->cq.data(), cq_entries, &doorbells_[id * 2 + 1]});
      }
      engine_->attach_submission_queue({.slot = q,
                                        .id = static_cast<std::uint16_t>(id),
                                        .entries = rings_[q]->sq.data(),
                                        .size = s.sq_entries,
                                        .tail_doorbell = &doorbells_[id * 2],
                                        .cq_slot = cq - 1,
                                        .regions = regions_.table()});
    }
  }

  simt::run_result run(simt::memory_model memory, simt::scheduler& schedule) {
    std::vector<simt::agent> agents;
    for (std::uint32_t unit = 0; unit < shape_.units; ++unit) {
      agents.push_back({.name = "unit " + std::to_string(unit),
                        .body =
                            [this, unit] {
                              while (!fiber::stopping()) serve(unit);
                              engine_->finish(unit);
                            },
                        .daemon = true,
                        .domain = 1});
    }
    simt::run_options options;
    options.memory = memory;
    // One lane for each block: clients of one queue each, or one client for all queues of a shared completion queue.
    simt::grid const grid{.blocks = shape_.shared_cq ? 1 : shape_.queues, .threads_per_block = 1};
    return simt::run(
        options, schedule, grid,
        [this] { shape_.shared_cq ? client(0, shape_.queues) : client(fiber::this_block().rank, 1); },
        std::move(agents));
  }

 private:
  static constexpr std::uint32_t cq_entries = 4;
  struct rings {
    std::array<nvme::submission_entry, 16> sq{};
    std::array<nvme::completion_entry, cq_entries> cq{};
  };
  struct progress {
    std::uint32_t submitted = 0, completed = 0, tail = 0, head = 0, outstanding = 0;
  };

  void serve(std::uint32_t unit) {
    if (shape_.timing.flash.channels == 0 && !shape_.medium) {
      (void)fiber::wait_until([&] { return engine_->step(unit) || fiber::stopping(); }, engine_->next_due_ns(unit));
    } else if (!engine_->step(unit)) {  // which may wait, for the lock of a die, so not in the predicate of a wait
      std::uint32_t nothing_else = 0;
      std::uint64_t const later_ns = fiber::clock_ns() + 10'000;
      std::uint64_t const due_ns = engine_->next_due_ns(unit);
      (void)engine_->at(unit).rest(due_ns < later_ns ? due_ns : later_ns, false, nothing_else);
    }
  }

  std::uint32_t* buffer(std::uint32_t queue, std::uint32_t command) {
    return reinterpret_cast<std::uint32_t*>(buffers_.as<std::byte>() + (queue * 16 + command % 16) * 512);
  }
  static std::uint32_t stamp(std::uint32_t queue, std::uint32_t command) { return 0xab000000u | queue << 16 | command; }

  /// Command 2n writes what command 2n+1 reads back, one after the other; pairs overlap.
  void client(std::uint32_t first, std::uint32_t count) {
    std::uint32_t const ring = first;
    std::uint32_t cq_head = 0, phase = 1, done = 0;
    std::array<progress, 8> state{};
    while (done < count * shape_.commands) {
      std::uint32_t in_flight = 0;
      for (std::uint32_t i = 0; i < count; ++i) in_flight += state[i].outstanding;
      for (std::uint32_t i = 0; i < count; ++i) {
        progress& p = state[i];
        std::uint32_t const q = first + i;
        bool rung = false;
        while (p.submitted < shape_.commands && (p.tail + 1) % shape_.sq_entries != p.head &&
               in_flight < cq_entries - 1 && (p.submitted % 2 == 0 || p.outstanding == 0)) {
          submit(q, p.submitted, p.tail);
          p.tail = (p.tail + 1) % shape_.sq_entries;
          ++p.submitted;
          ++p.outstanding;
          ++in_flight;
          rung = true;
        }
        // Release: pairs with the unit's acquire of the tail doorbell.
        if (rung) simt::atomic<fiber, scope::system>(doorbells_[(q + 1) * 2]).store(p.tail, order::release);
      }
      nvme::completion_entry& entry = rings_[ring]->cq[cq_head];
      std::uint32_t dw3 = 0;
      bool const came = fiber::wait_until(
          [&] {
            // Acquire: pairs with the engine's release of the same word.
            dw3 = simt::atomic<fiber, scope::system>(entry.dw3).load(order::acquire);
            return (dw3 >> 16 & 1) == phase;
          },
          fiber::clock_ns() + patience_ns);
      fiber::check(came, "a completion came");
      std::uint32_t const dw2 = fiber::ld(&entry.dw2);
      std::uint32_t const q = (dw2 >> 16) - 1;
      fiber::check(q >= first && q - first < count, "a completion names a queue of this client");
      progress& p = state[q - first];
      p.head = dw2 & 0xffff;
      --p.outstanding;
      ++done;
      consume(q, dw3 & 0xffff, dw3 >> 17);
      cq_head = (cq_head + 1) % cq_entries;
      if (cq_head == 0) phase ^= 1;
      // Release: pairs with the engine's acquire of the head doorbell.
      simt::atomic<fiber, scope::system>(doorbells_[(ring + 1) * 2 + 1]).store(cq_head, order::release);
    }
  }

  void submit(std::uint32_t q, std::uint32_t command, std::uint32_t slot) {
    bool const write = command % 2 == 0;
    std::uint32_t* const data = buffer(q, command);
    for (std::uint32_t i = 0; i < 128; i += 32) fiber::st(data + i, write ? stamp(q, command) : 0);
    auto entry = nvme::make_io_command(write ? nvme::io_opcode::write : nvme::io_opcode::read,
                                       static_cast<std::uint16_t>(command), 1, q * 8 + command / 2 % 8, 1);
    entry.prp1 = reinterpret_cast<std::uint64_t>(data);
    auto* const to = reinterpret_cast<simt::vec16*>(&rings_[q]->sq[slot]);
    for (std::uint32_t i = 0; i < 4; ++i) {
      simt::vec16 word;
      std::memcpy(&word, reinterpret_cast<std::byte*>(&entry) + 16 * i, 16);
      fiber::st(to + i, word);
    }
  }

  void consume(std::uint32_t q, std::uint32_t command, std::uint32_t status) {
    if (status != 0) {
      bool const of_medium = shape_.medium && status == shape_.medium->fail_status;
      fiber::check(status == shape_.faults.error_status_field || of_medium, "only an injected error fails a command");
      failed_[q] = true;
      return;
    }
    if (command % 2 == 0) return;
    std::uint32_t const* const data = buffer(q, command);
    for (std::uint32_t i = 0; i < 128; i += 32) {
      std::uint32_t const found = fiber::ld(data + i);
      fiber::check(found == stamp(q, command - 1) || failed_[q], "a read returns what was written");
    }
  }

  shape shape_;
  memory::allocation store_;
  memory::allocation buffers_;
  dma_regions regions_;
  std::vector<std::uint32_t> doorbells_;
  std::vector<std::unique_ptr<rings>> rings_;
  std::array<bool, 8> failed_{};  ///< by queue: a write may not have reached the drive
  fake_medium<M> medium_;
  std::unique_ptr<engine<M>> engine_;
};

void explore(shape base) {
  auto const run = [&](std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
    base.faults.seed = seed;
    if (base.medium) base.medium->seed = seed;
    simt::run_result const result =
        base.medium ? system<reaching_files>(base).run(memory, schedule) : system<fiber>(base).run(memory, schedule);
    ASSERT_TRUE(result.ok) << result.what;
    ASSERT_EQ(result.timeouts, 0u);
  };
  // A unit that wants a completion queue which another has at the moment looks again and again.
  testing::explore(run, 1, base.medium && base.shared_cq);
}

TEST(engine_schedule, one_queue) {
  explore({.queues = 1, .sq_entries = 2, .commands = 10});
}

TEST(engine_schedule, queues_on_several_units) {
  explore({.queues = 4, .units = 2});
}

TEST(engine_schedule, units_share_a_completion_queue) {
  explore({.queues = 3, .units = 3, .shared_cq = true});
}

TEST(engine_schedule, units_share_the_timing_model) {
  timing_parameters timing = {};
  timing.channels = 2;
  timing.read = timing.write = {.per_command_ps = 1'000'000, .latency_min_ps = 5'000'000};
  explore({.queues = 3, .units = 3, .timing = timing});
}

TEST(engine_schedule, units_share_the_flash) {
  timing_parameters timing = {};
  timing.read = timing.write = {.latency_min_ps = 5'000'000};
  timing.flash = {.channels = 2,
                  .page_bytes = 512,
                  .read_bytes = 512,
                  .program_bytes = 1024,
                  .block_bytes = 2048,
                  .read_ps = 4'000'000,
                  .program_ps = 20'000'000,
                  .erase_ps = 50'000'000,
                  .channel_byte_fs = 100'000,
                  .buffer_bytes = 4096,
                  .spare_ppm = 250'000,
                  .start = preconditioning::random};
  explore({.queues = 3, .units = 3, .commands = 8, .timing = timing});
}

TEST(engine_schedule, a_medium_that_is_late_and_out_of_order) {
  explore({.queues = 4, .units = 2, .sq_entries = 5, .commands = 10, .medium = fake_behaviour{.looks_max = 4}});
}

TEST(engine_schedule, a_medium_that_fails_and_has_no_room) {
  explore({.queues = 3,
           .units = 3,
           .sq_entries = 5,
           .shared_cq = true,
           .commands = 8,
           .faults = {.error_ppm = 100'000, .delay_ppm = 300'000, .delay_max_ns = 2000},
           .medium = fake_behaviour{.looks_max = 3,
                                    .full_percent = 40,
                                    .fail_percent = 10,
                                    .fail_status = nvme::status_field(nvme::media_status::unrecovered_read_error)}});
}

TEST(engine_schedule, faults) {
  explore({.queues = 2,
           .units = 2,
           .sq_entries = 5,
           .faults = {.error_ppm = 100'000, .delay_ppm = 500'000, .delay_max_ns = 2000}});
}

}  // namespace
}  // namespace forebay::emulator::testing
