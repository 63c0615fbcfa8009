// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/timing_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "support/schedules.hpp"

namespace forebay::emulator {
namespace {

using model = timing_model<simt::native>;
constexpr std::uint64_t us = 1'000'000;  // in picoseconds

template <class Visit>
void for_each_charge(timing_parameters const& p, timed_command const& command, Visit&& visit) {
  channel_span const span(p, command);
  for (std::uint64_t j = 0; j < span.touched; ++j) {
    visit((span.first_stripe + j) % p.channels, charge_ps(p, command, span, j));
  }
}

struct state {
  std::vector<std::uint64_t> next_free = std::vector<std::uint64_t>(timing_parameters::max_channels);
  std::vector<std::uint64_t> scratch = std::vector<std::uint64_t>(timing_parameters::max_channels);
};

std::uint64_t one(timing_parameters const& parameters, state& s, timed_command command, std::uint64_t arrival) {
  model(parameters, s.next_free.data())
      .assign(simt::team<simt::native>::here(), &command, 1, arrival, s.scratch.data());
  return command.target_ps;
}

timed_command read_at(std::uint64_t offset, std::uint64_t bytes) {
  return {.offset_bytes = offset, .bytes = bytes};
}

TEST(timing_model, a_lone_small_command_takes_the_least_latency) {
  for (std::uint32_t channels : {1u, 2u, 8u, 64u}) {
    timing_parameters p;
    p.channels = channels;
    p.read = {.per_command_ps = 404'858, .per_byte_fs = 71'429, .granule_bytes = 512, .latency_min_ps = 50 * us};
    state s;
    EXPECT_EQ(one(p, s, read_at(8192, 512), 7 * us), 57 * us);
  }
}

TEST(timing_model, what_was_idle_is_still_there_for_a_command_that_is_brought_late) {
  for (std::uint64_t const disorder : {std::uint64_t{0}, 5 * us}) {
    timing_parameters p;
    p.read = {.per_command_ps = 1 * us, .latency_min_ps = 50 * us};
    p.disorder_ps = disorder;
    state s;
    EXPECT_EQ(one(p, s, read_at(0, 512), 20 * us), 70 * us);
    // It had arrived before, while the drive was idle.
    EXPECT_EQ(one(p, s, read_at(0, 512), 17 * us), (disorder == 0 ? 71 : 67) * us);
    // So long ago that it is late whatever the drive does; still not before its own least latency.
    EXPECT_EQ(one(p, s, read_at(0, 512), 2 * us), (disorder == 0 ? 72 : 67) * us);
  }
}

TEST(timing_model, disorder_makes_no_drive_faster) {
  timing_parameters p;
  p.read = {.per_command_ps = 1 * us, .latency_min_ps = 50 * us};
  p.disorder_ps = 5 * us;
  state s;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    // The first few commands find what was idle before; no command is complete before its least latency.
    EXPECT_EQ(one(p, s, read_at(0, 512), 100 * us), (i < 6 ? 150 : 145 + i) * us);
  }
}

TEST(timing_model, a_saturated_drive_completes_one_command_each_cost) {
  for (std::uint32_t channels : {1u, 4u}) {
    timing_parameters p;
    p.channels = channels;
    p.read = {.per_command_ps = 50 * us, .latency_min_ps = 500 * us};
    state s;
    std::uint64_t last = 0;
    constexpr std::uint64_t n = 1000;
    for (std::uint64_t i = 0; i < n; ++i) last = one(p, s, read_at(i % channels * 4096, 512), 0);
    // n commands take n costs, and the last waits for the least latency less its own occupancy.
    EXPECT_EQ(last, n * 50 * us + 500 * us - 50 * us * channels);
  }
}

TEST(timing_model, bytes_cost_what_the_bandwidth_says) {
  timing_parameters p;
  p.read = {.per_command_ps = 0, .per_byte_fs = 1'000'000'000'000'000 / 3'350'000'000, .latency_min_ps = 0};
  state s;
  std::uint64_t last = 0;
  for (int i = 0; i < 1000; ++i) last = one(p, s, read_at(0, 256 << 10), 0);
  double const bytes_a_second = 1000.0 * (256 << 10) / (static_cast<double>(last) * 1e-12);
  EXPECT_NEAR(bytes_a_second, 3.35e9, 3.35e9 * 1e-3);
}

TEST(timing_model, a_granule_rounds_up) {
  timing_parameters p;
  p.read = {.per_command_ps = 1000, .per_byte_fs = 1000, .granule_bytes = 4096, .latency_min_ps = 0};
  EXPECT_EQ(p.read.cost_ps(512), 1000u + 4096);
  EXPECT_EQ(p.read.cost_ps(4096), 1000u + 4096);
  EXPECT_EQ(p.read.cost_ps(4097), 1000u + 8192);
}

TEST(timing_model, a_command_over_several_channels_charges_each) {
  timing_parameters p;
  p.channels = 4;
  p.channel_stride_bytes = 4096;
  p.read = {.per_command_ps = 400, .per_byte_fs = 1000, .granule_bytes = 512, .latency_min_ps = 0};
  // From 512 before a stripe's end over two whole stripes to 1024 into the next: channels 1, 2, 3 and 0.
  timed_command const command = read_at(4096 + 3584, 512 + 2 * 4096 + 1024);
  std::vector<std::uint64_t> charge(4);
  for_each_charge(p, command, [&](std::uint64_t channel, std::uint64_t ps) { charge[channel] += ps; });
  EXPECT_EQ(charge[1], 400u * 4 / 4 + 512 * 4);
  EXPECT_EQ(charge[2], 400u * 4 / 4 + 4096 * 4);
  EXPECT_EQ(charge[3], 400u * 4 / 4 + 4096 * 4);
  EXPECT_EQ(charge[0], 400u * 4 / 4 + 1024 * 4);
}

TEST(timing_model, charges_by_channel_cover_every_byte_once) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 5000; ++round) {
    timing_parameters p;
    p.channels = 1 + static_cast<std::uint32_t>(random() % 64);
    p.channel_stride_bytes = 512u << random() % 8;
    p.read = {.per_command_ps = 0, .per_byte_fs = 1000, .granule_bytes = 1, .latency_min_ps = 0};
    timed_command const command = read_at(512 * (random() % 4096), 512 * (1 + random() % 512));
    std::vector<std::uint64_t> expected(p.channels);
    for (std::uint64_t at = command.offset_bytes; at < command.offset_bytes + command.bytes; at += 512) {
      expected[at / p.channel_stride_bytes % p.channels] += 512 * std::uint64_t{p.channels};
    }
    std::vector<std::uint64_t> charge(p.channels);
    for_each_charge(p, command, [&](std::uint64_t channel, std::uint64_t ps) { charge[channel] += ps; });
    ASSERT_EQ(charge, expected) << "round " << round;
  }
}

TEST(timing_model, reads_and_writes_and_the_rest_cost_their_own) {
  timing_parameters p;
  p.read.latency_min_ps = 10 * us;
  p.write.latency_min_ps = 20 * us;
  p.other.latency_min_ps = 30 * us;
  state s;
  EXPECT_EQ(one(p, s, {.bytes = 512, .op = operation::read}, 0), 10 * us);
  EXPECT_EQ(one(p, s, {.bytes = 512, .op = operation::write}, 0), 20 * us);
  EXPECT_EQ(one(p, s, {.bytes = 0, .op = operation::other}, 0), 30 * us);
}

TEST(timing_model, a_command_that_failed_its_checks_costs_nothing) {
  timing_parameters p;
  p.read = {.per_command_ps = 5 * us, .latency_min_ps = 10 * us};
  state s;
  EXPECT_EQ(one(p, s, {.bytes = 512, .charged = false}, 3 * us), 3 * us);
  EXPECT_EQ(s.next_free[0], 0u);
}

timing_parameters draw_parameters(std::mt19937_64& random, std::uint32_t most_channels) {
  timing_parameters p;
  p.channels = 1 + static_cast<std::uint32_t>(random() % most_channels);
  p.channel_stride_bytes = 512u << random() % 6;
  for (operation_cost* cost : {&p.read, &p.write, &p.other}) {
    *cost = {.per_command_ps = random() % 1'000'000,
             .per_byte_fs = random() % 300'000,
             .granule_bytes = 512u << random() % 4,
             .latency_min_ps = random() % (100 * us)};
  }
  p.jitter_ps = random() % 3 == 0 ? random() % (10 * us) : 0;
  p.seed = random();
  p.disorder_ps = random() % 2 == 0 ? random() % (10 * us) : 0;
  return p;
}

std::vector<timed_command> draw_batch(std::mt19937_64& random) {
  std::vector<timed_command> commands(1 + random() % 64);
  for (timed_command& command : commands) {
    command.op = static_cast<operation>(random() % 3);
    command.offset_bytes = 512 * (random() % 100'000);
    command.bytes = command.op == operation::other && random() % 2 == 0 ? 0 : 512 * (1 + random() % 300);
    command.sequence = random();
    command.charged = random() % 10 != 0;
  }
  return commands;
}

template <class M>
void assign(timing_parameters const& p, state& s, std::vector<timed_command>& batch, std::uint64_t arrival) {
  timing_model<M>(p, s.next_free.data())
      .assign(simt::team<M>::here(), batch.data(), static_cast<std::uint32_t>(batch.size()), arrival, s.scratch.data());
}

TEST(timing_model, a_batch_gives_what_one_by_one_gives) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    timing_parameters const p = draw_parameters(random, round % 2 == 0 ? 8 : 64);
    state together, apart;
    std::uint64_t arrival = 0;
    for (int batch = 0; batch < 5; ++batch) {
      arrival += random() % (20 * us);
      auto const commands = draw_batch(random);
      auto batched = commands;
      assign<simt::native>(p, together, batched, arrival);
      for (std::size_t i = 0; i < commands.size(); ++i) {
        ASSERT_EQ(batched[i].target_ps, one(p, apart, commands[i], arrival)) << "round " << round << " command " << i;
      }
      ASSERT_EQ(together.next_free, apart.next_free);
    }
  }
}

class timing_model_of_a_team : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(lanes, timing_model_of_a_team, ::testing::Values(1u, 5u, 32u));

TEST_P(timing_model_of_a_team, a_batch_gives_what_one_by_one_gives) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  constexpr std::uint32_t most_channels[] = {1, 8, 64};
  for (std::uint64_t round = 0; round < 48; ++round) {
    timing_parameters const p = draw_parameters(random, most_channels[round % 3]);
    state together, apart;
    std::uint64_t const arrivals[] = {random() % (20 * us), 20 * us + random() % (20 * us)};
    std::vector<std::vector<timed_command>> const batches = {draw_batch(random), draw_batch(random)};
    auto batched = batches;
    testing::on_team(GetParam(), seed + round, [&] {
      for (std::size_t b = 0; b < 2; ++b) assign<simt::fiber>(p, together, batched[b], arrivals[b]);
    });
    for (std::size_t b = 0; b < 2; ++b) {
      for (std::size_t i = 0; i < batches[b].size(); ++i) {
        ASSERT_EQ(batched[b][i].target_ps, one(p, apart, batches[b][i], arrivals[b]))
            << "round " << round << " batch " << b << " command " << i;
      }
    }
    ASSERT_EQ(together.next_free, apart.next_free);
  }
}

TEST(timing_model, jitter_is_a_function_of_seed_and_command_and_only_delays) {
  timing_parameters p;
  p.read.latency_min_ps = 10 * us;
  p.jitter_ps = 4 * us;
  std::vector<std::uint64_t> first, second, other;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    state a, b, c;
    p.seed = 1;
    first.push_back(one(p, a, {.bytes = 512, .sequence = i}, 0));
    second.push_back(one(p, b, {.bytes = 512, .sequence = i}, 0));
    p.seed = 2;
    other.push_back(one(p, c, {.bytes = 512, .sequence = i}, 0));
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_GE(*std::min_element(first.begin(), first.end()), 10 * us);
  EXPECT_LE(*std::max_element(first.begin(), first.end()), 14 * us);
  EXPECT_GT(*std::max_element(first.begin(), first.end()), 13 * us);
}

TEST(timing_model, immediate_only_without_any_cost) {
  timing_parameters p;
  EXPECT_TRUE(p.immediate());
  p.write.latency_min_ps = 1;
  EXPECT_FALSE(p.immediate());
}

TEST(timing_model, a_link_is_shared_by_drives_and_has_two_directions) {
  timing_parameters p;
  p.link_byte_fs = 1'000'000;  // 1 GB/s: 512 bytes take 512 ns
  p.read.latency_min_ps = p.write.latency_min_ps = 10 * us;
  state a, b;
  std::uint64_t link[2] = {};
  auto const one_on = [&](state& s, timed_command command) {
    model(p, s.next_free.data(), link).assign(simt::team<simt::native>::here(), &command, 1, 0, s.scratch.data());
    return command.target_ps;
  };
  timed_command write = read_at(0, 512);
  write.op = operation::write;
  EXPECT_EQ(one_on(a, read_at(0, 512)), 10 * us + 512'000);
  EXPECT_EQ(one_on(b, read_at(0, 512)), 10 * us + 2 * 512'000) << "another drive, the same link";
  EXPECT_EQ(one_on(a, write), 10 * us + 512'000) << "the other way";
  timed_command flush = read_at(0, 0);
  flush.op = operation::other;
  EXPECT_EQ(one_on(a, flush), 0u) << "no data passes";
  // A batch passes in order, and a drive that is slower than the link hides it.
  std::vector<timed_command> batch = {read_at(0, 512), write, read_at(4096, 1024)};
  model(p, a.next_free.data(), link).assign(simt::team<simt::native>::here(), batch.data(), 3, 0, a.scratch.data());
  EXPECT_EQ(batch[0].target_ps, 10 * us + 3 * 512'000);
  EXPECT_EQ(batch[1].target_ps, 10 * us + 2 * 512'000);
  EXPECT_EQ(batch[2].target_ps, 10 * us + 5 * 512'000);
  p.read.per_command_ps = 50 * us;
  EXPECT_EQ(one_on(b, read_at(0, 512)), 50 * us);
}

}  // namespace
}  // namespace forebay::emulator
