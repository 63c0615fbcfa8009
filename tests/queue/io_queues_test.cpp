// SPDX-License-Identifier: Apache-2.0
//! \file
//! The owner of the queues, and single steps of a queue pair against rings that the test writes itself.
#include "forebay/queue/io_queues.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "forebay/error.hpp"
#include "forebay/memory/resource.hpp"
#include "forebay/nvme/status_code.hpp"
#include "forebay/simt/native.hpp"

namespace forebay {
namespace {

using native = simt::native;

/// One queue pair whose controller is the test.
struct hand_driven {
  static constexpr std::uint32_t entries = 4;
  alignas(64) std::array<nvme::submission_entry, entries> sq{};
  std::array<nvme::completion_entry, entries> cq{};
  std::uint32_t sq_doorbell = 0;
  std::uint32_t cq_doorbell = 0;
  alignas(4096) std::array<std::byte, 2 * 4096> lists{};
  alignas(4096) std::array<std::byte, 4 * 4096> data{};
  std::uint32_t posted = 0;
  io_queues queues;

  explicit hand_driven(std::uint32_t records = 8)
      : queues(std::array{queue_pair_rings{sq.data(), cq.data(), &sq_doorbell, &cq_doorbell, entries, entries, 1}},
               options(records), memory::host(), memory::host()) {}

  io_queues_options options(std::uint32_t records) {
    io_queues_options o;
    o.records = records;
    o.prp_pages = buffer_ref(lists.data(), lists.size(), reinterpret_cast<std::uint64_t>(lists.data()));
    return o;
  }
  io_queues_ref<native> ref() const { return queues.ref<native>(); }
  bool poll() const { return ref().pair(0).try_poll(ref().prp_pages(), ref().records()); }
  status submit(std::uint32_t record, io_command const& command = {}) const {
    std::uint32_t home = 0;
    return ref().submit({0, 1}, home, command, record, native::clock_ns());
  }
  void complete(std::uint16_t id, std::uint16_t sq_head, std::uint16_t status_field = 0) {
    nvme::completion_entry& entry = cq[posted % entries];
    entry.dw2 = nvme::completion_entry::make_dw2(sq_head, 1);
    entry.dw3 = nvme::completion_entry::make_dw3(id, (posted / entries % 2) ^ 1, status_field);
    ++posted;
  }
  token<native> token_of(std::uint32_t record) const { return {ref(), record, {0, 1}}; }
};

template <class Action>
std::string refusal_of(Action&& action) {
  try {
    action();
  } catch (refused_input const& refused) {
    return refused.field();
  }
  return "nothing";
}

TEST(IoQueues, RefusesBadInputByItsName) {
  std::array<nvme::submission_entry, 4> sq{};
  std::array<nvme::completion_entry, 4> cq{};
  std::uint32_t doorbells[2] = {};
  queue_pair_rings const good{sq.data(), cq.data(), &doorbells[0], &doorbells[1], 4, 4, 1};
  auto const make = [](std::vector<queue_pair_rings> const& pairs, io_queues_options const& options) {
    return refusal_of([&] { io_queues(pairs, options, memory::host(), memory::host()); });
  };
  EXPECT_EQ(make({good}, {}), "nothing");
  EXPECT_EQ(make({}, {}), "queues");
  for (std::uint32_t const entries : {0u, 1u, 65537u}) {
    queue_pair_rings bad = good;
    bad.sq_entries = entries;
    EXPECT_EQ(make({good, bad}, {}), "sq_entries");
    bad = good;
    bad.cq_entries = entries;
    EXPECT_EQ(make({good, bad}, {}), "cq_entries");
  }
  io_queues_options options;
  options.records = 0;
  EXPECT_EQ(make({good}, options), "records");
  options.records = 1u << 30;
  EXPECT_EQ(make({good}, options), "records");
  options = {};
  options.first_ticket = 4;
  EXPECT_EQ(make({good}, options), "first_ticket");
  options.first_ticket = 8;
  EXPECT_EQ(make({good}, options), "nothing");
  options = {};
  for (std::uint32_t const page_bytes : {0u, 8u, 3000u}) {
    options.page_bytes = page_bytes;
    EXPECT_EQ(make({good}, options), "page_bytes");
  }
  options = {};
  options.mailbox_words = 0;
  EXPECT_EQ(make({good}, options), "mailbox_words");
  options = {};
  options.prp_pages = buffer_ref(nullptr, 4096 + 512, 4096);
  EXPECT_EQ(make({good}, options), "prp_pages");
  options.prp_pages = buffer_ref(nullptr, 4096, 4096 + 512);
  EXPECT_EQ(make({good}, options), "prp_pages");
}

TEST(IoQueues, WritesTheEntryThatItWasGiven) {
  hand_driven drive;
  std::uint32_t const record = drive.ref().records().try_open(2);
  io_command command;
  command.opcode = nvme::io_opcode::write;
  command.nsid = 7;
  command.slba = 0x123456789abc;
  command.blocks = 24;
  command.bytes = 24 * 512;
  command.buffer = buffer_ref(drive.data.data(), drive.data.size(), reinterpret_cast<std::uint64_t>(drive.data.data()));
  ASSERT_TRUE(drive.submit(record, command).ok());
  nvme::submission_entry const& entry = drive.sq[0];
  EXPECT_EQ(entry.opcode(), 1);
  EXPECT_EQ(entry.nsid, 7u);
  EXPECT_EQ(entry.slba(), 0x123456789abcu);
  EXPECT_EQ(entry.block_count(), 24u);
  EXPECT_EQ(entry.prp1, reinterpret_cast<std::uint64_t>(drive.data.data()));
  EXPECT_GE(entry.prp2, reinterpret_cast<std::uint64_t>(drive.lists.data()));
  EXPECT_EQ(drive.sq_doorbell, 1u);
  ASSERT_TRUE(drive.submit(record).ok());
  EXPECT_EQ(drive.sq[1].opcode(), 0);
  EXPECT_EQ(drive.sq[1].prp1, 0u);
  EXPECT_EQ(drive.sq_doorbell, 2u);
  drive.complete(drive.sq[1].command_id(), 2);
  drive.complete(drive.sq[0].command_id(), 2);
  EXPECT_TRUE(drive.token_of(record).wait().ok());
  // The controller is told, and the credits come back, at a poll that finds nothing.
  drive.ref().pair(0).try_poll(drive.ref().prp_pages(), drive.ref().records());
  EXPECT_EQ(drive.cq_doorbell, 2u);
  EXPECT_TRUE(drive.ref().pair(0).idle());
}

TEST(IoQueues, AFullQueueTakesNothingUntilSomethingCompletes) {
  hand_driven drive;
  auto const records = drive.ref().records();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(drive.submit(records.try_open(1)).ok());
  std::uint32_t const record = records.try_open(1);
  EXPECT_EQ(drive.submit(record).kind(), fault::busy);
  EXPECT_FALSE(drive.ref().pair(0).idle());
  drive.complete(drive.sq[1].command_id(), 2);
  EXPECT_TRUE(drive.submit(record).ok());
  EXPECT_EQ(drive.submit(records.try_open(1)).kind(), fault::busy);
}

TEST(IoQueues, TheStatusOfACompletionReachesItsToken) {
  hand_driven drive;
  auto const field =
      static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::write_fault) | nvme::do_not_retry);
  std::uint32_t const record = drive.ref().records().try_open(1);
  ASSERT_TRUE(drive.submit(record).ok());
  auto token = drive.token_of(record);
  EXPECT_FALSE(token.ready());
  drive.complete(drive.sq[0].command_id(), 1, field);
  EXPECT_TRUE(token.ready());
  EXPECT_EQ(token.wait(), status::from_nvme(field));
  EXPECT_EQ(token.wait(), status::from_nvme(field)) << "a token remembers";
}

TEST(IoQueues, ATimeoutAsksForRecoveryAndKeepsTheCommand) {
  hand_driven drive(1);
  std::uint32_t const record = drive.ref().records().try_open(1);
  ASSERT_TRUE(drive.submit(record).ok());
  auto token = drive.token_of(record);
  EXPECT_EQ(token.wait(native::clock_ns()).kind(), fault::timed_out);
  recovery_request request;
  ASSERT_TRUE(drive.queues.take_recovery_request(request));
  EXPECT_EQ(request, (recovery_request{0, drive.sq[0].command_id(), record}));
  EXPECT_TRUE(drive.queues.still_in_flight(request));
  EXPECT_EQ(drive.ref().records().try_open(1), slot_pool::none) << "the record belongs to the command still";
  drive.complete(drive.sq[0].command_id(), 1);
  EXPECT_TRUE(token.wait().ok());
  EXPECT_FALSE(drive.queues.still_in_flight(request));
  EXPECT_FALSE(drive.queues.take_recovery_request(request));
}

/// Three commands that have completed, for a record each.
std::array<std::uint32_t, 3> completed_commands(hand_driven& drive) {
  std::array<std::uint32_t, 3> records{};
  for (std::uint32_t& record : records) {
    record = drive.ref().records().try_open(1);
    EXPECT_TRUE(drive.submit(record).ok());
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    drive.complete(drive.sq[i].command_id(), static_cast<std::uint16_t>(records.size()));
  }
  return records;
}

TEST(IoQueues, AWaitThatBeginsTooLateTakesWhatWasThereInTime) {
  hand_driven drive;
  auto const records = completed_commands(drive);
  EXPECT_TRUE(drive.token_of(records[2]).wait(native::clock_ns()).ok()) << "two completions stand before it";
  recovery_request request;
  EXPECT_FALSE(drive.queues.take_recovery_request(request));
}

TEST(IoQueues, DrainingWithoutPatienceDeliversAllThatHasCome) {
  hand_driven drive;
  auto const records = completed_commands(drive);
  EXPECT_EQ(drive.ref().drain_share(native::clock_ns()), 0u);
  for (std::uint32_t const record : records) EXPECT_TRUE(drive.ref().records().done(record));
  std::uint32_t const outstanding = drive.ref().records().try_open(1);
  ASSERT_TRUE(drive.submit(outstanding).ok());
  EXPECT_EQ(drive.ref().drain_share(native::clock_ns()), 1u);
  drive.complete(drive.sq[3].command_id(), 0);
  EXPECT_EQ(drive.ref().drain_share(native::clock_ns()), 0u);
}

TEST(IoQueues, ARequestThatFoundNoRoomInTimeIsOverOnce) {
  hand_driven drive(1);
  auto const records = drive.ref().records();
  std::uint32_t const record = records.try_open(1);
  records.complete(record, fault::busy);  // as storage_ref does where submit() gave up
  auto over = drive.token_of(record);
  EXPECT_EQ(over.wait(native::clock_ns()).kind(), fault::busy);
  ASSERT_EQ(records.try_open(1), record) << "the record is free, and now another request's";
  EXPECT_EQ(over.wait(native::clock_ns()).kind(), fault::busy);
  over.detach();
  EXPECT_EQ(records.try_open(1), slot_pool::none) << "the other request's record was given away";
  records.complete(record, status());
  EXPECT_TRUE(records.done(record)) << "the other request was detached";
}

/// Records, and words above them.
struct records_and_words {
  record_pool<native> pool;
  std::uint32_t record_count = 0;
  status* words = nullptr;

  record_pool<native> const& records() const { return pool; }
  void complete(std::uint32_t target, status result, std::uint32_t commands) const {
    if (target < record_count) return pool.complete(target, result, commands);
    words[target - record_count] = result;
  }
};

TEST(IoQueues, CommandsCompleteToTheTargetsThatTheyName) {
  hand_driven drive;
  std::array<status, 2> words{fault::busy, fault::busy};
  records_and_words const targets{drive.queues.records<native>(), drive.queues.record_count(), words.data()};
  auto const queues = drive.queues.ref<native>(targets);
  std::uint32_t home = 0;
  std::uint32_t const record = queues.records().try_open(1);
  ASSERT_TRUE(queues.try_submit({0, 1}, home, {}, drive.queues.record_count() + 1).ok());
  ASSERT_TRUE(queues.try_submit({0, 1}, home, {}, record).ok());
  ASSERT_TRUE(queues.try_submit({0, 1}, home, {}, drive.queues.record_count()).ok());
  EXPECT_EQ(queues.try_submit({0, 1}, home, {}, record).kind(), fault::busy);
  EXPECT_FALSE(queues.help(0));

  queues.ask_for_recovery(0, drive.queues.record_count());
  recovery_request request;
  ASSERT_TRUE(drive.queues.take_recovery_request(request));
  EXPECT_EQ(request, (recovery_request{0, drive.sq[2].command_id(), drive.queues.record_count()}));

  auto const field = static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::write_fault));
  drive.complete(drive.sq[0].command_id(), 3, field);
  drive.complete(drive.sq[1].command_id(), 3);
  EXPECT_TRUE(queues.help(0));
  while (queues.help(0)) {
  }
  EXPECT_EQ(words[0], fault::busy);
  EXPECT_EQ(words[1], status::from_nvme(field));
  EXPECT_TRUE(queues.records().done(record));
  drive.complete(drive.sq[2].command_id(), 3);
  EXPECT_TRUE(queues.help(0));
  EXPECT_TRUE(words[0].ok());
  EXPECT_TRUE(queues.try_submit({0, 1}, home, {}, 0).ok()) << "room again";
  drive.queues.declare_dead(0);
  EXPECT_EQ(queues.try_submit({0, 1}, home, {}, 0).kind(), fault::cancelled);
}

TEST(IoQueues, ADeadPairCancelsItsCommandsAndTakesNoMore) {
  hand_driven drive;
  auto const records = drive.ref().records();
  std::uint32_t const first = records.try_open(1);
  std::uint32_t const second = records.try_open(1);
  ASSERT_TRUE(drive.submit(first).ok());
  ASSERT_TRUE(drive.submit(second).ok());
  drive.complete(drive.sq[0].command_id(), 2);
  drive.queues.declare_dead(0);
  EXPECT_TRUE(drive.token_of(first).wait().ok()) << "it had completed before the queue died";
  EXPECT_EQ(drive.token_of(second).wait().kind(), fault::cancelled);
  EXPECT_EQ(drive.submit(records.try_open(1)).kind(), fault::cancelled);
}

TEST(IoQueues, CompletionsThatNameNoCommandAreCountedNotDelivered) {
  hand_driven drive;
  std::uint32_t const record = drive.ref().records().try_open(1);
  ASSERT_TRUE(drive.submit(record).ok());
  std::uint16_t const id = drive.sq[0].command_id();
  drive.complete(static_cast<std::uint16_t>((id + 1) % 3), 1);
  drive.complete(1000, 1);
  drive.complete(id, 3);  // a head past the tail
  EXPECT_TRUE(drive.token_of(record).wait().ok());
  EXPECT_EQ(drive.queues.protocol_errors(0), 3u);
}

}  // namespace
}  // namespace forebay
