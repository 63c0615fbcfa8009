// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands whose bytes are in a medium: when they complete, with which status, and when their memory is free again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "emulator/rig.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"

namespace forebay::emulator::testing {
namespace {

using nvme::generic_status;
using nvme::io_opcode;
using nvme::media_status;

constexpr std::uint16_t read_error = nvme::status_field(media_status::unrecovered_read_error);
constexpr fake_behaviour manual = {.manual = true};
constexpr fake_behaviour stubborn = {.cancel_percent = 0, .manual = true};

class medium_drive {
 public:
  explicit medium_drive(fake_behaviour const& how, engine_options const& options = {}) : drive(options, how) {}

  void submit(nvme::submission_entry const& entry) {
    sq->submit(entry);
    sq->ring();
    steps(1);
  }
  void steps(int count = 3) {
    for (int i = 0; i < count; ++i) drive.units().step(0);
  }
  std::optional<std::pair<std::uint16_t, std::uint16_t>> next() {
    auto const done = cq->take();
    cq->ring();
    if (!done) return std::nullopt;
    return std::pair(done->command_id(), code_of(*done));
  }

  rig<> drive;
  std::unique_ptr<client_completions> cq = drive.completions(1, 64);
  std::unique_ptr<client_queue> sq = drive.queue(1, 64, 1);
};

using done = std::pair<std::uint16_t, std::uint16_t>;

TEST(medium, a_command_completes_when_its_bytes_have_moved) {
  medium_drive of(manual);
  std::memset(of.drive.store(), 7, 512);
  of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
  clocked::now_ns = 1'000'000'000;
  of.steps();
  EXPECT_FALSE(of.next());
  EXPECT_EQ(of.drive.buffer()[0], std::byte{0});
  of.drive.medium().let_go();
  of.steps();
  EXPECT_EQ(of.next(), done(1, 0));
  EXPECT_EQ(of.drive.buffer()[0], std::byte{7});
  EXPECT_EQ(of.drive.counts().read_commands, 1u);
  EXPECT_EQ(of.drive.counts().bytes_read, 512u);
}

TEST(medium, a_command_that_waits_holds_no_other_up) {
  medium_drive of(manual);
  for (std::uint16_t id = 0; id < 5; ++id) {
    of.submit(command(io_opcode::read, id, id, 1, of.drive.address(id * 512u)));
  }
  of.drive.medium().let_go(3);
  of.steps();
  for (std::uint16_t id = 0; id < 3; ++id) EXPECT_EQ(of.next(), done(id, 0));
  EXPECT_FALSE(of.next());
  of.drive.medium().let_go(1, read_error);
  of.steps();
  EXPECT_EQ(of.next(), done(3, read_error));
  of.drive.medium().let_go(1);
  of.steps();
  EXPECT_EQ(of.next(), done(4, 0)) << "after a failure the queue goes on";
  EXPECT_EQ(of.drive.counts().failed_commands, 1u);
}

TEST(medium, the_model_says_when_a_command_completes_that_the_medium_has_done) {
  engine_options options;
  options.timing.read = {.latency_min_ps = 50'000'000};
  medium_drive of(manual, options);
  of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
  of.submit(command(io_opcode::read, 2, 1, 1, of.drive.address(512)));
  of.drive.medium().let_go(1);
  of.steps();
  clocked::now_ns = 49'000;
  of.steps();
  EXPECT_FALSE(of.next()) << "not before its time";
  clocked::now_ns = 51'000;
  of.steps();
  EXPECT_EQ(of.next(), done(1, 0));
  EXPECT_FALSE(of.next());
  clocked::now_ns = 90'000;
  of.drive.medium().let_go(1);
  of.steps();
  EXPECT_EQ(of.next(), done(2, 0));
  auto const sum = std::make_unique<statistics>();
  of.drive.units().collect(*sum);
  EXPECT_GE(sum->lateness.max_ns, 40'000u) << "what the medium was late counts";
  EXPECT_EQ(sum->lateness.total(), 2u);
}

TEST(medium, executes_every_command) {
  medium_drive of({});
  std::byte* const buffer = of.drive.buffer();
  std::memset(buffer, 5, 1024);
  of.submit(command(io_opcode::write, 1, 2, 2, of.drive.address()));
  of.steps();
  EXPECT_EQ(of.next(), done(1, 0));
  EXPECT_EQ(of.drive.store()[1024], std::byte{5});
  EXPECT_EQ(of.drive.store()[2047], std::byte{5});
  of.submit(command(io_opcode::compare, 2, 2, 2, of.drive.address()));
  of.steps();
  EXPECT_EQ(of.next(), done(2, 0));
  buffer[1000] = std::byte{6};
  of.submit(command(io_opcode::compare, 3, 2, 2, of.drive.address()));
  of.steps();
  EXPECT_EQ(of.next(), done(3, nvme::status_field(media_status::compare_failure)));
  of.submit(command(io_opcode::write_zeroes, 4, 2, 1));
  of.steps();
  EXPECT_EQ(of.next(), done(4, 0));
  EXPECT_EQ(of.drive.store()[1024], std::byte{0});
  EXPECT_EQ(of.drive.store()[1536], std::byte{5});
  nvme::dataset_management_range const ranges[2] = {{.length_blocks = 1, .slba = 3}, {.length_blocks = 0, .slba = 9}};
  std::memcpy(buffer, ranges, sizeof ranges);
  auto deallocate = command(io_opcode::dataset_management, 5, 0, 1, of.drive.address());
  deallocate.cdw10 = 1;
  deallocate.cdw11 = nvme::cdw11_attribute_deallocate;
  deallocate.cdw12 = 0;
  of.submit(deallocate);
  of.steps();
  EXPECT_EQ(of.next(), done(5, 0));
  EXPECT_EQ(of.drive.store()[1536], std::byte{0});
  of.submit(command(io_opcode::flush, 6, 0, 1));
  of.steps();
  EXPECT_EQ(of.next(), done(6, 0));
  EXPECT_EQ(of.drive.medium().durable_count(), 1u);
  auto through = command(io_opcode::write, 8, 2, 1, of.drive.address());
  through.cdw12 |= nvme::cdw12_force_unit_access;
  EXPECT_EQ(of.drive.medium().through_count(), 0u);
  of.submit(through);
  of.steps();
  EXPECT_EQ(of.next(), done(8, 0));
  EXPECT_EQ(of.drive.medium().through_count(), 1u);
  // A buffer that is not registered.
  of.submit(command(io_opcode::read, 7, 0, 1, 4096));
  of.steps();
  EXPECT_EQ(of.next(), done(7, nvme::status_field(generic_status::data_transfer_error)));
  counters const counts = of.drive.counts();
  EXPECT_EQ(counts.write_commands, 2u);
  EXPECT_EQ(counts.other_commands, 4u);
  EXPECT_EQ(counts.flush_commands, 1u);
  EXPECT_EQ(counts.failed_commands, 2u);
}

TEST(medium, a_flush_that_fails_counts_as_a_flush_and_as_a_failure) {
  medium_drive of(manual);
  of.submit(command(io_opcode::flush, 1, 0, 1));
  of.drive.medium().let_go(1, nvme::status_field(media_status::write_fault));
  of.steps();
  EXPECT_EQ(of.next(), done(1, nvme::status_field(media_status::write_fault)));
  EXPECT_EQ(of.drive.counts().flush_commands, 1u);
  EXPECT_EQ(of.drive.counts().failed_commands, 1u);
}

/// Every second page of a buffer, so that no two segments can be joined.
TEST(medium, a_command_of_many_segments_is_done_with_its_last_piece) {
  constexpr std::uint32_t pages = 300;
  engine_options options;
  options.max_transfer_bytes = 2 << 20;
  rig<> drive(options, manual, 2 << 20, 4 << 20);
  auto const cq = drive.completions(1, 8);
  auto const sq = drive.queue(1, 8, 1);
  std::vector<std::byte> expected(pages * 4096);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = drive.store()[i] = static_cast<std::byte>(i / 512 * 31);
  auto* const list = reinterpret_cast<std::uint64_t*>(drive.buffer(3 << 20));
  for (std::uint32_t i = 1; i < pages; ++i) list[i - 1] = drive.address(i * 8192u);
  sq->submit(command(io_opcode::read, 1, 0, pages * 8, drive.address(), drive.address(3 << 20)));
  sq->ring();
  drive.units().step(0);
  drive.units().step(0);
  EXPECT_EQ(drive.medium().in_flight(), 2u);
  drive.medium().let_go(1);
  for (int i = 0; i < 3; ++i) drive.units().step(0);
  EXPECT_FALSE(cq->take());
  drive.medium().let_go(1);
  for (int i = 0; i < 3; ++i) drive.units().step(0);
  auto const one = cq->take();
  ASSERT_TRUE(one);
  EXPECT_EQ(code_of(*one), 0);
  for (std::uint32_t i = 0; i < pages; ++i) {
    ASSERT_EQ(std::memcmp(drive.buffer(i * 8192u), expected.data() + i * 4096u, 4096), 0) << i;
  }
  // It ends with the status of the piece that failed first.
  sq->submit(command(io_opcode::read, 2, 0, pages * 8, drive.address(), drive.address(3 << 20)));
  sq->ring();
  drive.units().step(0);
  drive.medium().let_go(1, read_error);
  drive.units().step(0);
  drive.medium().let_go(1);
  for (int i = 0; i < 3; ++i) drive.units().step(0);
  auto const two = cq->take();
  ASSERT_TRUE(two);
  EXPECT_EQ(code_of(*two), read_error);
}

TEST(medium, pieces_for_which_there_is_no_room_wait) {
  medium_drive of({.full_percent = 80, .seed = 5});
  for (std::uint16_t id = 0; id < 40; ++id) {
    std::memset(of.drive.buffer(id * 512u), id + 1, 512);
    of.submit(command(io_opcode::write, id, id, 1, of.drive.address(id * 512u)));
  }
  of.steps(400);
  std::vector<bool> seen(40);
  while (auto const one = of.next()) {
    EXPECT_EQ(one->second, 0);
    seen[one->first] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 40);
  for (std::uint32_t id = 0; id < 40; ++id) EXPECT_EQ(of.drive.store()[id * 512u], static_cast<std::byte>(id + 1));
}

TEST(medium, an_aborted_command_completes_when_its_memory_is_free) {
  medium_drive of(stubborn);
  std::memset(of.drive.store(), 7, 512);
  of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
  of.drive.units().begin_abort(0, 1);
  of.steps();
  bool found = false;
  EXPECT_TRUE(of.drive.units().answered(0, &found));
  EXPECT_TRUE(found);
  EXPECT_FALSE(of.next()) << "the medium still writes there";
  of.drive.medium().let_go();
  of.steps();
  EXPECT_EQ(of.next(), done(1, nvme::status_field(generic_status::command_abort_requested)));
}

TEST(medium, an_abort_that_the_medium_hears_is_quick) {
  engine_options options;
  options.timing.read = {.latency_min_ps = 1'000'000'000'000};
  medium_drive of(manual, options);
  of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
  of.drive.units().begin_abort(0, 1);
  of.steps();
  EXPECT_EQ(of.next(), done(1, nvme::status_field(generic_status::command_abort_requested)));
}

TEST(medium, a_queue_is_gone_when_the_memory_of_its_commands_is_free) {
  for (bool const silently : {false, true}) {
    medium_drive of(stubborn);
    of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
    of.submit(command(io_opcode::read, 2, 0, 1, of.drive.address(4096)));
    EXPECT_TRUE(of.drive.units().begin_detach(0, silently));
    of.steps();
    of.submit(command(io_opcode::read, 3, 0, 1, of.drive.address(8192)));
    EXPECT_FALSE(of.drive.units().answered(0));
    EXPECT_EQ(of.drive.medium().in_flight(), 2u) << "nothing new begins";
    of.drive.medium().let_go(1);
    of.steps();
    EXPECT_FALSE(of.drive.units().answered(0));
    of.drive.medium().let_go(1);
    of.steps();
    EXPECT_TRUE(of.drive.units().answered(0));
    int completions = 0;
    while (auto const one = of.next()) {
      EXPECT_EQ(one->second, nvme::status_field(generic_status::command_aborted_due_to_sq_deletion));
      ++completions;
    }
    EXPECT_EQ(completions, silently ? 0 : 2);
    // The place can be used again.
    auto const again = of.drive.queue(1, 8, 1);
    of.drive.medium().let_go();
    again->submit(command(io_opcode::read, 9, 0, 1, of.drive.address()));
    again->ring();
    of.steps();
    EXPECT_EQ(of.next(), done(9, 0));
  }
}

TEST(medium, late_data_move_when_the_command_is_due) {
  engine_options options;
  options.faults = {.delay_ppm = 1'000'000, .delay_max_ns = 1000, .late_data = true};
  medium_drive of({}, options);
  std::memset(of.drive.store(), 7, 512);
  of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
  EXPECT_EQ(of.drive.medium().in_flight(), 0u);
  EXPECT_EQ(of.drive.buffer()[0], std::byte{0});
  clocked::now_ns = 2000;
  of.steps();
  EXPECT_EQ(of.next(), done(1, 0));
  EXPECT_EQ(of.drive.buffer()[0], std::byte{7});
}

TEST(medium, a_withheld_command_moves_its_data_and_never_completes) {
  engine_options options;
  options.faults = {.withhold_ppm = 1'000'000, .late_data = false};
  medium_drive of({}, options);
  std::memset(of.drive.store(), 7, 512);
  of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
  clocked::now_ns = 1'000'000'000;
  of.steps();
  EXPECT_FALSE(of.next());
  EXPECT_EQ(of.drive.buffer()[0], std::byte{7});
  of.drive.units().begin_abort(0, 1);
  of.steps();
  EXPECT_EQ(of.next(), done(1, nvme::status_field(generic_status::command_abort_requested)));
}

TEST(medium, a_unit_ends_when_the_memory_of_all_commands_is_free) {
  medium_drive of(stubborn);
  of.submit(command(io_opcode::read, 1, 0, 1, of.drive.address()));
  of.steps();
  EXPECT_EQ(of.drive.medium().in_flight(), 1u);
  of.drive.units().finish(0);
  EXPECT_EQ(of.drive.medium().in_flight(), 0u);
}

}  // namespace
}  // namespace forebay::emulator::testing
