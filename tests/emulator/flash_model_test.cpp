// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/flash_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "emulator/flash_reference.hpp"
#include "emulator/rig.hpp"
#include "forebay/detail/emulator/flash_state.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "support/schedules.hpp"

namespace forebay::emulator {
namespace {

using simt::fiber;
using simt::native;
constexpr std::uint64_t us = 1'000'000;  // in picoseconds

/// Checks the conditions that the state must meet whenever no thread works on it.
template <class M>
void expect_consistent(flash_model<M> const& model) {
  flash_geometry const& g = model.geometry();
  auto const& at = model.memory();
  std::uint32_t const places = g.blocks_per_die * g.pages_per_block;
  for (std::uint32_t d = 0; d < g.dies; ++d) {
    flash_die const& die = at.dies[d];
    ASSERT_EQ(die.lock, 0u);
    std::set<std::uint32_t> free;
    for (std::uint32_t i = 0; i < die.free_blocks; ++i) {
      free.insert(at.free_ring[d * g.blocks_per_die + (die.first_free + i) % g.blocks_per_die]);
    }
    ASSERT_EQ(free.size(), die.free_blocks) << "a block is free twice";
    std::vector<std::uint32_t> valid(g.blocks_per_die);
    for (std::uint32_t page = 0; page < g.pages_per_die; ++page) {
      std::uint32_t const mapped = at.map[std::size_t{d} * g.pages_per_die + page];
      if (mapped == 0) continue;
      std::uint32_t const place = mapped - 1;
      ASSERT_LT(place, places);
      ASSERT_EQ(at.holds[std::size_t{d} * places + place], page) << "another page is where the map says this one is";
      std::uint32_t const block = place / g.pages_per_block;
      ASSERT_FALSE(free.contains(block)) << "a page in a free block";
      if (block == die.open_block) {
        ASSERT_LT(place % g.pages_per_block, die.open_pages) << "a page that was never appended";
      }
      ++valid[block];
    }
    for (std::uint32_t block = 0; block < g.blocks_per_die; ++block) {
      std::uint32_t const counted = at.valid_pages[d * g.blocks_per_die + block];
      ASSERT_EQ(counted, free.contains(block) ? flash_model<M>::is_free : valid[block]) << "block " << block;
    }
    std::uint32_t const left = die.open_block == flash_die::none ? 0 : g.pages_per_block - die.open_pages;
    ASSERT_GE(die.free_blocks * g.pages_per_block + left, g.pages_per_block - 1) << "places ran out";
    ASSERT_EQ(die.counts.pages_programmed % g.pages_per_program, 0u);
    // No work is lost, whichever caller did it.
    std::uint64_t const programs = die.counts.pages_programmed / g.pages_per_program;
    ASSERT_GE(die.next_free_ps, programs * (g.program_ps + g.bus_ps(g.stretch_bytes())) +
                                    die.counts.blocks_erased * g.erase_ps +
                                    die.counts.pages_migrated * g.bus_ps(g.page_bytes));
  }
}

flash_parameters small_flash() {
  flash_parameters p;
  p.channels = 2;
  p.dies_per_channel = 1;
  p.page_bytes = 512;
  p.read_bytes = 1024;
  p.program_bytes = 2048;
  p.block_bytes = 8192;
  p.read_ps = 30 * us;
  p.program_ps = 200 * us;
  p.erase_ps = 1000 * us;
  p.channel_byte_fs = 2'000'000;
  p.buffer_bytes = 2 * 2 * 2048;
  p.spare_ppm = 250'000;
  return p;
}

template <class M>
std::uint64_t one(flash_model<M> const& model, timed_command command, std::uint64_t arrival) {
  command.target_ps = 0;
  flash_model<M>::assign(&model, simt::team<M>::here(), &command, 1, arrival);
  return command.target_ps;
}

timed_command command(operation op, std::uint64_t offset, std::uint64_t bytes) {
  return {.offset_bytes = offset, .bytes = bytes, .op = op};
}

flash_parameters draw_parameters(std::mt19937_64& random) {
  flash_parameters p;
  p.channels = 1 + static_cast<std::uint32_t>(random() % 3);
  p.dies_per_channel = 1 + static_cast<std::uint32_t>(random() % 2);
  p.page_bytes = 512u << random() % 2;
  p.read_bytes = p.page_bytes * (1 + static_cast<std::uint32_t>(random() % 3));
  p.program_bytes = p.read_bytes * (1 + static_cast<std::uint32_t>(random() % 2));
  p.block_bytes = p.program_bytes * (2 + static_cast<std::uint32_t>(random() % 4));
  p.read_ps = random() % (50 * us);
  p.program_ps = random() % (300 * us);
  p.erase_ps = random() % (3000 * us);
  p.channel_byte_fs = random() % 3'000'000;
  p.buffer_bytes = std::uint64_t{p.program_bytes} * p.channels * p.dies_per_channel * (1 + random() % 3);
  p.spare_ppm = 150'000 + static_cast<std::uint32_t>(random() % 300'000);
  return p;
}

timed_command draw_command(std::mt19937_64& random, std::uint64_t drive_bytes) {
  constexpr operation kinds[] = {operation::read, operation::write, operation::write, operation::write,
                                 operation::write};
  operation const op = random() % 40 == 0 ? operation::other : kinds[random() % 5];
  std::uint64_t const blocks = drive_bytes / 512;
  std::uint64_t const length = random() % 8 == 0 ? 1 + random() % (blocks / 3) % 64 : 1 + random() % 4;
  std::uint64_t const first = random() % (blocks - length);
  return {.offset_bytes = first * 512, .bytes = length * 512, .op = op, .charged = random() % 20 != 0};
}

std::uint64_t drive_bytes_of(flash_parameters const& p, std::mt19937_64& random) {
  // Some shapes have more blocks in a die than the search for the best one looks at.
  std::uint64_t const blocks = random() % 4 == 0 ? 90 : 30;
  return blocks * p.block_bytes * p.channels * p.dies_per_channel + 512 * (1 + random() % 50);
}

template <class M>
void expect_same(flash_model<M> const& model, testing::flash_reference const& expected, flash_counters const& counts) {
  flash_geometry const& g = model.geometry();
  for (std::uint64_t page = 0; page < g.pages; ++page) {
    std::uint64_t const stretch = page / g.pages_per_program;
    std::size_t const index =
        stretch % g.dies * g.pages_per_die + stretch / g.dies * g.pages_per_program + page % g.pages_per_program;
    std::uint32_t const mapped = model.memory().map[index];
    auto const where = expected.where(page);
    ASSERT_EQ(mapped, where ? where->block * g.pages_per_block + where->index + 1 : 0) << "page " << page;
  }
  for (std::uint32_t d = 0; d < g.dies; ++d) ASSERT_EQ(model.memory().dies[d].next_free_ps, expected.busy_until(d));
  flash_counters::for_each([&](char const* name, std::uint64_t flash_counters::* counter) {
    ASSERT_EQ(counts.*counter, expected.counts().*counter) << name;
  });
}

TEST(flash_model, does_what_the_reference_does_command_by_command) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  std::uint64_t erased = 0;
  for (int round = 0; round < 60; ++round) {
    flash_parameters const p = draw_parameters(random);
    std::uint64_t const drive_bytes = drive_bytes_of(p, random);
    flash_state<native> state(p, drive_bytes, 0, memory::host());
    testing::flash_reference expected(p, state.geometry());
    std::uint64_t arrival = 0;
    for (int i = 0; i < 4000; ++i) {
      arrival += random() % (100 * us);
      timed_command const c = draw_command(random, drive_bytes);
      ASSERT_EQ(one(*state.model(), c, arrival), c.charged ? expected.due(c, arrival) : 0)
          << "round " << round << " command " << i;
    }
    flash_counters counts;
    state.collect<native>(counts);
    expect_same(*state.model(), expected, counts);
    expect_consistent(*state.model());
    if (::testing::Test::HasFatalFailure()) return;
    erased += counts.blocks_erased;
  }
  EXPECT_GT(erased, 10'000u) << "hardly any collection was compared";
}

class flash_model_of_a_team : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(lanes, flash_model_of_a_team, ::testing::Values(1u, 2u, 5u, 32u));

TEST_P(flash_model_of_a_team, a_batch_does_what_the_reference_does) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  for (std::uint64_t round = 0; round < 12; ++round) {
    flash_parameters const p = draw_parameters(random);
    std::uint64_t const drive_bytes = 30 * std::uint64_t{p.block_bytes} * p.channels * p.dies_per_channel;
    flash_state<fiber> state(p, drive_bytes, 0, memory::host());
    testing::flash_reference expected(p, state.geometry());
    std::vector<std::vector<timed_command>> batches(10);
    for (auto& batch : batches) {
      for (std::uint32_t i = 0; i < 32; ++i) batch.push_back(draw_command(random, drive_bytes));
    }
    auto batched = batches;
    testing::on_team(GetParam(), seed + round, [&] {
      for (std::size_t b = 0; b < batches.size(); ++b) {
        flash_model<fiber>::assign(state.model(), simt::team<fiber>::here(), batched[b].data(), 32, b * 500 * us);
      }
    });
    for (std::size_t b = 0; b < batches.size(); ++b) {
      for (std::size_t i = 0; i < 32; ++i) {
        timed_command const& c = batches[b][i];
        ASSERT_EQ(batched[b][i].target_ps, c.charged ? expected.due(c, b * 500 * us) : 0)
            << "round " << round << " batch " << b << " command " << i;
      }
    }
    flash_counters counts;
    state.collect<native>(counts);
    expect_same(*state.model(), expected, counts);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(flash_model, warps_that_write_at_once_lose_nothing) {
  testing::explore([](std::uint64_t seed, simt::memory_model memory, simt::scheduler& schedule) {
    std::mt19937_64 random(seed);
    flash_parameters const p = small_flash();
    constexpr std::uint64_t drive_bytes = 96 << 10, unwritten = 16 << 10;
    flash_state<fiber> state(p, drive_bytes, seed, memory::host());
    flash_model<fiber> const& model = *state.model();
    // All but the end is written, until collection is about to run in every die.
    flash_model<native>::arrays at;
    at.dies = model.memory().dies;
    at.bus_free_ps = model.memory().bus_free_ps;
    at.program_done = model.memory().program_done;
    at.free_ring = model.memory().free_ring;
    at.valid_pages = model.memory().valid_pages;
    at.map = model.memory().map;
    at.holds = model.memory().holds;
    flash_model<native> const host(model.geometry(), at);
    auto const somewhere = [&] { return random() % ((drive_bytes - unwritten) / 512) * 512; };
    for (std::uint64_t offset = 0; offset < drive_bytes - unwritten; offset += 512) {
      one(host, command(operation::write, offset, 512), 0);
    }
    auto const collects = [&] {
      return std::all_of(at.dies, at.dies + 2, [](flash_die const& die) { return die.free_blocks <= 1; });
    };
    for (int i = 0; i < 1000 && !collects(); ++i) one(host, command(operation::write, somewhere(), 512), 0);
    ASSERT_TRUE(collects());
    flash_counters before;
    state.collect<native>(before);
    std::uint64_t const clocks_before[] = {at.dies[0].next_free_ps, at.dies[1].next_free_ps};

    constexpr std::uint32_t warps = 3, lanes = 2, batches = 2, size = 3;
    constexpr std::uint64_t arrival = 50 * us;
    std::vector<timed_command> commands(warps * batches * size);
    std::uint64_t pages = 0;
    for (std::size_t i = 0; i < commands.size(); ++i) {
      std::uint64_t const where = somewhere();
      std::uint64_t const bytes = std::min<std::uint64_t>(1024, drive_bytes - unwritten - where);
      commands[i] = command(operation::write, where, bytes);
      if (i % 5 == 3) commands[i] = command(operation::read, drive_bytes - unwritten + random() % 8 * 1024, 1024);
      if (i % 7 == 6) commands[i] = command(operation::other, where, bytes);
      if (commands[i].op == operation::write) pages += bytes / 512;
    }
    auto const result = simt::run({.memory = memory}, schedule, {.blocks = warps, .threads_per_block = lanes}, [&] {
      std::uint32_t const first = fiber::this_block().rank * batches * size;
      for (std::uint32_t b = 0; b < batches; ++b) {
        flash_model<fiber>::assign(&model, simt::team<fiber>::here(), commands.data() + first + b * size, size,
                                   arrival);
      }
    });
    ASSERT_TRUE(result.ok) << result.what;
    EXPECT_EQ(result.timeouts, 0u);
    expect_consistent(model);
    flash_counters after;
    state.collect<native>(after);
    EXPECT_EQ(after.host_pages_written - before.host_pages_written, pages);
    EXPECT_GT(after.pages_migrated + after.blocks_erased, before.pages_migrated + before.blocks_erased);
    for (timed_command const& c : commands) {
      if (c.op == operation::other) continue;
      // A page that was never written is sensed, and crosses its bus.
      std::uint64_t const least = c.op == operation::read ? p.read_ps + 1024 * p.channel_byte_fs / 1000 : 0;
      EXPECT_GE(c.target_ps, arrival + least);
    }
    for (std::uint32_t d = 0; d < 2; ++d) EXPECT_GE(at.dies[d].next_free_ps, clocks_before[d]);
  });
}

TEST(flash_model, threads_that_write_at_once_lose_nothing) {
  flash_parameters p = small_flash();
  p.dies_per_channel = 2;
  p.buffer_bytes *= 2;
  p.start = preconditioning::random;
  constexpr std::uint64_t drive_bytes = 1 << 20, each = 3000;
  flash_state<native> state(p, drive_bytes, 1, memory::host());
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(t);
        for (std::uint64_t i = 0; i < each; ++i) {
          operation const op = i % 10 == 0 ? operation::read : operation::write;
          std::uint64_t const due = one(*state.model(), command(op, random() % (drive_bytes / 512) * 512, 512), i * us);
          EXPECT_GE(due, i * us);
          if (i % 100 == 0) {
            flash_counters counts;  // while the others write
            state.collect<native>(counts);
            EXPECT_LE(counts.host_pages_written, 4 * each);
          }
        }
      });
    }
  }
  expect_consistent(*state.model());
  flash_counters counts;
  state.collect<native>(counts);
  EXPECT_EQ(counts.host_pages_written, 4 * each * 9 / 10);
  EXPECT_EQ(counts.host_bytes_written, 4 * each * 9 / 10 * 512);
}

/// Host memory that is treated as a GPU's: it is reached only by copies, until the test looks.
class far_memory final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::kind::device; }
  void* allocate(std::size_t bytes, std::size_t alignment) override {
    return memory::host().allocate(bytes, alignment);
  }
  void deallocate(void* address) noexcept override { memory::host().deallocate(address); }
  void copy_in(void* to, void const* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_out(void* to, void const* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
};

TEST(flash_model, begins_the_same_in_memory_of_a_gpu) {
  far_memory far;
  for (auto const start : {preconditioning::fresh, preconditioning::full, preconditioning::random}) {
    flash_parameters p = small_flash();
    p.start = start;
    flash_state<native> here(p, 1 << 20, 5, memory::host()), there(p, 1 << 20, 5, far);
    expect_consistent(*there.model());
    std::mt19937_64 random(5);
    for (int i = 0; i < 3000; ++i) {
      timed_command const c = draw_command(random, 1 << 20);
      ASSERT_EQ(one(*here.model(), c, 0), one(*there.model(), c, 0)) << i;
    }
    flash_counters a, b;
    here.collect<native>(a);
    there.collect<native>(b);
    flash_counters::for_each([&](char const* name, std::uint64_t flash_counters::* counter) {
      EXPECT_EQ(a.*counter, b.*counter) << name;
      EXPECT_NE(a.*counter, 0u) << name;
    });
  }
}

TEST(flash_model, a_page_that_was_never_written_is_sensed_like_any_other) {
  flash_parameters const p = small_flash();
  flash_state<native> state(p, 1 << 20, 0, memory::host());
  EXPECT_EQ(one(*state.model(), command(operation::read, 4096, 512), 5 * us), 35 * us + 512 * 2000);
  EXPECT_EQ(one(*state.model(), command(operation::read, 4096, 1024), 100 * us), 130 * us + 1024 * 2000)
      << "two pages that are sensed together";
  EXPECT_EQ(one(*state.model(), command(operation::read, 4096, 2048), 200 * us), 260 * us + 2048 * 2000)
      << "four, that are not";
}

TEST(flash_model, the_buffer_takes_writes_until_it_is_full) {
  flash_parameters const p = small_flash();  // two programs of four pages for each of two dies
  flash_state<native> state(p, 1 << 20, 0, memory::host());
  auto const& model = *state.model();
  auto const write = [&](std::uint64_t stretch) {
    return one(model, command(operation::write, stretch * 2048, 2048), us);
  };
  EXPECT_EQ(write(0), us);
  EXPECT_EQ(write(2), us) << "the second part of the buffer";
  std::uint64_t const program = p.program_ps + 2048 * 2000;
  EXPECT_EQ(write(4), us + program) << "once the first program has ended";
  EXPECT_EQ(write(6), us + 2 * program);
  EXPECT_EQ(write(1), us) << "the other die's part is its own";
}

TEST(flash_model, what_is_in_the_buffer_is_read_and_written_over_there) {
  flash_state<native> state(small_flash(), 1 << 20, 0, memory::host());
  auto const& model = *state.model();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(one(model, command(operation::write, 512, 512), us), us);
  EXPECT_EQ(one(model, command(operation::read, 512, 512), 2 * us), 2 * us);
  flash_counters counts;
  state.collect<native>(counts);
  EXPECT_EQ(counts.host_pages_written, 10u);
  EXPECT_EQ(counts.pages_programmed, 0u);
  EXPECT_EQ(model.memory().dies[0].open_pages, 1u);
}

TEST(flash_model, deallocated_pages_need_no_migration) {
  flash_parameters p = small_flash();
  p.start = preconditioning::random;
  constexpr std::uint64_t drive_bytes = 256 << 10;
  auto const migrated = [&](std::uint64_t deallocated) {
    flash_state<native> state(p, drive_bytes, 7, memory::host());
    flash_model<native>::unmap(state.model(), simt::team<native>::here(), 256, deallocated);
    expect_consistent(*state.model());
    std::mt19937_64 random(3);
    for (int i = 0; i < 4000; ++i) {
      one(*state.model(), command(operation::write, random() % (drive_bytes / 1024) * 512, 512), 0);
    }
    flash_counters counts;
    state.collect<native>(counts);
    return counts.pages_migrated;
  };
  std::uint64_t const all = migrated(0);
  EXPECT_GT(all, 1000u);
  EXPECT_LT(migrated(drive_bytes - 512) * 4, all) << "pages covered in part stay, the others go";
}

TEST(flash_model, preconditioning_is_a_function_of_the_seed_and_costs_nothing) {
  flash_parameters p = small_flash();
  p.start = preconditioning::random;
  flash_state<native> a(p, 1 << 20, 1, memory::host()), b(p, 1 << 20, 1, memory::host()),
      c(p, 1 << 20, 2, memory::host());
  auto const map_of = [](flash_state<native> const& state) {
    flash_geometry const& g = state.geometry();
    std::uint32_t const* const map = state.model()->memory().map;
    return std::vector<std::uint32_t>(map, map + std::size_t{g.dies} * g.pages_per_die);
  };
  EXPECT_EQ(map_of(a), map_of(b));
  EXPECT_NE(map_of(a), map_of(c));
  auto const map = map_of(a);
  EXPECT_EQ(std::count(map.begin(), map.end(), 0u), 0) << "every page was written";
  expect_consistent(*a.model());
  flash_counters counts;
  a.collect<native>(counts);
  EXPECT_EQ(counts.pages_programmed, 0u) << "counts what the host makes it do";
  EXPECT_EQ(one(*a.model(), command(operation::write, 0, 512), 9 * us), 9 * us) << "the dies are idle";
}

TEST(flash_model, sequential_writes_over_a_full_drive_amplify_nothing_random_ones_do) {
  flash_parameters p = small_flash();
  constexpr std::uint64_t drive_bytes = 1 << 20;
  auto const amplification = [&](preconditioning start, bool sequential) {
    p.start = start;
    flash_state<native> state(p, drive_bytes, 1, memory::host());
    std::mt19937_64 random(1);
    for (std::uint64_t i = 0; i < 3 * drive_bytes / 512; ++i) {
      std::uint64_t const page = sequential ? i % (drive_bytes / 512) : random() % (drive_bytes / 512);
      one(*state.model(), command(operation::write, page * 512, 512), 0);
    }
    flash_counters counts;
    state.collect<native>(counts);
    return static_cast<double>(counts.pages_programmed) / static_cast<double>(counts.host_pages_written);
  };
  EXPECT_NEAR(amplification(preconditioning::full, true), 1.0, 0.01);
  EXPECT_GT(amplification(preconditioning::full, false), 1.5);
  // Steady from the first write on: later writes make no difference.
  EXPECT_NEAR(amplification(preconditioning::random, false), amplification(preconditioning::full, false), 0.2);
}

TEST(flash_model, refuses_a_drive_too_small_for_its_blocks_and_says_how_large_would_do) {
  flash_parameters const p = small_flash();
  std::string refusal;
  try {
    (void)flash_geometry_of(p, 4096);
  } catch (refused_input const& refused) {
    refusal = refused.what();
  }
  EXPECT_EQ(refusal.substr(0, 12), "size: '4096'") << refusal;
  std::size_t const at = refusal.find("at least ");
  ASSERT_NE(at, std::string::npos) << refusal;
  EXPECT_NO_THROW((void)flash_geometry_of(p, std::stoull(refusal.substr(at + 9)) << 20));
  flash_parameters bad = p;
  bad.buffer_bytes = 4095;
  EXPECT_THROW((void)flash_geometry_of(bad, 1 << 20), refused_input);
  bad = p;
  bad.read_bytes = 768;
  EXPECT_THROW((void)flash_geometry_of(bad, 1 << 20), refused_input);
}

TEST(flash_model, every_drive_that_is_not_refused_can_be_written_for_ever) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    flash_parameters p = draw_parameters(random);
    p.spare_ppm = 10'000 + static_cast<std::uint32_t>(random() % 300'000);
    std::uint64_t const drive_bytes = 512 * (1 + random() % 2000);
    std::optional<flash_state<native>> state;
    try {
      state.emplace(p, drive_bytes, 0, memory::host());
    } catch (refused_input const&) {
      continue;
    }
    // Full in order, then each page of one place of every block in turn: victims are as full as they can get.
    for (std::uint64_t offset = 0; offset < drive_bytes; offset += p.page_bytes) {
      one(*state->model(), command(operation::write, offset, p.page_bytes), 0);
    }
    for (std::uint64_t i = 0; i < 3000; ++i) {
      std::uint64_t const offset = i * p.block_bytes % drive_bytes / p.page_bytes * p.page_bytes;
      one(*state->model(), command(operation::write, offset, p.page_bytes), 0);
    }
    expect_consistent(*state->model());
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// 4 MiB of pages of 4 KiB, behind channels that cost a microsecond a command.
timing_parameters drive_with_flash(preconditioning start) {
  timing_parameters timing;
  timing.read = {.per_command_ps = us, .granule_bytes = 4096, .latency_min_ps = 60 * us};
  timing.write = {.per_command_ps = us, .granule_bytes = 4096, .latency_min_ps = 10 * us};
  timing.other = {.latency_min_ps = 10 * us};
  timing.flash = {.channels = 2,
                  .dies_per_channel = 2,
                  .page_bytes = 4096,
                  .read_bytes = 8192,
                  .program_bytes = 8192,
                  .block_bytes = 65536,
                  .read_ps = 40 * us,
                  .program_ps = 100 * us,
                  .erase_ps = 500 * us,
                  .channel_byte_fs = 1'000'000,
                  .buffer_bytes = 16 * 8192,
                  .spare_ppm = 200'000,
                  .start = start};
  return timing;
}

/// An engine in the test's own time, with a client that keeps its one queue full.
class flash_engine : public ::testing::Test {
 protected:
  struct outcome {
    std::uint64_t ns = 0;
    statistics counted;
  };

  template <class Entry>
  outcome run(timing_parameters const& timing, std::uint32_t commands, Entry&& entry) {
    engine_options options;
    options.timing = timing;
    testing::rig<> rig(options, 4 << 20, 4 << 20, 4096);
    auto completions = rig.completions(1, 64);
    auto queue = rig.queue(1, 17, 1);
    (void)rig.units().step(0);
    std::uint32_t submitted = 0, done = 0;
    std::uint64_t const begin_ns = testing::clocked::now_ns;
    while (done < commands) {
      for (; submitted < commands && submitted - done < 16; ++submitted) queue->submit(entry(rig, submitted));
      queue->ring();
      for (; rig.units().step(0);) {
      }
      for (; auto const completion = completions->take(); ++done) EXPECT_EQ(testing::code_of(*completion), 0);
      completions->ring();
      std::uint64_t const next_ns = rig.units().next_due_ns(0);
      if (submitted - done == 16 || submitted == commands) {
        if (next_ns == simt::no_deadline) break;
        testing::clocked::now_ns = std::max(testing::clocked::now_ns, next_ns);
      }
    }
    EXPECT_EQ(done, commands);
    auto const counted = std::make_unique<statistics>();
    rig.units().collect(*counted);
    return {testing::clocked::now_ns - begin_ns, *counted};
  }

  static nvme::submission_entry io(testing::rig<>& rig, nvme::io_opcode opcode, std::uint32_t i, std::uint64_t block) {
    nvme::submission_entry entry = nvme::make_io_command(opcode, static_cast<std::uint16_t>(i), 1, block, 1);
    entry.prp1 = rig.address();
    return entry;
  }
};

TEST_F(flash_engine, random_writes_are_slower_in_steady_state_than_fresh) {
  std::mt19937_64 random(1);
  auto const write = [&](testing::rig<>& rig, std::uint32_t i) {
    return io(rig, nvme::io_opcode::write, i, random() % 1024);
  };
  auto const fresh = run(drive_with_flash(preconditioning::fresh), 800, write);
  auto const steady = run(drive_with_flash(preconditioning::random), 800, write);
  for (auto const* counts : {&fresh.counted.flash, &steady.counted.flash}) {
    EXPECT_EQ(counts->host_pages_written, 800u);
    EXPECT_EQ(counts->host_bytes_written, 800u * 4096);
  }
  EXPECT_EQ(fresh.counted.flash.pages_migrated, 0u);
  EXPECT_GT(steady.counted.flash.pages_migrated, 400u);
  EXPECT_GT(steady.counted.flash.blocks_erased, 50u);
  EXPECT_GT(steady.ns, fresh.ns * 2);
  EXPECT_GT(steady.counted.target.sum_ns, fresh.counted.target.sum_ns * 2) << "by the model's own targets";
}

TEST_F(flash_engine, a_lone_read_takes_the_least_latency_and_one_behind_a_program_more) {
  auto const alone = run(drive_with_flash(preconditioning::full), 1,
                         [](testing::rig<>& rig, std::uint32_t i) { return io(rig, nvme::io_opcode::read, i, 5); });
  EXPECT_EQ(alone.ns, 60'000u);
  auto const behind = run(drive_with_flash(preconditioning::full), 3, [](testing::rig<>& rig, std::uint32_t i) {
    if (i == 2) return io(rig, nvme::io_opcode::read, i, 8);
    return io(rig, nvme::io_opcode::write, i, i);  // one program of the die that has pages 0, 1, 8 and 9
  });
  EXPECT_EQ(behind.ns, 60'000u + 100'000 + 8'192);
}

TEST_F(flash_engine, write_zeroes_and_deallocate_unmap) {
  for (auto const opcode : {nvme::io_opcode::write_zeroes, nvme::io_opcode::dataset_management}) {
    std::mt19937_64 random(2);
    auto const mixed = [&](testing::rig<>& rig, std::uint32_t i) {
      if (i != 0) return io(rig, nvme::io_opcode::write, i, random() % 256);
      if (opcode == nvme::io_opcode::write_zeroes) return nvme::make_io_command(opcode, 0, 1, 256, 768);
      nvme::dataset_management_range const range{.length_blocks = 768, .slba = 256};
      std::memcpy(rig.buffer(8192), &range, sizeof range);
      nvme::submission_entry entry = nvme::make_io_command(opcode, 0, 1, 0, 1);
      entry.cdw10 = 0;
      entry.cdw11 = nvme::cdw11_attribute_deallocate;
      entry.cdw12 = 0;
      entry.prp1 = rig.address(8192);
      return entry;
    };
    auto const with = run(drive_with_flash(preconditioning::random), 600, mixed);
    random.seed(2);
    auto const without = run(drive_with_flash(preconditioning::random), 600, [&](testing::rig<>& rig, std::uint32_t i) {
      return io(rig, nvme::io_opcode::write, i, random() % 256);
    });
    EXPECT_LT(with.counted.flash.pages_migrated * 2, without.counted.flash.pages_migrated);
  }
}

}  // namespace
}  // namespace forebay::emulator
