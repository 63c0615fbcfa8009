// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "emulator/rig.hpp"
#include "support/seed.hpp"

namespace forebay::emulator::testing {
namespace {

using nvme::generic_status;
using nvme::io_opcode;
using nvme::media_status;

/// One queue, one command at a time.
class engine_status : public ::testing::Test {
 protected:
  engine_status() : cq(drive.completions(1, 8)), sq(drive.queue(1, 8, 1)) {}

  nvme::completion_entry run(nvme::submission_entry const& entry) {
    sq->submit(entry);
    sq->ring();
    drive.units().step(0);
    auto const done = cq->take();
    cq->ring();
    EXPECT_TRUE(done.has_value());
    EXPECT_EQ(done->command_id(), entry.command_id());
    EXPECT_EQ(done->sq_id(), 1);
    EXPECT_EQ(done->sq_head(), sq->tail);
    return *done;
  }
  std::uint16_t code(nvme::submission_entry const& entry) { return code_of(run(entry)); }
  static std::uint16_t field(generic_status code) { return nvme::status_field(code); }

  rig<> drive;
  std::unique_ptr<client_completions> cq;
  std::unique_ptr<client_queue> sq;
  static constexpr std::uint64_t blocks = (1 << 20) / 512;
};

TEST_F(engine_status, writes_reach_the_drive_and_reads_return_them) {
  std::mt19937_64 random(1);
  for (std::uint64_t i = 0; i < 8192; i += 8) std::memcpy(drive.buffer(i), std::array{random()}.data(), 8);
  EXPECT_EQ(code(command(io_opcode::write, 7, 10, 16, drive.address(), drive.address(4096))), 0);
  EXPECT_EQ(std::memcmp(drive.store() + 5120, drive.buffer(), 8192), 0);
  EXPECT_EQ(code(command(io_opcode::read, 8, 10, 16, drive.address(16384), drive.address(20480))), 0);
  EXPECT_EQ(std::memcmp(drive.buffer(16384), drive.buffer(), 8192), 0);
  counters const counts = drive.counts();
  EXPECT_EQ(counts.read_commands, 1u);
  EXPECT_EQ(counts.write_commands, 1u);
  EXPECT_EQ(counts.bytes_read, 8192u);
  EXPECT_EQ(counts.bytes_written, 8192u);
  EXPECT_EQ(counts.failed_commands, 0u);
}

TEST_F(engine_status, lba_range) {
  EXPECT_EQ(code(command(io_opcode::read, 0, blocks - 1, 1, drive.address())), 0);
  EXPECT_EQ(code(command(io_opcode::read, 0, blocks - 1, 2, drive.address())), field(generic_status::lba_out_of_range));
  EXPECT_EQ(code(command(io_opcode::read, 0, blocks, 1, drive.address())), field(generic_status::lba_out_of_range));
  EXPECT_EQ(code(command(io_opcode::write, 0, ~std::uint64_t{0}, 1, drive.address())),
            field(generic_status::lba_out_of_range));
  EXPECT_EQ(code(command(io_opcode::write_zeroes, 0, blocks - 1, 2)), field(generic_status::lba_out_of_range));
  EXPECT_EQ(code(command(io_opcode::compare, 0, blocks, 1, drive.address())), field(generic_status::lba_out_of_range));
}

TEST_F(engine_status, namespace_id) {
  for (std::uint32_t nsid : {0u, 2u, nvme::broadcast_nsid}) {
    auto entry = command(io_opcode::read, 0, 0, 1, drive.address());
    entry.nsid = nsid;
    EXPECT_EQ(code(entry), field(generic_status::invalid_namespace_or_format)) << nsid;
  }
  auto flush = command(io_opcode::flush, 0, 0, 1);
  flush.nsid = nvme::broadcast_nsid;
  EXPECT_EQ(code(flush), 0) << "a Flush may name every namespace";
  flush.nsid = 0;
  EXPECT_EQ(code(flush), field(generic_status::invalid_namespace_or_format));
}

TEST_F(engine_status, opcode) {
  for (int opcode : {0x03, 0x04, 0x0c, 0x0d, 0x7f, 0x80, 0xff}) {
    auto entry = command(io_opcode::read, 0, 0, 1, drive.address());
    entry.cdw0 = nvme::make_cdw0(static_cast<std::uint8_t>(opcode), 3);
    EXPECT_EQ(code(entry), field(generic_status::invalid_command_opcode)) << opcode;
  }
}

TEST_F(engine_status, fields_that_are_not_offered) {
  for (std::uint32_t bit : {8u, 9u, 10u, 13u, 14u, 15u}) {
    auto entry = command(io_opcode::read, 0, 0, 1, drive.address());
    entry.cdw0 |= 1u << bit;
    EXPECT_EQ(code(entry), field(generic_status::invalid_field_in_command)) << "bit " << bit;
  }
  auto directive = command(io_opcode::write, 0, 0, 1, drive.address());
  directive.cdw12 |= 1u << 20;
  EXPECT_EQ(code(directive), field(generic_status::invalid_field_in_command));
}

TEST_F(engine_status, a_refusal_says_do_not_retry) {
  EXPECT_NE(run(command(io_opcode::read, 0, blocks, 1, drive.address())).status_field() & nvme::do_not_retry, 0);
}

TEST_F(engine_status, mdts) {
  std::uint64_t const list = drive.address(2 << 20);
  for (std::uint64_t i = 0; i < 256; ++i) {
    *reinterpret_cast<std::uint64_t*>(drive.buffer((2 << 20) + i * 8)) = drive.address((i + 1) * 4096);
  }
  EXPECT_EQ(code(command(io_opcode::write, 0, 0, 2048, drive.address(), list)), 0);
  EXPECT_EQ(code(command(io_opcode::write, 0, 0, 2049, drive.address(), list)),
            field(generic_status::invalid_field_in_command));
}

TEST_F(engine_status, memory_that_no_one_registered_is_never_touched) {
  std::vector<std::byte> mine(4096 * 3, std::byte{0x5a});
  auto const inside = (reinterpret_cast<std::uint64_t>(mine.data()) + 4095) / 4096 * 4096;
  EXPECT_EQ(code(command(io_opcode::read, 0, 0, 1, inside)), field(generic_status::data_transfer_error));
  EXPECT_EQ(code(command(io_opcode::read, 0, 0, 16, drive.address(), inside)),
            field(generic_status::data_transfer_error));
  EXPECT_EQ(std::count(mine.begin(), mine.end(), std::byte{0x5a}), 4096 * 3);
  EXPECT_EQ(code(command(io_opcode::read, 0, 0, 1, 0)), field(generic_status::data_transfer_error));
  EXPECT_EQ(code(command(io_opcode::write, 0, 0, 1, 0xdead'beef'0000)), field(generic_status::data_transfer_error));
  EXPECT_EQ(drive.counts().failed_commands, 4u);
}

TEST_F(engine_status, a_transfer_that_fails_in_its_second_page_moves_nothing) {
  std::memset(drive.buffer(), 0x77, 4096);
  EXPECT_EQ(code(command(io_opcode::write, 0, 0, 16, drive.address(), 0x1000)),
            field(generic_status::data_transfer_error));
  EXPECT_EQ(drive.store()[0], std::byte{0});
}

TEST_F(engine_status, memory_taken_back_is_refused) {
  std::uint64_t const tail = 3 << 20;
  drive.regions().remove(drive.buffer(), 4 << 20);
  drive.regions().add(drive.buffer(), tail);
  EXPECT_EQ(code(command(io_opcode::read, 0, 0, 1, drive.address(tail - 512))), 0);
  EXPECT_EQ(code(command(io_opcode::read, 0, 0, 1, drive.address(tail))), field(generic_status::data_transfer_error));
}

TEST_F(engine_status, prp_offset) {
  EXPECT_EQ(code(command(io_opcode::read, 0, 0, 1, drive.address(2))), field(generic_status::prp_offset_invalid));
  EXPECT_EQ(code(command(io_opcode::read, 0, 0, 16, drive.address(), drive.address(4100))),
            field(generic_status::prp_offset_invalid));
}

TEST_F(engine_status, compare) {
  std::memset(drive.buffer(), 0x31, 1024);
  EXPECT_EQ(code(command(io_opcode::write, 0, 4, 2, drive.address())), 0);
  EXPECT_EQ(code(command(io_opcode::compare, 0, 4, 2, drive.address())), 0);
  drive.buffer()[1023] = std::byte{0};
  EXPECT_EQ(code(command(io_opcode::compare, 0, 4, 2, drive.address())),
            nvme::status_field(media_status::compare_failure));
  EXPECT_EQ(code(command(io_opcode::compare, 0, 4, 1, drive.address())), 0);
}

TEST_F(engine_status, write_zeroes) {
  std::memset(drive.store(), 0xff, 4096);
  EXPECT_EQ(code(command(io_opcode::write_zeroes, 0, 1, 2)), 0);
  EXPECT_EQ(std::count(drive.store(), drive.store() + 4096, std::byte{0}), 1024);
  EXPECT_EQ(drive.store()[511], std::byte{0xff});
  EXPECT_EQ(drive.store()[1536], std::byte{0xff});
}

TEST_F(engine_status, dataset_management) {
  std::memset(drive.store(), 0xff, 1 << 20);
  nvme::dataset_management_range const ranges[3] = {{0, 2, 0}, {0, 0, 5}, {0, 1, blocks - 1}};
  // The list straddles a page.
  std::memcpy(drive.buffer(4096 - 16), &ranges[0], 16);
  std::memcpy(drive.buffer(8192), &ranges[1], 32);
  nvme::submission_entry entry;
  entry.cdw0 = nvme::make_cdw0(io_opcode::dataset_management, 9);
  entry.nsid = 1;
  entry.prp1 = drive.address(4096 - 16);
  entry.prp2 = drive.address(8192);
  entry.cdw10 = 2;
  EXPECT_EQ(code(entry), 0);
  EXPECT_EQ(drive.store()[0], std::byte{0xff}) << "without the attribute nothing is deallocated";
  entry.cdw11 = nvme::cdw11_attribute_deallocate;
  EXPECT_EQ(code(entry), 0);
  EXPECT_EQ(std::count(drive.store(), drive.store() + (1 << 20), std::byte{0}), 3 * 512);
  drive.buffer(8192)[0] = std::byte{0};
  nvme::dataset_management_range const bad{0, 2, blocks - 1};
  std::memcpy(drive.buffer(8192), &bad, 16);
  EXPECT_EQ(code(entry), field(generic_status::lba_out_of_range));
  entry.prp1 = 0x1000;
  EXPECT_EQ(code(entry), field(generic_status::data_transfer_error));
}

TEST_F(engine_status, an_invalid_doorbell_is_ignored_and_counted_once) {
  drive.units().step(0);
  sq->tail_doorbell = 8;
  EXPECT_FALSE(drive.units().step(0));
  drive.units().step(0);
  EXPECT_EQ(drive.units().invalid_doorbells(), 1u);
  EXPECT_EQ(code(command(io_opcode::read, 1, 0, 1, drive.address())), 0);
  cq->head_doorbell = 77;
  sq->submit(command(io_opcode::read, 2, 0, 1, drive.address()));
  sq->ring();
  drive.units().step(0);
  EXPECT_EQ(drive.units().invalid_doorbells(), 2u);
  EXPECT_TRUE(cq->take().has_value());
}

TEST(engine, entries_wrap_and_phases_turn_for_every_depth) {
  for (std::uint32_t sq_entries : {2u, 3u, 4u, 5u, 32u, 1024u}) {
    for (std::uint32_t cq_entries : {2u, 3u, 7u, 1024u}) {
      rig<> drive;
      auto const cq = drive.completions(1, cq_entries);
      auto const sq = drive.queue(1, sq_entries, 1);
      std::uint32_t submitted = 0, completed = 0, sq_head = 0;
      while (completed < 5000) {
        bool rung = false;
        while ((sq->tail + 1) % sq_entries != sq_head && submitted < 5000) {
          sq->submit(command(io_opcode::write, static_cast<std::uint16_t>(submitted), submitted % 2048, 1,
                             drive.address(submitted % 8 * 512)));
          ++submitted;
          rung = true;
        }
        if (rung) sq->ring();
        drive.units().step(0);
        while (auto const done = cq->take()) {
          ASSERT_EQ(done->command_id(), static_cast<std::uint16_t>(completed)) << "an unthrottled queue is in order";
          ASSERT_EQ(done->status_field(), 0);
          sq_head = done->sq_head();
          ++completed;
        }
        cq->ring();
      }
      EXPECT_EQ(drive.counts().completions_posted, 5000u);
    }
  }
}

TEST(engine, a_full_completion_queue_holds_completions_back) {
  rig<> drive;
  auto const cq = drive.completions(1, 4);
  auto const sq = drive.queue(1, 64, 1);
  for (std::uint16_t i = 0; i < 10; ++i) sq->submit(command(io_opcode::read, i, 0, 1, drive.address()));
  sq->ring();
  while (drive.units().step(0)) {
  }
  EXPECT_EQ(drive.counts().completions_posted, 3u);
  EXPECT_GT(drive.counts().completions_blocked, 0u);
  std::uint16_t next = 0;
  while (next < 10) {
    auto const done = cq->take();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->command_id(), next++);
    cq->ring();
    drive.units().step(0);
  }
  EXPECT_FALSE(cq->take().has_value());
}

TEST(engine, submission_queues_of_different_units_share_a_completion_queue) {
  std::uint64_t const seed = test_seed();
  SCOPED_TRACE(replay(seed));
  std::mt19937_64 random(seed);
  engine_options options;
  options.units = 3;
  rig<simt::native> drive(options);
  constexpr std::uint32_t queues = 7;
  constexpr std::uint32_t each = 20'000;
  auto const cq = drive.completions(5, 16);
  std::vector<std::unique_ptr<client_queue>> sqs;
  for (std::uint32_t q = 0; q < queues; ++q) sqs.push_back(drive.queue(q + 1, 2 + q, 5));

  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint32_t unit = 0; unit < options.units; ++unit) {
    threads.emplace_back([&, unit] {
      while (!stop.load(std::memory_order_relaxed)) {  // relaxed: carries nothing
        if (!drive.units().step(unit)) std::this_thread::yield();
      }
    });
  }
  std::array<std::uint32_t, queues> submitted{}, completed{}, head{};
  std::uint32_t total = 0;
  bool good = true;
  while (total < queues * each && good) {
    for (std::uint32_t q = 0; q < queues; ++q) {
      auto& sq = *sqs[q];
      bool rung = false;
      while (submitted[q] < each && (sq.tail + 1) % sq.sq.size() != head[q]) {
        sq.submit(command(io_opcode::read, static_cast<std::uint16_t>(submitted[q]++), random() % 2048, 1,
                          drive.address(q * 4096)));
        rung = true;
      }
      if (rung) sq.ring();
    }
    bool any = false;
    while (auto const done = cq->take()) {
      std::uint32_t const q = done->sq_id() - 1u;
      good = good && q < queues && done->status_field() == 0 &&
             done->command_id() == static_cast<std::uint16_t>(completed[q]);
      head[q] = done->sq_head();
      ++completed[q];
      ++total;
      any = true;
    }
    cq->ring();
    if (!any) std::this_thread::yield();
  }
  stop.store(true, std::memory_order_relaxed);
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(good);
  EXPECT_EQ(drive.counts().completions_posted, queues * each);
}

TEST(engine_timing, nothing_is_posted_before_it_is_due) {
  engine_options options;
  options.timing.read = {.per_command_ps = 2'000'000, .latency_min_ps = 50'000'000};
  rig<> drive(options);
  auto const cq = drive.completions(1, 64);
  auto const sq = drive.queue(1, 64, 1);
  clocked::now_ns = 1000;
  drive.units().step(0);  // the last poll that sees nothing
  for (std::uint16_t i = 0; i < 10; ++i) sq->submit(command(io_opcode::read, i, 0, 1, drive.address()));
  sq->ring();
  clocked::now_ns = 1700;
  drive.units().step(0);
  for (std::uint16_t i = 0; i < 10; ++i) {
    std::uint64_t const due = 1000 + 50'000 + i * 2000u;
    EXPECT_EQ(drive.units().next_due_ns(0), due);
    clocked::now_ns = due - 1;
    EXPECT_FALSE(drive.units().step(0));
    EXPECT_FALSE(cq->take().has_value());
    clocked::now_ns = due;
    EXPECT_TRUE(drive.units().step(0));
    auto const done = cq->take();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->command_id(), i);
    EXPECT_FALSE(cq->take().has_value());
  }
  EXPECT_EQ(drive.units().next_due_ns(0), simt::no_deadline);
  auto const sum = std::make_unique<statistics>();
  drive.units().collect(*sum);
  EXPECT_EQ(sum->lateness.total(), 10u);
  EXPECT_EQ(sum->lateness.max_ns, 0u);
  EXPECT_EQ(sum->poll_gap.max_ns, 700u);
}

TEST(engine_timing, a_command_came_in_the_middle_of_a_short_poll_gap) {
  for (std::uint64_t const period_ns : {0u, 400u, 1000u}) {
    engine_options options;
    options.poll_period_ns = period_ns;
    options.timing.read.latency_min_ps = 50'000'000;
    rig<> drive(options);
    auto const cq = drive.completions(1, 64);
    auto const sq = drive.queue(1, 64, 1);
    clocked::now_ns = 1000;
    drive.units().step(0);
    sq->submit(command(io_opcode::read, 0, 0, 1, drive.address()));
    sq->ring();
    clocked::now_ns = 1700;
    drive.units().step(0);
    // A delay that is longer than the period is lateness.
    EXPECT_EQ(drive.units().next_due_ns(0), 51'000 + std::min<std::uint64_t>(period_ns, 700) / 2);
    auto const sum = std::make_unique<statistics>();
    drive.units().collect(*sum);
    EXPECT_EQ(sum->poll_gap.max_ns, 700u);
  }
}

TEST(engine_timing, lateness_is_what_the_client_waited_beyond_the_target) {
  engine_options options;
  options.timing.read.latency_min_ps = 10'000'000;
  rig<> drive(options);
  auto const cq = drive.completions(1, 64);
  auto const sq = drive.queue(1, 64, 1);
  drive.units().step(0);
  sq->submit(command(io_opcode::read, 0, 0, 1, drive.address()));
  sq->ring();
  clocked::now_ns = 30'000;  // fetched long after it was due
  drive.units().step(0);
  EXPECT_TRUE(cq->take().has_value());
  auto const sum = std::make_unique<statistics>();
  drive.units().collect(*sum);
  EXPECT_EQ(sum->lateness.max_ns, 20'000u);
  EXPECT_EQ(sum->target.total(), 1u);
  EXPECT_EQ(sum->target.max_ns, 10'000u);
  EXPECT_EQ(sum->processing.total(), 1u);
  EXPECT_EQ(sum->processing.max_ns, 30'000u);
}

TEST(completion_ring, tells_when_all_before_a_place_is_shown) {
  std::vector<nvme::completion_entry> entries(4);
  std::uint32_t head = 0;
  completion_ring ring({0, entries.data(), 4, &head});
  EXPECT_EQ(ring.take(1, 500).after_ps, 0u);
  EXPECT_EQ(ring.take(1, 300).after_ps, 500u);  // the client sees it at 500
  EXPECT_EQ(ring.take(1, 700).after_ps, 500u);
  EXPECT_EQ(ring.known_free(), 0u);
  head = 3;
  EXPECT_TRUE(ring.look_at_head(simt::team<clocked>::here()));
  EXPECT_EQ(ring.known_free(), 3u);
  EXPECT_EQ(ring.take(2, 800).after_ps, 700u);
  head = 2;
  EXPECT_FALSE(ring.look_at_head(simt::team<clocked>::here()));
  EXPECT_EQ(ring.known_free(), 1u);
}

TEST(engine_timing, a_slow_command_does_not_hold_up_others) {
  engine_options options;
  options.timing.write.latency_min_ps = 1'000'000'000;
  options.timing.read.latency_min_ps = 1'000'000;
  rig<> drive(options);
  auto const cq = drive.completions(1, 64);
  auto const sq = drive.queue(1, 64, 1);
  drive.units().step(0);
  sq->submit(command(io_opcode::write, 100, 0, 1, drive.address()));
  for (std::uint16_t i = 0; i < 40; ++i) sq->submit(command(io_opcode::read, i, 0, 1, drive.address()));
  sq->ring();
  clocked::now_ns = 1000;
  while (drive.units().step(0)) {
  }
  for (std::uint16_t i = 0; i < 40; ++i) EXPECT_EQ(cq->take().value().command_id(), i);
  EXPECT_FALSE(cq->take().has_value());
  clocked::now_ns = 1'000'000;
  drive.units().step(0);
  EXPECT_EQ(cq->take().value().command_id(), 100);
}

TEST(engine_timing, a_closed_loop_gets_the_lesser_of_rate_and_concurrency) {
  // The drive of `iops=20000,latency_us=500,channels=1`, in virtual time with a poll each microsecond.
  for (std::uint32_t in_flight : {1u, 5u, 10u, 20u, 40u}) {
    engine_options options;
    options.timing.read = {.per_command_ps = 50'000'000, .latency_min_ps = 500'000'000};
    rig<> drive(options);
    auto const cq = drive.completions(1, 64);
    auto const sq = drive.queue(1, 64, 1);
    std::map<std::uint16_t, std::uint64_t> started;
    std::uint16_t next = 0;
    std::uint64_t completed = 0, waited_ns = 0;
    constexpr std::uint64_t end_ns = 100'000'000;
    while (clocked::now_ns < end_ns) {
      bool rung = false;
      while (started.size() < in_flight) {
        started[next] = clocked::now_ns;
        sq->submit(command(io_opcode::read, next++, 0, 1, drive.address()));
        rung = true;
      }
      if (rung) sq->ring();
      clocked::now_ns += 1000;
      drive.units().step(0);
      while (auto const done = cq->take()) {
        waited_ns += clocked::now_ns - started.at(done->command_id());
        started.erase(done->command_id());
        ++completed;
      }
      cq->ring();
    }
    double const rate = static_cast<double>(completed) / (end_ns * 1e-9);
    double const expected = std::min(20'000.0, in_flight / 500e-6);
    EXPECT_NEAR(rate, expected, expected * 0.01) << in_flight;
    EXPECT_NEAR(rate * static_cast<double>(waited_ns) / static_cast<double>(completed) * 1e-9, in_flight,
                in_flight * 0.02);
  }
}

TEST(engine_faults, the_same_seed_gives_the_same_faults) {
  fault_plan plan{.seed = 3, .error_ppm = 100'000, .delay_ppm = 200'000, .delay_max_ns = 5000, .withhold_ppm = 50'000};
  std::uint32_t errors = 0, delays = 0, withheld = 0;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    injected_fault const a = plan.at(i), b = plan.at(i);
    ASSERT_EQ(a.status_field, b.status_field);
    ASSERT_EQ(a.delay_ps, b.delay_ps);
    ASSERT_EQ(a.withheld, b.withheld);
    ASSERT_LE(a.delay_ps, 5'000'000u);
    errors += a.status_field != 0;
    delays += a.delay_ps != 0;
    withheld += a.withheld;
  }
  EXPECT_NEAR(errors, 10'000, 500);
  EXPECT_NEAR(delays, 20'000, 700);
  EXPECT_NEAR(withheld, 5000, 400);
  fault_plan other = plan;
  other.seed = 4;
  bool differs = false;
  for (std::uint64_t i = 0; i < 1000; ++i) differs |= other.at(i).status_field != plan.at(i).status_field;
  EXPECT_TRUE(differs);
}

TEST(engine_faults, errors_reach_the_client_and_move_nothing) {
  engine_options options;
  options.faults = {.error_ppm = 1'000'000};
  rig<> drive(options);
  auto const cq = drive.completions(1, 8);
  auto const sq = drive.queue(1, 8, 1);
  drive.store()[0] = std::byte{9};
  sq->submit(command(io_opcode::read, 0, 0, 1, drive.address()));
  sq->ring();
  drive.units().step(0);
  EXPECT_EQ(code_of(cq->take().value()), nvme::status_field(media_status::unrecovered_read_error));
  EXPECT_EQ(drive.buffer()[0], std::byte{0});
  EXPECT_EQ(drive.counts().injected_errors, 1u);
}

TEST(engine_faults, delayed_commands_complete_out_of_order_and_move_their_data_late) {
  engine_options options;
  options.faults = {.seed = 11, .delay_ppm = 1'000'000, .delay_max_ns = 10'000};
  rig<> drive(options);
  auto const cq = drive.completions(1, 64);
  auto const sq = drive.queue(1, 64, 1);
  std::memset(drive.store(), 1, 512);
  for (std::uint16_t i = 0; i < 50; ++i) sq->submit(command(io_opcode::read, i, 0, 1, drive.address(i * 512u)));
  sq->ring();
  std::vector<std::uint16_t> order;
  for (; clocked::now_ns <= 10'000; clocked::now_ns += 10) {
    drive.units().step(0);
    while (auto const done = cq->take()) order.push_back(done->command_id());
    for (std::uint16_t i = 0; i < 50; ++i) {
      bool const done = std::find(order.begin(), order.end(), i) != order.end();
      ASSERT_EQ(drive.buffer(i * 512u)[0], done ? std::byte{1} : std::byte{0}) << i;
    }
  }
  EXPECT_EQ(order.size(), 50u);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

class engine_requests : public ::testing::Test {
 protected:
  static engine_options withholding() {
    engine_options options;
    options.faults = {.withhold_ppm = 1'000'000};
    return options;
  }
  rig<> drive{withholding()};
  std::unique_ptr<client_completions> cq = drive.completions(1, 8);
  std::unique_ptr<client_queue> sq = drive.queue(1, 8, 1);

  void submit(std::uint16_t id) {
    sq->submit(command(io_opcode::read, id, 0, 1, drive.address()));
    sq->ring();
    drive.units().step(0);
  }
};

TEST_F(engine_requests, a_withheld_command_completes_when_it_is_aborted) {
  drive.store()[0] = std::byte{1};
  submit(5);
  submit(6);
  clocked::now_ns = 1'000'000'000'000;
  drive.units().step(0);
  EXPECT_FALSE(cq->take().has_value());
  drive.units().begin_abort(0, 6);
  EXPECT_FALSE(drive.units().answered(0));
  drive.units().step(0);
  bool found = false;
  EXPECT_TRUE(drive.units().answered(0, &found));
  EXPECT_TRUE(found);
  auto const done = cq->take();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->command_id(), 6);
  EXPECT_EQ(code_of(*done), nvme::status_field(generic_status::command_abort_requested));
  EXPECT_EQ(drive.buffer()[0], std::byte{0}) << "an aborted command moves nothing";
  drive.units().begin_abort(0, 6);
  drive.units().step(0);
  EXPECT_TRUE(drive.units().answered(0, &found));
  EXPECT_FALSE(found);
}

TEST_F(engine_requests, deleting_a_queue_completes_what_is_outstanding) {
  submit(1);
  submit(2);
  EXPECT_TRUE(drive.units().begin_detach(0, false));
  drive.units().step(0);
  EXPECT_TRUE(drive.units().answered(0));
  for (std::uint16_t const id : {std::uint16_t{1}, std::uint16_t{2}}) {
    auto const done = cq->take();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->command_id(), id);
    EXPECT_EQ(code_of(*done), nvme::status_field(generic_status::command_aborted_due_to_sq_deletion));
  }
  sq->submit(command(io_opcode::read, 3, 0, 1, drive.address()));
  sq->ring();
  EXPECT_FALSE(drive.units().step(0)) << "a deleted queue is not polled";
}

TEST_F(engine_requests, a_reset_leaves_no_completion) {
  submit(1);
  EXPECT_TRUE(drive.units().begin_detach(0, true));
  drive.units().step(0);
  EXPECT_TRUE(drive.units().answered(0));
  EXPECT_FALSE(cq->take().has_value());
  EXPECT_EQ(drive.counts().dropped, 1u);
  // The id can be used again.
  auto const again = drive.queue(1, 4, 1);
  again->submit(command(io_opcode::read, 9, 0, 1, drive.address()));
  again->ring();
  drive.units().step(0);
  EXPECT_EQ(drive.counts().commands_fetched, 2u);
}

TEST(engine, queues_come_and_go_while_traffic_runs) {
  engine_options options;
  options.units = 2;
  rig<simt::native> drive(options);
  auto const cq = drive.completions(1, 64);
  auto const steady = drive.queue(1, 64, 1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (std::uint32_t unit = 0; unit < options.units; ++unit) {
    threads.emplace_back([&, unit] {
      while (!stop.load(std::memory_order_relaxed)) {  // relaxed: carries nothing
        if (!drive.units().step(unit)) std::this_thread::yield();
      }
    });
  }
  std::thread owner([&] {
    for (int round = 0; round < 300; ++round) {
      for (std::uint32_t id : {2u, 3u}) {
        auto const own_cq = drive.completions(id, 8);
        auto const own = drive.queue(id, 8, id);
        for (std::uint16_t i = 0; i < 7; ++i) own->submit(command(io_opcode::read, i, 0, 1, drive.address(id * 4096)));
        own->ring();
        EXPECT_TRUE(drive.units().begin_detach(id - 1, round % 2 == 0));
        while (!drive.units().answered(id - 1)) std::this_thread::yield();
      }
    }
  });
  std::uint32_t submitted = 0, completed = 0;
  while (completed < 50'000) {
    bool rung = false;
    while (submitted - completed < 60 && submitted < 50'000) {
      steady->submit(command(io_opcode::read, static_cast<std::uint16_t>(submitted++), 0, 1, drive.address()));
      rung = true;
    }
    if (rung) steady->ring();
    while (cq->take()) ++completed;
    cq->ring();
    std::this_thread::yield();
  }
  owner.join();
  stop.store(true, std::memory_order_relaxed);
  for (auto& thread : threads) thread.join();
}

TEST(engine, without_data_commands_are_checked_and_nothing_moves) {
  dma_regions regions(memory::host(), 6);
  memory::allocation const buffer(memory::host(), 4096, 4096);
  regions.add(buffer.data(), 4096);
  engine<simt::native> units({}, media{nullptr, 1 << 20, 512, nullptr});
  std::array<nvme::submission_entry, 8> sq{};
  std::array<nvme::completion_entry, 8> cq{};
  std::uint32_t tail = 0, head = 0;
  units.attach_completion_queue({0, cq.data(), 8, &head});
  units.attach_submission_queue({.entries = sq.data(), .size = 8, .tail_doorbell = &tail, .regions = regions.table()});
  sq[0] = command(io_opcode::read, 0, 0, 1, reinterpret_cast<std::uint64_t>(buffer.data()));
  sq[1] = command(io_opcode::read, 1, 0, 1, 0x1000);
  sq[2] = command(io_opcode::read, 2, 4096, 1, reinterpret_cast<std::uint64_t>(buffer.data()));
  tail = 3;
  units.step(0);
  EXPECT_EQ(cq[0].status_field(), 0);
  EXPECT_EQ(code_of(cq[1]), nvme::status_field(generic_status::data_transfer_error));
  EXPECT_EQ(code_of(cq[2]), nvme::status_field(generic_status::lba_out_of_range));
}

TEST(engine, larger_pages_and_blocks) {
  engine_options options;
  rig<> drive(options, 1 << 20, 4 << 20, 4096);
  auto const cq = drive.completions(1, 8);
  auto const sq = drive.queue(1, 8, 1, 65536);
  std::uint64_t const base = (drive.address() + 65535) / 65536 * 65536 - drive.address();
  drive.store()[4096 * 31] = std::byte{42};
  // 32 blocks of 4 KiB from an offset of 4 KiB: two pages of 64 KiB and a bit, so a list.
  *reinterpret_cast<std::uint64_t*>(drive.buffer(base + 2 * 65536)) = drive.address(base + 5 * 65536);
  *reinterpret_cast<std::uint64_t*>(drive.buffer(base + 2 * 65536 + 8)) = drive.address(base + 8 * 65536);
  sq->submit(command(io_opcode::read, 1, 0, 32, drive.address(base + 4096), drive.address(base + 2 * 65536)));
  sq->ring();
  drive.units().step(0);
  EXPECT_EQ(cq->take().value().status_field(), 0);
  EXPECT_EQ(drive.buffer(base + 8 * 65536)[0], std::byte{42});
}

TEST(engine, what_is_written_is_marked) {
  constexpr std::uint64_t chunk = std::uint64_t{1} << media::dirty_chunk_log2;
  memory::allocation const store(memory::host(), 8 * chunk, 4096);
  memory::allocation const buffer(memory::host(), 8192, 4096);
  dma_regions regions(memory::host(), 6);
  regions.add(buffer.data(), buffer.size_bytes());
  std::array<std::uint8_t, 8> dirty{};
  media drive{store.as<std::byte>(), 8 * chunk, 512};
  drive.dirty = dirty.data();
  engine<simt::native> units({}, drive);
  std::array<nvme::submission_entry, 8> sq{};
  std::array<nvme::completion_entry, 8> cq{};
  std::uint32_t tail = 0, head = 0;
  units.attach_completion_queue({0, cq.data(), 8, &head});
  units.attach_submission_queue({.entries = sq.data(), .size = 8, .tail_doorbell = &tail, .regions = regions.table()});
  auto const address = reinterpret_cast<std::uint64_t>(buffer.data());
  std::uint64_t const blocks = chunk / 512;
  sq[0] = command(io_opcode::read, 0, 0, 1, address);
  sq[1] = command(io_opcode::write, 1, blocks, 1, address);
  sq[2] = command(io_opcode::write, 2, 3 * blocks - 1, 2, address + 4096 - 512, address + 4096);
  sq[3] = command(io_opcode::write_zeroes, 3, 5 * blocks, 1);
  sq[4] = command(io_opcode::write, 4, 6 * blocks, 1, 0x1000);  // refused: nothing is written
  tail = 5;
  while (units.step(0)) {
  }
  EXPECT_EQ(dirty, (std::array<std::uint8_t, 8>{0, 1, 1, 1, 0, 1, 0, 0}));
}

}  // namespace
}  // namespace forebay::emulator::testing
