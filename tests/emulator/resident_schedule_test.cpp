// SPDX-License-Identifier: Apache-2.0
//! \file
//! The I/O engine as a GPU runs it, in deterministic schedules: units are blocks, dispatchers their warps, and clients
//! other blocks of the same launch.
#include "bench/emulator/raw_client.hpp"
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

timing_parameters timing() {
  timing_parameters timing;
  timing.channels = 2;
  timing.read = timing.write = {.per_command_ps = 1'000'000, .per_byte_fs = 100'000, .latency_min_ps = 20'000'000};
  timing.other = {.per_command_ps = 0, .latency_min_ps = 20'000'000};
  return timing;
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
  shape.options.timing = timing();
  explore_traffic(shape);
}

TEST(resident_schedule, completions_made_ready_ahead_are_seen_in_time) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 8};
  shape.options.timing = timing();
  shape.options.timing.jitter_ps = 3'000'000;
  shape.options.post_ahead_ns = 2000;
  explore_traffic(shape);
}

TEST(resident_schedule, one_entry_at_a_time) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 8};
  shape.options.timing = timing();
  shape.options.frontend.coalesced_fetch = false;
  explore_traffic(shape, 4);
}

TEST(resident_schedule, one_clock_advance_a_command) {
  resident_shape shape{.units = 2, .queues = 3, .commands = 8};
  shape.options.timing = timing();
  shape.options.frontend.aggregated_timing = false;
  explore_traffic(shape, 4);
}

TEST(resident_schedule, a_second_launch_goes_on) {
  resident_shape shape{.units = 2, .warps = 2, .queues = 5, .commands = 6, .stop_after = 12};
  shape.options.timing = timing();
  shape.options.faults = {.delay_ppm = 500'000, .delay_max_ns = 3000};
  explore_traffic(shape);
}

TEST(resident_schedule, units_leave_when_the_host_is_silent) {
  constexpr std::uint64_t beat_ns = 50'000'000, beats = 20, timeout_ns = 150'000'000, look_ns = 100'000'000;
  explore(
      [](std::uint64_t, simt::memory_model memory, simt::scheduler& schedule) {
        memory::allocation const store(memory::host(), 4096, 4096);
        dma_regions const regions(memory::host(), 6);
        engine_options options;
        options.units = options.dispatchers_per_unit = 2;
        engine<fiber, fiber> engine(options, media{store.as<std::byte>(), 4096, 512}, regions.table());
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
        ASSERT_EQ(words.orphaned, 4u);
        // The last beat comes a period before the host ends; units look every now and then, and rest once more.
        ASSERT_GT(result.time_ns, (beats - 1) * beat_ns + timeout_ns);
        ASSERT_LE(result.time_ns, (beats - 1) * beat_ns + timeout_ns + 3 * look_ns);
      },
      2);
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

/// The client of the benchmarks, every byte checked.
TEST(resident_schedule, serves_warps_of_clients) {
  struct run_of_clients {
    std::uint32_t queues, client_blocks, lanes;
  };
  for (run_of_clients const clients : {run_of_clients{2, 2, 32}, run_of_clients{1, 2, 32}, run_of_clients{1, 1, 7}}) {
    explore(
        [&](std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
          constexpr std::uint32_t units = 2, rounds = 3;
          std::uint32_t const blocks = rounds * (units + clients.client_blocks) * 32;
          memory::allocation const store(memory::host(), blocks * 512, 4096);
          memory::allocation const buffers(memory::host(), 4 * 32 * 512, 4096);
          dma_regions regions(memory::host(), 6);
          regions.add(buffers.data(), buffers.bytes());
          bench::fill_pattern<fiber>{store.as<std::uint32_t>(), blocks}();
          engine_options options;
          options.units = units;
          options.queue_slots = clients.queues;
          engine<fiber, fiber> engine(options, media{store.as<std::byte>(), blocks * 512, 512}, regions.table());
          constexpr std::uint32_t entries = 64;
          std::vector<bench::raw_queue> queues(clients.queues);
          std::vector<nvme::submission_entry> sq(entries * clients.queues);
          std::vector<nvme::completion_entry> cq(entries * clients.queues);
          std::vector<std::uint32_t> words(clients.queues * (entries + 2));
          for (std::uint32_t q = 0; q < clients.queues; ++q) {
            std::uint32_t* const mine = &words[q * (entries + 2)];
            queues[q].sq = &sq[q * entries];
            queues[q].cq = &cq[q * entries];
            queues[q].tail_doorbell = mine;
            queues[q].head_doorbell = mine + 1;
            queues[q].done = mine + 2;
            queues[q].entries = entries;
            engine.attach_completion_queue({q, queues[q].cq, entries, queues[q].head_doorbell});
            engine.attach_submission_queue({.slot = q,
                                            .id = static_cast<std::uint16_t>(q + 1),
                                            .entries = queues[q].sq,
                                            .size = entries,
                                            .tail_doorbell = queues[q].tail_doorbell,
                                            .cq_slot = q});
          }
          bench::raw_result result;
          bench::raw_client<fiber> client{queues.data(), clients.queues, buffers.as<std::byte>(), 0, {}, &result};
          client.work = {.blocks = blocks,
                         .write_percent = 30,
                         .rounds = rounds,
                         .in_order = true,  // nobody reads what another writes at the time
                         .check_all = true,
                         .lanes = clients.lanes,
                         .seed = seed};
          residency_words residency;
          resident_units<fiber> const kernel{engine.view(), &residency};
          std::uint32_t lanes_left = clients.client_blocks * 32;
          simt::grid grid = kernel.shape();
          grid.blocks += clients.client_blocks;
          auto const ran = simt::run({.memory = memory, .max_steps = 50'000'000, .record = false}, schedule, grid, [&] {
            if (fiber::this_block().rank < units) return kernel();
            client();
            // Relaxed: the order to leave carries nothing.
            if (simt::atomic<fiber>(lanes_left).fetch_sub(1, simt::order::relaxed) == 1) {
              simt::atomic<fiber, simt::scope::system>(residency.stop).store(1, simt::order::relaxed);
            }
          });
          ASSERT_TRUE(ran.ok) << ran.what;
          ASSERT_EQ(result.timed_out, 0u);
          ASSERT_EQ(result.commands, clients.client_blocks * clients.lanes * rounds);
          ASSERT_EQ(result.failed, 0u);
          ASSERT_EQ(result.wrong, 0u);
        },
        4);
  }
}

}  // namespace
}  // namespace forebay::emulator::testing
