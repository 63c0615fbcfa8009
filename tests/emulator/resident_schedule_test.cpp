// SPDX-License-Identifier: Apache-2.0
//! \file
//! The I/O engine as a GPU runs it, in deterministic schedules: units are blocks, dispatchers their warps, and clients
//! are other blocks of the same launch.
#include "emulator/resident_rig.hpp"

namespace forebay::emulator::testing {
namespace {

using simt::fiber;

void explore_traffic(resident_shape const& shape, std::uint64_t divisor = 6) {
  testing::explore([&](std::uint64_t seed, simt::memory_model memory,
                       simt::scheduler& schedule) { resident_rig(shape, seed).run(memory, schedule); },
                   // A dispatcher that another keeps from a completion queue polls for it.
                   divisor, shape.shared_cq);
}

TEST(resident_schedule, one_queue) {
  explore_traffic({.commands = 24});
}

TEST(resident_schedule, queues_on_two_units_of_two_warps) {
  explore_traffic({.units = 2, .warps = 2, .queues = 5, .commands = 6});
}

TEST(resident_schedule, dispatchers_share_a_completion_queue) {
  explore_traffic({.units = 2, .warps = 2, .queues = 5, .cq_entries = 4, .shared_cq = true, .commands = 6});
}

TEST(resident_schedule, rings_of_two_entries) {
  explore_traffic({.queues = 2, .sq_entries = 2, .cq_entries = 2, .commands = 8});
}

TEST(resident_schedule, rings_of_three_entries_and_fewer_completions) {
  explore_traffic({.warps = 2, .queues = 2, .sq_entries = 3, .cq_entries = 2, .commands = 8});
}

TEST(resident_schedule, errors_and_delays) {
  resident_shape shape{.units = 2, .queues = 3, .cq_entries = 3, .commands = 10};
  shape.options.faults = {.error_ppm = 150'000, .delay_ppm = 500'000, .delay_max_ns = 3000};
  explore_traffic(shape);
}

TEST(resident_schedule, withheld_commands_and_aborts) {
  resident_shape shape{.units = 2, .queues = 3, .cq_entries = 3, .commands = 10, .aborts = true};
  shape.options.faults = {.delay_ppm = 300'000, .delay_max_ns = 3000, .withhold_ppm = 200'000};
  explore_traffic(shape);
}

TEST(resident_schedule, withheld_commands_that_have_moved_their_data) {
  resident_shape shape{.queues = 2, .commands = 10, .aborts = true};
  shape.options.faults = {.delay_ppm = 300'000, .delay_max_ns = 3000, .withhold_ppm = 200'000, .late_data = false};
  explore_traffic(shape);
}

TEST(resident_schedule, queues_come_and_go) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 10, .detaches = true};
  shape.options.faults = {.delay_ppm = 500'000, .delay_max_ns = 3000};
  explore_traffic(shape);
}

TEST(resident_schedule, queues_that_share_completions_come_and_go) {
  resident_shape shape{
      .units = 2, .warps = 2, .queues = 4, .cq_entries = 4, .shared_cq = true, .commands = 8, .detaches = true};
  shape.options.faults = {.delay_ppm = 500'000, .delay_max_ns = 3000};
  explore_traffic(shape);
}

TEST(resident_schedule, a_completion_queue_becomes_shared) {
  explore_traffic({.units = 2,
                   .warps = 2,
                   .queues = 4,
                   .cq_entries = 6,
                   .shared_cq = true,
                   .commands = 8,
                   .all_kinds = false,
                   .attaches_late = true});
}

TEST(resident_schedule, flushes_wait_for_the_host) {
  explore_traffic({.units = 2, .queues = 2, .commands = 10, .syncs = true});
}

TEST(resident_schedule, flushes_hold_up_none_that_share_their_completion_queue) {
  explore_traffic(
      {.units = 2, .warps = 2, .queues = 4, .cq_entries = 2, .shared_cq = true, .commands = 8, .syncs = true});
}

TEST(resident_schedule, flushes_tell_that_the_host_failed) {
  explore_traffic({.queues = 2, .commands = 8, .syncs = true, .sync_fails = true}, 6);
}

TEST(resident_schedule, timing) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 8};
  shape.options.timing = two_channels();
  explore_traffic(shape);
}

TEST(resident_schedule, flash) {
  resident_shape shape{.units = 2, .warps = 2, .queues = 5, .commands = 8};
  shape.options.timing = two_channels();
  shape.options.timing.flash = {.channels = 3,
                                .page_bytes = 512,
                                .read_bytes = 1024,
                                .program_bytes = 1024,
                                .block_bytes = 4096,
                                .read_ps = 200'000,
                                .program_ps = 500'000,
                                .erase_ps = 1'000'000,
                                .channel_byte_fs = 10'000,
                                .buffer_bytes = 6 * 1024,
                                .spare_ppm = 250'000,
                                .start = preconditioning::random};
  explore_traffic(shape);
}

TEST(resident_schedule, completions_made_ready_ahead_are_seen_in_time) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 8};
  shape.options.timing = two_channels();
  shape.options.timing.jitter_ps = 3'000'000;
  shape.options.post_ahead_ns = 2000;
  explore_traffic(shape);
}

/// A unit of two dispatchers, of which the first has one queue or two. A client of one thread submits a batch to each
/// queue now and then, and looks at once at what completes.
struct batches {
  static constexpr std::uint32_t entries = 8, each = 6;
  timing_parameters timing;
  std::uint64_t post_ahead_ns = 2000;
  std::uint32_t queues = 1;
  std::uint32_t rounds = 3;

  /// `seen(queue, command id, time_ns)` as the client sees completions, queue by queue.
  template <class Seen>
  void run(simt::memory_model memory, simt::scheduler& schedule, statistics& sum, Seen&& seen) const {
    constexpr std::uint32_t dispatchers = 2;
    memory::allocation const store(memory::host(), 8192, 4096);
    memory::allocation const buffer(memory::host(), 4096, 4096);
    dma_regions regions(memory::host(), 6);
    regions.add(buffer.data(), buffer.size_bytes());
    engine_options options;
    options.dispatchers_per_unit = dispatchers;
    options.queue_slots = dispatchers + 1;
    options.timing = timing;
    options.post_ahead_ns = post_ahead_ns;
    engine<fiber, fiber> engine(options, media{store.as<std::byte>(), store.size_bytes(), 512});
    struct ring {
      nvme::submission_entry sq[entries] = {};
      nvme::completion_entry cq[entries] = {};
      std::uint32_t tail = 0, head = 0;
    };
    std::vector<ring> rings(queues);
    for (std::uint32_t q = 0; q < queues; ++q) {
      std::uint32_t const slot = q * dispatchers;
      engine.attach_completion_queue({slot, rings[q].cq, entries, &rings[q].head});
      engine.attach_submission_queue({.slot = slot,
                                      .id = static_cast<std::uint16_t>(q + 1),
                                      .entries = rings[q].sq,
                                      .size = entries,
                                      .tail_doorbell = &rings[q].tail,
                                      .cq_slot = slot,
                                      .regions = regions.table()});
    }
    residency_words words;
    resident_units<fiber> const units{engine.view(), &words};
    auto const client = [&] {
      for (std::uint32_t round = 0; round < rounds; ++round) {
        // Less than the least latency. While all sleep nobody polls, so commands count as fetched since the last poll.
        (void)fiber::wait_until([] { return false; }, fiber::clock_ns() + 10'000);
        for (std::uint32_t i = round * each; i < (round + 1) * each; ++i) {
          for (std::uint32_t q = 0; q < queues; ++q) {
            // Each queue has a channel of its own.
            auto entry =
                nvme::make_io_command(nvme::io_opcode::read, static_cast<std::uint16_t>(i), 1, q * 4096 / 512, 1);
            entry.prp1 = reinterpret_cast<std::uint64_t>(buffer.data());
            rings[q].sq[i % entries] = entry;
          }
        }
        for (ring& mine : rings) {
          // Release: pairs with the unit's acquire; the entries are there.
          simt::atomic<fiber, simt::scope::system>(mine.tail).store((round + 1) * each % entries, simt::order::release);
        }
        for (std::uint32_t q = 0; q < queues; ++q) {
          ring& mine = rings[q];
          for (std::uint32_t i = round * each; i < (round + 1) * each; ++i) {
            std::uint32_t dw3 = 0;
            auto const came = [&] {
              // Acquire: pairs with the unit's release.
              dw3 = simt::atomic<fiber, simt::scope::system>(mine.cq[i % entries].dw3).load(simt::order::acquire);
              return (dw3 >> 16 & 1) == (i / entries + 1) % 2;
            };
            fiber::check(fiber::wait_until(came, fiber::clock_ns() + 1'000'000'000), "a command completes");
            seen(q, dw3 & 0xffff, fiber::clock_ns());
          }
          // Release: pairs with the unit's acquire; the entries have been read.
          simt::atomic<fiber, simt::scope::system>(mine.head).store((round + 1) * each % entries, simt::order::release);
        }
      }
      simt::atomic<fiber, simt::scope::system>(words.stop).store(1, simt::order::relaxed);
    };
    simt::grid grid = units.shape();
    ++grid.blocks;
    auto const result = simt::run({.memory = memory, .max_steps = 50'000'000, .record = false}, schedule, grid, [&] {
      if (fiber::this_block().rank == 0) return units();
      if (fiber::this_block().thread_rank() == 0) client();
    });
    ASSERT_TRUE(result.ok) << result.what;
    engine.collect(sum);
    ASSERT_EQ(sum.target.total(), queues * rounds * each);
    ASSERT_EQ(sum.lateness.total(), queues * rounds * each);
  }
};

TEST(resident_schedule, completions_made_ready_together_come_in_the_order_in_which_they_are_due) {
  batches load{.timing = {.jitter_ps = 1'500'000}, .post_ahead_ns = 4000};
  load.timing.read = {.per_command_ps = 10'000, .latency_min_ps = 20'000'000};
  explore(
      [&](std::uint64_t, simt::memory_model memory, simt::scheduler& schedule) {
        std::vector<std::uint32_t> ids;
        std::vector<std::uint64_t> times_ns;
        auto const sum = std::make_unique<statistics>();
        load.run(memory, schedule, *sum, [&](std::uint32_t, std::uint32_t id, std::uint64_t time_ns) {
          ids.push_back(id);
          times_ns.push_back(time_ns);
        });
        // The jitter, which is the same each time, changes the order of some completions, and gives each a time of its
        // own.
        ASSERT_FALSE(std::is_sorted(ids.begin(), ids.end()));
        for (std::size_t i = 1; i < times_ns.size(); ++i) ASSERT_LT(times_ns[i - 1], times_ns[i]);
        ASSERT_EQ(sum->lateness.max_ns, 0u);
      },
      2);
}

/// Commands of two queues are due in turn. Between the rounds nothing is in flight, so that the other dispatcher of the
/// unit goes to rest.
TEST(resident_schedule, a_dispatcher_at_rest_helps_one_that_cannot_be_everywhere) {
  batches load{.timing = {.channels = 2}, .queues = 2};
  load.timing.read = {.per_command_ps = 250'000, .latency_min_ps = 20'000'000};
  explore(
      [&](std::uint64_t, simt::memory_model memory, simt::scheduler& schedule) {
        // Under that model the dispatcher may see late that there is work.
        if (memory == simt::memory_model::stale_reads) return;
        auto const sum = std::make_unique<statistics>();
        load.run(memory, schedule, *sum, [](std::uint32_t, std::uint32_t, std::uint64_t) {});
        ASSERT_EQ(sum->lateness.max_ns, 0u);
      },
      2);
}

TEST(resident_schedule, one_entry_at_a_time) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 8};
  shape.options.timing = two_channels();
  shape.options.frontend.coalesced_fetch = false;
  explore_traffic(shape, 4);
}

TEST(resident_schedule, one_clock_advance_a_command) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 8};
  shape.options.timing = two_channels();
  shape.options.frontend.aggregated_timing = false;
  explore_traffic(shape, 4);
}

TEST(resident_schedule, a_second_launch_goes_on) {
  resident_shape shape{.units = 2, .warps = 2, .queues = 5, .commands = 6, .stop_after = 12};
  shape.options.timing = two_channels();
  shape.options.faults = {.delay_ppm = 500'000, .delay_max_ns = 3000};
  explore_traffic(shape);
}

TEST(resident_schedule, units_leave_when_the_host_is_silent) {
  constexpr std::uint64_t beat_ns = 50'000'000, beats = 20, timeout_ns = 150'000'000, look_ns = 100'000'000;
  explore(
      [](std::uint64_t, simt::memory_model memory, simt::scheduler& schedule) {
        memory::allocation const store(memory::host(), 4096, 4096);
        engine_options options;
        options.units = options.dispatchers_per_unit = 2;
        engine<fiber, fiber> engine(options, media{store.as<std::byte>(), 4096, 512});
        residency_words words;
        resident_units<fiber> const units{engine.view(), &words, timeout_ns};
        auto const host = [&] {
          for (std::uint32_t beat = 1; beat <= beats; ++beat) {
            simt::atomic<fiber, simt::scope::system>(words.beat).store(beat, simt::order::relaxed);
            (void)fiber::wait_until([] { return false; }, beat * beat_ns);
          }
        };
        auto const result =
            simt::run({.memory = memory}, schedule, units.shape(), [&] { units(); }, {{.name = "host", .body = host}});
        ASSERT_TRUE(result.ok) << result.what;
        ASSERT_GE(words.orphaned, 1u);
        // The last beat comes a period before the host ends; units look from time to time, and rest once more.
        ASSERT_GT(result.time_ns, (beats - 1) * beat_ns + timeout_ns);
        ASSERT_LE(result.time_ns, (beats - 1) * beat_ns + timeout_ns + 3 * look_ns);
      },
      2);
}

// Orders of a host that sends them to the units through memory of its own.
TEST(resident_schedule, orders_are_passed_on) {
  constexpr std::uint64_t beat_ns = 50'000'000, timeout_ns = 150'000'000, relay_ns = 1'000'000, look_ns = 100'000'000;
  for (bool const tells : {true, false}) {
    explore(
        [&](std::uint64_t, simt::memory_model memory, simt::scheduler& schedule) {
          memory::allocation const store(memory::host(), 4096, 4096);
          engine_options options;
          options.units = options.dispatchers_per_unit = 2;
          engine<fiber, fiber> engine(options, media{store.as<std::byte>(), 4096, 512});
          residency_words words;
          residency_orders orders;
          resident_units<fiber> const units{engine.view(), &words, timeout_ns, &orders};
          std::uint64_t stopped_ns = 0;
          bool left = false;
          auto const host = [&] {
            for (std::uint32_t beat = 1; beat <= 10; ++beat) {
              simt::atomic<fiber, simt::scope::system>(orders.beat).store(beat, simt::order::relaxed);
              (void)fiber::wait_until([] { return false; }, beat * beat_ns);
            }
            stopped_ns = fiber::clock_ns();
            if (tells) simt::atomic<fiber, simt::scope::system>(orders.stop).store(1, simt::order::relaxed);
            left = fiber::wait_until(
                [&] { return simt::atomic<fiber, simt::scope::system>(orders.left).load(simt::order::acquire) != 0; },
                stopped_ns + 10 * timeout_ns);
          };
          auto const result = simt::run({.memory = memory}, schedule, units.shape(), [&] { units(); },
                                        {{.name = "host", .body = host}});
          ASSERT_TRUE(result.ok) << result.what;
          ASSERT_TRUE(left);
          ASSERT_EQ(words.left, 4u);
          ASSERT_EQ(words.orphaned != 0, !tells);
          // While the host beats, the units stay. When told to leave, they do so after two looks at the order.
          ASSERT_GE(result.time_ns, tells ? stopped_ns : stopped_ns - beat_ns + timeout_ns);
          ASSERT_LE(result.time_ns, stopped_ns + (tells ? 3 * relay_ns : timeout_ns + 3 * look_ns));
        },
        3);
  }
}

TEST(resident_units, in_real_time) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    resident_shape shape{.units = 2,
                         .warps = 2,
                         .queues = 4,
                         .cq_entries = 4,
                         .shared_cq = seed % 2 == 0,
                         .commands = 12,
                         .aborts = true,
                         .detaches = seed % 4 < 2,
                         .syncs = seed % 3 == 0};
    shape.options.faults = {.error_ppm = 50'000, .delay_ppm = 400'000, .delay_max_ns = 50'000, .withhold_ppm = 100'000};
    resident_rig(shape, seed).run_in_real_time();
  }
}

}  // namespace
}  // namespace forebay::emulator::testing
