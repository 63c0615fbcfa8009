// SPDX-License-Identifier: Apache-2.0
//! \file
//! The owner of the queues, and single steps of a queue pair against rings that the test writes itself.
#include "forebay/detail/queue/io_queues.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "support/hand_driven.hpp"

namespace forebay {
namespace {

using native = simt::native;

using test::hand_driven;

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
  // A table of bus addresses may lie in the memory of a GPU, and is not read.
  auto const* const elsewhere = reinterpret_cast<std::uint64_t const*>(std::uintptr_t{8});
  options.prp_pages = buffer_ref(nullptr, 8192, elsewhere, 12, 0);
  EXPECT_EQ(make({good}, options), "nothing");
  options.prp_pages = buffer_ref(nullptr, 4096, elsewhere, 12, 512);
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
  // At a poll that finds nothing, the controller is told, and the credits come back.
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

TEST(IoQueues, PollingWithShortDeadlinesAsksForNoRecovery) {
  hand_driven drive(1);
  std::uint32_t const record = drive.ref().records().try_open(1);
  ASSERT_TRUE(drive.submit(record).ok());
  auto token = drive.token_of(record);
  for (int polls = 0; polls < 1000; ++polls) EXPECT_EQ(token.wait(native::clock_ns()).kind(), fault::timed_out);
  EXPECT_FALSE(native::wait_until([&] { return token.ready(); }, native::clock_ns()));
  recovery_request request;
  EXPECT_FALSE(drive.queues.take_recovery_request(request));
  drive.complete(drive.sq[0].command_id(), 1);
  EXPECT_TRUE(native::wait_until([&] { return token.ready(); }, native::clock_ns()));
  EXPECT_TRUE(token.wait(native::clock_ns()).ok());
}

struct leaks_a_record : queue_rules {
  static constexpr bool detaches_for_good = false;
};
/// Whether the record of a request that timed out is free once its command has ended.
template <class Rules>
bool record_comes_back() {
  hand_driven drive(1);
  auto const queues = drive.queues.ref<native, Rules>();
  std::uint32_t const record = queues.records().try_open(1);
  EXPECT_TRUE(drive.submit(record).ok());
  EXPECT_EQ((token<native, io_queues_ref<native, Rules>>(queues, record, {0, 1}).wait_once(native::clock_ns()).kind()),
            fault::timed_out);
  EXPECT_EQ(queues.records().try_open(1), slot_pool::none);
  drive.complete(drive.sq[0].command_id(), 1);
  EXPECT_TRUE(drive.poll());
  return queues.records().try_open(1) != slot_pool::none;
}
TEST(IoQueues, ASynchronousCallThatTimesOutGivesItsRecordBack) {
  EXPECT_TRUE(record_comes_back<queue_rules>());
}
TEST(IoQueues, ALeakedRecordIsCaught) {
  EXPECT_FALSE(record_comes_back<leaks_a_record>());
}

TEST(IoQueues, AFlushHasALimitOfItsOwn) {
  for (bool const flush_is_old : {false, true}) {
    hand_driven drive(2, flush_is_old ? command_limits{60'000'000'000, 1} : command_limits{1, 60'000'000'000});
    std::uint32_t const flush = drive.ref().records().try_open(1);
    std::uint32_t const write = drive.ref().records().try_open(1);
    ASSERT_TRUE(drive.submit(flush).ok());
    ASSERT_TRUE(drive.submit(write, {.opcode = nvme::io_opcode::write_zeroes, .blocks = 8}).ok());
    EXPECT_EQ(drive.token_of(flush).wait(native::clock_ns()).kind(), fault::timed_out);
    EXPECT_EQ(drive.token_of(write).wait(native::clock_ns()).kind(), fault::timed_out);
    recovery_request request;
    ASSERT_TRUE(drive.queues.take_recovery_request(request));
    EXPECT_EQ(request.command_id, drive.ref().pair(0).find_command(flush_is_old ? flush : write, 0));
    EXPECT_FALSE(drive.queues.take_recovery_request(request));
  }
}

TEST(IoQueues, WhoFindsNoRoomAsksForWhatHoldsIt) {
  hand_driven drive(8, hand_driven::hasty);
  auto const records = drive.ref().records();
  for (int i = 0; i < 3; ++i) {
    std::uint32_t const record = records.try_open(1);
    ASSERT_TRUE(drive.submit(record).ok());
    drive.token_of(record).detach();
  }
  EXPECT_EQ(drive.submit(records.try_open(1)).kind(), fault::busy);
  recovery_request request;
  int asked = 0;
  while (drive.queues.take_recovery_request(request)) ++asked;
  EXPECT_EQ(asked, 3) << "their waiters have gone";
}

TEST(IoQueues, ALimitThatAgesDoNotReachIsLeftToTheHost) {
  std::uint64_t const word = command_slot::make(1, 5'000'000'000);
  EXPECT_FALSE(command_slot::is_overdue(word, 14'000'000'000, {10'000'000'000, 1}));
  EXPECT_TRUE(command_slot::is_overdue(word, 15'000'000'000, {10'000'000'000, 1}));
  EXPECT_FALSE(command_slot::is_overdue(word, 4'999'000'000, {10'000'000'000, 1})) << "clocks that differ a little";
  EXPECT_TRUE(command_slot::is_overdue(word, 5'000'000'000, {std::uint64_t{1} << 62, 1}));
  EXPECT_TRUE(command_slot::is_overdue(word | command_slot::is_flush, 5'001'000'000, {10'000'000'000, 1'000'000}));
}

TEST(IoQueues, AnAbortedCommandIsCancelledWhoeverAbortedIt) {
  hand_driven drive;
  for (auto const code :
       {nvme::generic_status::command_abort_requested, nvme::generic_status::command_aborted_due_to_sq_deletion}) {
    std::uint32_t const record = drive.ref().records().try_open(1);
    ASSERT_TRUE(drive.submit(record).ok());
    auto const slot = drive.posted;
    drive.complete(drive.sq[slot].command_id(), static_cast<std::uint16_t>(slot + 1),
                   static_cast<std::uint16_t>(nvme::status_field(code) | nvme::do_not_retry));
    EXPECT_EQ(drive.token_of(record).wait(), status(fault::cancelled));
  }
}

TEST(IoQueues, ProgressCountsWhatEndedWell) {
  hand_driven drive;
  std::uint32_t const before = drive.ref().progress({0, 1});
  alive_watch<native> alive(drive.ref(), {0, 1});
  auto const field = static_cast<std::uint16_t>(nvme::status_field(nvme::media_status::write_fault));
  for (std::uint16_t i = 0; i < 3; ++i) {
    std::uint32_t const record = drive.ref().records().try_open(1);
    ASSERT_TRUE(drive.submit(record).ok());
    drive.complete(drive.sq[i].command_id(), static_cast<std::uint16_t>(i + 1), i == 1 ? 0 : field);
    EXPECT_EQ(drive.token_of(record).wait().ok(), i == 1);
    drive.poll();  // nothing left: reports
    EXPECT_EQ(alive.has_completed(), i == 1);
  }
  EXPECT_EQ(drive.ref().progress({0, 1}) - before, 1u);
}

TEST(IoQueues, ATimeoutAsksForRecoveryAndKeepsTheCommand) {
  hand_driven drive(1, hand_driven::hasty);
  std::uint32_t const record = drive.ref().records().try_open(1);
  ASSERT_TRUE(drive.submit(record).ok());
  auto token = drive.token_of(record);
  EXPECT_EQ(token.wait(native::clock_ns()).kind(), fault::timed_out);
  recovery_request request;
  ASSERT_TRUE(drive.queues.take_recovery_request(request));
  EXPECT_EQ(request.command_id, drive.sq[0].command_id());
  EXPECT_EQ(request.submitted, command_slot::time_of(drive.queues.command_word(0, request.command_id)));
  EXPECT_NE(drive.queues.command_word(0, request.command_id), 0u);
  EXPECT_EQ(drive.ref().records().try_open(1), slot_pool::none) << "the record belongs to the command still";
  drive.complete(drive.sq[0].command_id(), 1);
  EXPECT_TRUE(token.wait().ok());
  EXPECT_EQ(drive.queues.command_word(0, request.command_id), 0u);
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
  bool* landed = nullptr;

  static constexpr bool lands = true;

  record_pool<native> const& records() const { return pool; }
  /// Notes in a word that its command is about to complete with success.
  void land(together<native> const& /*group*/, bool read, std::uint32_t target) const {
    if (read && target >= record_count) landed[target - record_count] = true;
  }
  void complete(std::uint32_t target, status result, std::uint32_t commands) const {
    if (target < record_count) return pool.complete(target, result, commands);
    EXPECT_EQ(landed[target - record_count], result.ok());
    words[target - record_count] = result;
  }
};

TEST(IoQueues, CommandsCompleteToTheTargetsThatTheyName) {
  hand_driven drive(8, hand_driven::hasty);
  std::array<status, 2> words{fault::busy, fault::busy};
  std::array<bool, 2> landed{};
  records_and_words const targets{drive.queues.records<native>(), drive.queues.record_count(), words.data(),
                                  landed.data()};
  auto const queues = drive.queues.ref<native>(targets);
  std::uint32_t home = 0;
  std::uint32_t const record = queues.records().try_open(1);
  ASSERT_TRUE(queues.try_submit({0, 1}, home, {}, drive.queues.record_count() + 1).ok());
  ASSERT_TRUE(queues.try_submit({0, 1}, home, {}, record).ok());
  ASSERT_TRUE(queues.try_submit({0, 1}, home, {}, drive.queues.record_count()).ok());
  EXPECT_EQ(queues.try_submit({0, 1}, home, {}, record).kind(), fault::busy);
  EXPECT_FALSE(queues.help(0));

  // No recovery is asked for the commands that are in the way: try_submit() does not wait, and so has not waited long.
  recovery_request request;
  EXPECT_FALSE(drive.queues.take_recovery_request(request));
  queues.ask_for_recovery(0, drive.queues.record_count());
  ASSERT_TRUE(drive.queues.take_recovery_request(request));
  EXPECT_EQ(request.command_id, drive.sq[2].command_id());

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
  EXPECT_EQ(landed, (std::array<bool, 2>{true, false})) << "the other command failed";
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
