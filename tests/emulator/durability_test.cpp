// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands that wait until the host has made data durable.
#include <gtest/gtest.h>

#include <cstring>

#include "emulator/rig.hpp"

namespace forebay::emulator::testing {
namespace {

using nvme::io_opcode;
using nvme::media_status;

TEST(durability, a_flush_waits_for_the_host_and_holds_nothing_up) {
  sync_words sync;
  rig<> drive({}, 1 << 20, 4 << 20, 512, &sync);
  auto const cq = drive.completions(1, 64);
  auto const sq = drive.queue(1, 64, 1);
  sq->submit(command(io_opcode::flush, 1, 0, 1));
  sq->submit(command(io_opcode::read, 2, 0, 1, drive.address()));
  sq->ring();
  drive.units().step(0);
  EXPECT_EQ(cq->take().value().command_id(), 2);
  EXPECT_EQ(sync.requested, 1u);
  clocked::now_ns = 1'000'000;
  drive.units().step(0);
  EXPECT_FALSE(cq->take().has_value());
  sync.completed = 1;
  clocked::now_ns = 2'000'000;
  drive.units().step(0);
  auto const done = cq->take();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->status_field(), 0);
  EXPECT_EQ(done->dw0, 0u);
  EXPECT_EQ(drive.counts().failed_commands, 0u);
  sync.failed = 1;
  sync.completed = 2;
  sq->submit(command(io_opcode::flush, 3, 0, 1));
  sq->ring();
  drive.units().step(0);
  EXPECT_EQ(code_of(cq->take().value()), nvme::status_field(media_status::write_fault));
  EXPECT_EQ(drive.counts().failed_commands, 1u);
  EXPECT_EQ(drive.counts().flush_commands, 2u);
}

TEST(durability, a_write_with_force_unit_access_waits_for_the_host) {
  sync_words sync;
  rig<> drive({}, 1 << 20, 4 << 20, 512, &sync);
  auto const cq = drive.completions(1, 64);
  auto const sq = drive.queue(1, 64, 1);
  std::memset(drive.buffer(), 7, 512);
  auto write = command(io_opcode::write, 1, 0, 1, drive.address());
  write.cdw12 |= nvme::cdw12_force_unit_access;
  sq->submit(write);
  sq->submit(command(io_opcode::write, 2, 1, 1, drive.address()));
  sq->ring();
  drive.units().step(0);
  EXPECT_EQ(cq->take().value().command_id(), 2);
  EXPECT_EQ(drive.store()[0], std::byte{7});
  EXPECT_EQ(sync.requested, 1u);
  clocked::now_ns = 1'000'000;
  drive.units().step(0);
  EXPECT_FALSE(cq->take().has_value());
  sync.completed = 1;
  clocked::now_ns = 2'000'000;
  drive.units().step(0);
  EXPECT_EQ(cq->take().value().command_id(), 1);
  // Without a cache, all writes wait. Reads do not.
  sync.without_cache = 1;
  sq->submit(command(io_opcode::write, 3, 1, 1, drive.address()));
  sq->submit(command(io_opcode::read, 4, 1, 1, drive.address()));
  sq->submit(command(io_opcode::write_zeroes, 5, 2, 1));
  sq->ring();
  drive.units().step(0);
  EXPECT_EQ(cq->take().value().command_id(), 4);
  EXPECT_FALSE(cq->take().has_value());
  sync.completed = sync.requested;
  sync.failed = 1;
  clocked::now_ns = 3'000'000;
  drive.units().step(0);
  EXPECT_EQ(code_of(cq->take().value()), nvme::status_field(media_status::write_fault));
  EXPECT_EQ(code_of(cq->take().value()), nvme::status_field(media_status::write_fault));
  EXPECT_EQ(drive.counts().failed_commands, 2u);
  EXPECT_EQ(drive.counts().flush_commands, 0u);
}

TEST(durability, a_flush_that_failed_while_its_completion_queue_was_full_is_counted_once) {
  sync_words sync;
  rig<> drive({}, 1 << 20, 4 << 20, 512, &sync);
  auto const cq = drive.completions(1, 2);
  auto const sq = drive.queue(1, 64, 1);
  for (std::uint16_t id = 1; id <= 3; ++id) sq->submit(command(io_opcode::flush, id, 0, 1));
  sq->ring();
  drive.units().step(0);
  sync.failed = 1;
  sync.completed = 3;
  for (int posted = 0; posted < 3; ++posted) {
    clocked::now_ns += 1'000'000;
    for (int visit = 0; visit < 3; ++visit) drive.units().step(0);
    EXPECT_EQ(code_of(cq->take().value()), nvme::status_field(media_status::write_fault));
    EXPECT_FALSE(cq->take().has_value());
    cq->ring();
  }
  EXPECT_EQ(drive.counts().failed_commands, 3u);
}

}  // namespace
}  // namespace forebay::emulator::testing
