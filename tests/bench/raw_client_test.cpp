// SPDX-License-Identifier: Apache-2.0
//! \file
//! The clients of the benchmarks beside the engine, as blocks of one launch, in deterministic schedules: every byte
//! checked, every completion counted.
#include "emulator/raw_client.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "emulator/own_queue_client.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/emulator/resident_units.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/memory.hpp"
#include "support/schedules.hpp"

namespace forebay::bench {
namespace {

using simt::fiber;

struct scenario {
  std::uint32_t units = 2;
  std::uint32_t unit_warps = 1;
  std::uint32_t queues = 1;
  std::uint32_t entries = 64;
  std::uint32_t cq_entries = 64;
  std::uint32_t blocks = 2;  ///< of the client; warps as many as a unit has
  std::uint32_t lanes = 32;
  std::uint32_t rounds = 3;
  std::uint64_t run_ns = 0;
  std::uint32_t block_bytes = 512;
  emulator::fault_plan faults;
  emulator::timing_parameters timing;

  std::uint32_t warps() const { return blocks * unit_warps; }
};

/// An engine, and queues that clients of several launches use one after another.
class rig {
 public:
  explicit rig(scenario const& s, std::uint64_t seed)
      : s_(s),
        blocks_(s.rounds * s.warps() * 32),
        store_(memory::host(), std::size_t{blocks_} * s.block_bytes, 4096),
        area_memory_(memory::host(), raw_area::bytes(s.warps() * 32, s.block_bytes), 4096),
        regions_(memory::host(), 6),
        engine_(options(s, seed), {store_.as<std::byte>(), store_.size_bytes(), 512}),
        queues_(s.queues),
        sq_(s.entries * s.queues),
        cq_(s.cq_entries * s.queues),
        doorbells_(2 * s.queues),
        told_(s.warps() * 32) {
    regions_.add(area_memory_.data(), area_memory_.size_bytes());
    fill_pattern<fiber>{store_.as<std::uint32_t>(), blocks_, s.block_bytes}();
    for (std::uint32_t q = 0; q < s.queues; ++q) {
      queues_[q].sq = &sq_[q * s.entries];
      queues_[q].cq = &cq_[q * s.cq_entries];
      queues_[q].tail_doorbell = &doorbells_[2 * q];
      queues_[q].head_doorbell = &doorbells_[2 * q + 1];
      queues_[q].entries = s.entries;
      queues_[q].cq_entries = s.cq_entries;
      engine_.attach_completion_queue({q, queues_[q].cq, s.cq_entries, queues_[q].head_doorbell});
      engine_.attach_submission_queue({.slot = q,
                                       .id = static_cast<std::uint16_t>(q + 1),
                                       .entries = queues_[q].sq,
                                       .size = s.entries,
                                       .tail_doorbell = queues_[q].tail_doorbell,
                                       .cq_slot = q,
                                       .regions = regions_.table()});
    }
  }

  /// Runs a client, and checks its results.
  template <class Client>
  void run(Client client, std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
    raw_result result;
    client.queues = queues_.data();
    client.area = {area_memory_.as<std::byte>(), 0, s_.warps() * 32};
    client.work = {.blocks = blocks_,
                   .block_bytes = s_.block_bytes,
                   .write_percent = 30,
                   .rounds = s_.rounds,
                   .run_ns = s_.run_ns,
                   .in_order = true,  // nobody reads what another writes at the time
                   .check_all = true,
                   .lanes = s_.lanes,
                   .seed = seed};
    client.result = &result;
    client.first_warp = s_.units * s_.unit_warps;
    emulator::residency_words residency;
    emulator::resident_units<fiber> const kernel{engine_.view(), &residency};
    std::uint32_t lanes_left = s_.warps() * 32;
    simt::grid grid = kernel.shape();
    grid.blocks += s_.blocks;
    auto const ran = simt::run({.memory = memory, .max_steps = 50'000'000, .record = false}, schedule, grid, [&] {
      if (fiber::this_block().rank < s_.units) return kernel();
      client();
      // Relaxed: the order to leave carries nothing.
      if (simt::atomic<fiber>(lanes_left).fetch_sub(1, simt::order::relaxed) == 1) {
        simt::atomic<fiber, simt::scope::system>(residency.stop).store(1, simt::order::relaxed);
      }
    });
    ASSERT_TRUE(ran.ok) << ran.what;
    time_ns_ = ran.time_ns;
    std::uint64_t const asked = s_.warps() * s_.lanes * s_.rounds;
    commands_ += result.commands;
    ASSERT_EQ(result.timed_out, 0u);
    if (s_.run_ns == 0) {
      ASSERT_EQ(result.commands, asked);
    } else {
      std::uint64_t const each_ns = s_.timing.read.latency_min_ps / 1000;
      ASSERT_EQ(result.commands, s_.warps() * s_.lanes * (s_.run_ns / each_ns + 1));
    }
    ASSERT_EQ(result.failed, 0u);
    ASSERT_EQ(result.wrong, 0u);
    std::uint64_t timed = 0;
    for (std::uint32_t const in_bin : result.latency_bin) timed += in_bin;
    ASSERT_EQ(timed, result.commands);
    ASSERT_LE(result.latency_min_ns, result.latency_max_ns);
    std::uint64_t in_queues = 0;
    for (raw_queue const& queue : queues_) {
      in_queues += queue.reserved.tickets();
      ASSERT_EQ(queue.consumed, queue.reserved.tickets());
      ASSERT_EQ(*queue.tail_doorbell, queue.reserved.tickets() % s_.entries);
      ASSERT_EQ(*queue.head_doorbell, queue.consumed % s_.cq_entries);
    }
    ASSERT_EQ(in_queues, commands_);
    for (std::uint32_t const word : told_) ASSERT_EQ(word, 0u);
  }

  void run_sharing(std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
    raw_client<fiber> client;
    client.queue_count = s_.queues;
    client.told = told_.data();
    run(client, seed, memory, schedule);
  }
  void run_alone(std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
    run(own_queue_client<fiber>(), seed, memory, schedule);
  }
  /// How long the last run took, in virtual time.
  std::uint64_t time_ns() const { return time_ns_; }

 private:
  static emulator::engine_options options(scenario const& s, std::uint64_t seed) {
    emulator::engine_options options;
    options.units = s.units;
    options.dispatchers_per_unit = s.unit_warps;
    options.queue_slots = s.queues;
    options.timing = s.timing;
    options.faults = s.faults;
    options.faults.seed = seed;
    return options;
  }

  scenario const s_;
  std::uint32_t const blocks_;
  memory::allocation const store_;
  memory::allocation const area_memory_;
  emulator::dma_regions regions_;
  emulator::engine<fiber, fiber> engine_;
  std::vector<raw_queue> queues_;
  std::vector<nvme::submission_entry> sq_;
  std::vector<nvme::completion_entry> cq_;
  std::vector<std::uint32_t> doorbells_, told_;
  std::uint64_t commands_ = 0, time_ns_ = 0;
};

void explore_sharing(scenario const& s, std::uint64_t divisor = 6) {
  emulator::testing::explore([&](std::uint64_t seed, simt::memory_model memory,
                                 simt::scheduler& schedule) { rig(s, seed).run_sharing(seed, memory, schedule); },
                             divisor);
}
void explore_alone(scenario const& s, std::uint64_t divisor = 6) {
  emulator::testing::explore([&](std::uint64_t seed, simt::memory_model memory,
                                 simt::scheduler& schedule) { rig(s, seed).run_alone(seed, memory, schedule); },
                             divisor);
}

/// Completions come one after another, in order.
emulator::timing_parameters spread() {
  emulator::timing_parameters timing;
  timing.read = timing.write = {.per_command_ps = 400'000, .latency_min_ps = 20'000'000};
  return timing;
}
/// Completions of a batch come in any order.
emulator::fault_plan reorder() {
  return {.delay_ppm = 500'000, .delay_max_ns = 5000};
}

TEST(raw_client, has_a_queue_for_each_warp) {
  explore_sharing({.queues = 2});
}
TEST(raw_client, warps_share_a_queue) {
  explore_sharing({.blocks = 3});
}
TEST(raw_client, warps_share_a_queue_that_has_room_for_all) {
  explore_sharing({.entries = 128, .cq_entries = 256, .blocks = 3});
}
TEST(raw_client, few_lanes_share_a_queue_often) {
  explore_sharing({.unit_warps = 2, .lanes = 5, .rounds = 10});
}
TEST(raw_client, completions_are_spread) {
  explore_sharing({.blocks = 3, .lanes = 9, .timing = spread()});
}
TEST(raw_client, completions_come_in_any_order) {
  explore_sharing({.blocks = 3, .lanes = 20, .faults = reorder()});
}
TEST(raw_client, completions_come_in_any_order_where_there_is_room_for_all) {
  explore_sharing({.entries = 64, .cq_entries = 256, .blocks = 3, .lanes = 7, .rounds = 12, .faults = reorder()});
}
// The client gives back the place of a completion although the command of the thread that read it is not complete: the
// drive may need the place for that command.
TEST(raw_client, completions_come_in_any_order_where_their_ring_is_no_larger) {
  explore_sharing(
      {.units = 1, .blocks = 7, .lanes = 8, .rounds = 12, .faults = {.delay_ppm = 10'000, .delay_max_ns = 100'000}});
}
TEST(raw_client, more_warps_than_their_word_has_bits) {
  explore_sharing({.units = 1, .unit_warps = 17, .lanes = 1, .rounds = 4, .faults = reorder()}, 12);
}
TEST(raw_client, transfers_have_lists_of_pages) {
  explore_sharing({.blocks = 1, .lanes = 2, .block_bytes = 16384}, 12);
}
TEST(raw_client, transfers_have_two_pages) {
  explore_sharing({.blocks = 1, .lanes = 2, .block_bytes = 8192}, 12);
}

TEST(own_queue_client, one_warp) {
  explore_alone({.blocks = 1});
}
TEST(own_queue_client, several_warps) {
  explore_alone({.unit_warps = 2, .queues = 4});
}
TEST(own_queue_client, one_lane_a_queue) {
  explore_alone({.unit_warps = 2, .queues = 4, .lanes = 1, .rounds = 70}, 10);
}
TEST(own_queue_client, completions_are_spread) {
  explore_alone({.queues = 2, .timing = spread()});
}
TEST(own_queue_client, completions_come_in_any_order) {
  explore_alone({.queues = 2, .lanes = 20, .rounds = 8, .faults = reorder()});
}
TEST(own_queue_client, completion_ring_is_larger) {
  explore_alone({.cq_entries = 128, .blocks = 1, .rounds = 6, .timing = spread()});
}
TEST(own_queue_client, transfers_have_lists_of_pages) {
  explore_alone({.blocks = 1, .lanes = 2, .block_bytes = 16384}, 12);
}

// Of 32 commands at once the last completes 12.4 us after the first, and the next 32 follow it at once.
TEST(own_queue_client, a_warp_goes_on_when_all_its_commands_are_complete) {
  scenario const s{.blocks = 1, .rounds = 10, .timing = spread()};
  emulator::testing::explore(
      [&](std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
        rig one(s, seed);
        one.run_alone(seed, memory, schedule);
        EXPECT_GE(one.time_ns(), 10 * (20'000u + 12'400u));
        EXPECT_LE(one.time_ns(), 10 * (20'000u + 13'000u));
      },
      12);
}

TEST(clients, stop_in_time) {
  // Each batch takes 20 us or more: the one that begins before the 50th is the third.
  scenario const s{.blocks = 1, .lanes = 1, .rounds = 10, .run_ns = 50'000, .timing = spread()};
  for (bool const alone : {false, true}) {
    emulator::testing::explore(
        [&](std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
          rig one(s, seed);
          alone ? one.run_alone(seed, memory, schedule) : one.run_sharing(seed, memory, schedule);
        },
        12);
  }
}

TEST(raw_client, clients_of_either_kind_follow_each_other) {
  emulator::testing::explore(
      [](std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
        rig both({.queues = 2, .lanes = 11}, seed);
        both.run_sharing(seed, memory, schedule);
        if (testing::Test::HasFatalFailure()) return;
        both.run_alone(seed + 1, memory, schedule);
        if (testing::Test::HasFatalFailure()) return;
        both.run_sharing(seed + 2, memory, schedule);
      },
      6);
}

}  // namespace
}  // namespace forebay::bench
