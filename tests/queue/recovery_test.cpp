// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the host makes of the requests of waiters that gave up, against a drive that completes nothing.
#include "forebay/queue/recovery.hpp"

#include <gtest/gtest.h>

#include <array>

#include "forebay/emulator/controller.hpp"
#include "forebay/simt/native.hpp"

namespace forebay {
namespace {

using native = simt::native;

/// One queue pair of an emulated drive that withholds every command.
struct silent_drive {
  emulator::controller drive{{.faults = {.withhold_ppm = 1'000'000}}, emulator::no_backing(1 << 20, 512)};
  driver::controller controller{drive.registers(), drive.dma()};
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 8});
  io_queues queues{
      std::array{queue_pair_rings{queue.submission_ring(), queue.completion_ring(), queue.sq_tail_doorbell(),
                                  queue.cq_head_doorbell(), queue.entries(), queue.completion_entries(), queue.id()}},
      {.records = 8},
      memory::host(),
      memory::host()};
  recovery host{{{&queues, {{&controller, &queue}}}}};
  std::uint64_t submitted = 0;

  io_queues_ref<native> ref() const { return queues.ref<native>(); }
  /// The record of a command that the drive has taken.
  std::uint32_t submit() {
    std::uint32_t const record = ref().records().try_open(1);
    std::uint32_t home = 0;
    EXPECT_TRUE(ref().submit({0, 1}, home, {}, record, native::clock_ns()).ok());
    ++submitted;
    EXPECT_TRUE(native::wait_until([&] { return drive.shared().collect()->commands.withheld == submitted; },
                                   native::clock_ns() + 10'000'000'000));
    return record;
  }
  /// What the waiter of `record` leaves behind when its deadline passes, without its look at the queue.
  void give_up(std::uint32_t record) const {
    queues.state()->mailbox.post<native>({0, ref().pair(0).find_command(record, 0), record});
  }
  void answer_all() {
    while (host.step()) {
    }
  }
  status wait(std::uint32_t record) const {
    return token<native>(ref(), record, {0, 1}).wait(native::clock_ns() + 10'000'000'000);
  }
};

TEST(Recovery, AbortsACommandWhoseWaiterGaveUp) {
  silent_drive silent;
  std::uint32_t const record = silent.submit();
  silent.give_up(record);
  silent.answer_all();
  EXPECT_EQ(silent.host.count().aborts, 1u);
  EXPECT_EQ(silent.wait(record), status::from_nvme(nvme::status_field(nvme::generic_status::command_abort_requested)));
  EXPECT_EQ(silent.host.count().queues_deleted, 0u);
}

TEST(Recovery, AQueueThatSeveralWaitersGaveUpTwiceIsDeletedOnce) {
  silent_drive silent;
  std::array const records = {silent.submit(), silent.submit(), silent.submit()};
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t const record : records) silent.give_up(record);
    silent.answer_all();
  }
  EXPECT_EQ(silent.host.count().queues_deleted, 1u);
  EXPECT_EQ(silent.host.count().controller_resets, 0u);
  EXPECT_TRUE(silent.ref().pair(0).dead());
  for (std::uint32_t const record : records) EXPECT_FALSE(silent.wait(record).ok());
}

TEST(Recovery, AQueueLostInAResetIsDeclaredDead) {
  silent_drive silent;
  std::uint32_t const record = silent.submit();
  silent.controller.reset();
  silent.give_up(record);
  silent.answer_all();
  EXPECT_EQ(silent.wait(record).kind(), fault::cancelled);
  EXPECT_EQ(silent.host.count().controller_resets, 0u);
}

}  // namespace
}  // namespace forebay
