// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a dump says of commands that do not complete, and when a watchdog reports them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/emulator/controller.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/storage.hpp"
#include "storage/inspector.hpp"
#include "support/traits.hpp"

namespace forebay {
namespace {

using simt::native;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// One queue pair of an emulated drive that withholds every command, and records.
struct silent_drive {
  emulator::controller drive{{.faults = {.withhold_ppm = 1'000'000}}, emulator::no_backing(1 << 20, 512)};
  driver::controller controller{drive.registers(), drive.dma()};
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 8});
  driver::dma_buffer buffer{drive.dma(), 4096};
  io_queues queues{
      std::array{queue_pair_rings{queue.submission_ring(), queue.completion_ring(), queue.sq_tail_doorbell(),
                                  queue.cq_head_doorbell(), queue.entries(), queue.completion_entries(), queue.id()}},
      {.records = 8},
      memory::host(),
      memory::host()};

  detail::inspected inspect() const { return {"a drive", {{"kernels", &queues, {&memory::host()}, {0}}}, nullptr}; }
  io_queues_ref<native> ref() const { return queues.ref<native>(); }
  std::uint32_t read(std::uint64_t slba, std::uint32_t blocks) const {
    std::uint32_t const record = ref().records().try_open(1);
    io_command command;
    command.opcode = nvme::io_opcode::read;
    command.slba = slba;
    command.blocks = blocks;
    command.bytes = blocks * 512;
    command.buffer = buffer_ref(buffer.data(), buffer.size_bytes(), buffer.bus_address());
    std::uint32_t home = 0;
    EXPECT_TRUE(ref().submit({0, 1}, home, command, record, native::clock_ns()).ok());
    return record;
  }
};

TEST(Dump, NamesAWithheldCommandAndTheRecordThatItIsFor) {
  silent_drive silent;
  std::uint32_t const first = silent.read(24, 8);
  std::uint32_t const second = silent.read(7, 1);
  std::string const text = detail::dump(silent.inspect(), native::clock_ns());
  EXPECT_THAT(text, HasSubstr("queues of the kernels: 1 pair, 2 commands in flight, 2 of 8 records open"));
  EXPECT_THAT(text, HasSubstr("pair 0 (drive 0): SQ tail 2, doorbell 2, head 0 of 8; CQ head 0 of 8, phase 1, 0 "
                              "completions to consume\n"));
  EXPECT_THAT(text, HasSubstr("command 0: read of 8 blocks at LBA 24, for record " + std::to_string(first) + "\n"));
  EXPECT_THAT(text, HasSubstr("command 1: read of 1 block at LBA 7, for record " + std::to_string(second) + "\n"));
  EXPECT_THAT(text, HasSubstr("record " + std::to_string(second) + ": 1 command outstanding\n"));
  EXPECT_THAT(text, HasSubstr("threads: not traced"));
}

TEST(Dump, TellsOfCommandsThatWereCancelledWithTheirQueue) {
  silent_drive silent;
  std::uint32_t const record = silent.read(0, 1);
  silent.queues.declare_dead(0);
  EXPECT_TRUE(silent.ref().help(0));
  std::string const text = detail::dump(silent.inspect(), native::clock_ns());
  EXPECT_THAT(text, HasSubstr("; declared dead by recovery\n"));
  EXPECT_THAT(text, HasSubstr("record " + std::to_string(record) +
                              ": 0 commands outstanding, first failure: cancelled by recovery\n"));
  EXPECT_THAT(text, Not(HasSubstr("command 0:")));
}

TEST(Watchdog, ReportsOnceThatNothingMovesAndAgainAfterSomethingHas) {
  silent_drive silent;
  detail::progress_watch watch(silent.inspect(), 250'000'000, 2);
  auto const looks = [&](int n) {
    std::vector<std::string> reasons;
    for (int i = 0; i < n; ++i) {
      if (auto const report = watch.look(native::clock_ns())) {
        reasons.push_back(report->reason);
        EXPECT_FALSE(report->circular);
        EXPECT_THAT(report->dump, HasSubstr("command 0: read of 1 block at LBA 5"));
      }
    }
    return reasons;
  };
  EXPECT_THAT(looks(10), testing::IsEmpty());  // nothing is in flight
  (void)silent.read(5, 1);
  EXPECT_THAT(looks(2), testing::IsEmpty());  // the first shows the command, the second that it stays
  EXPECT_THAT(looks(10), testing::ElementsAre("nothing has moved for 500 ms, though 1 command is in flight and 0 "
                                              "traced threads wait"));
  (void)silent.read(6, 1);
  EXPECT_THAT(looks(10), testing::SizeIs(1));
}

TEST(Watchdog, OfAStorageReportsARequestWhoseCompletionNobodyConsumes) {
  storage_options o;
  o.drives = {"emulated:size=1M"};
  o.device = "cpu";
  o.queues.per_drive = 2;
  storage st(o);
  registered_buffer const buffer = st.allocate_buffer(4096);
  auto request = st.ref<native>().read_async(buffer.ref(), 8192, 4096);

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<stuck_report> reports;
  {
    watchdog const dog =
        st.watch({.interval_ns = 2'000'000, .stuck_after = 3, .report = [&](stuck_report const& report) {
                    std::lock_guard const lock(mutex);
                    reports.push_back(report);
                    changed.notify_one();
                  }});
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !reports.empty(); });
  }
  EXPECT_THAT(reports.front().reason, HasSubstr("though 1 command is in flight"));
  EXPECT_THAT(reports.front().dump, HasSubstr("storage on cpu\n"));
  EXPECT_THAT(reports.front().dump, HasSubstr("command 0: read of 8 blocks at LBA 16, for record "));
  EXPECT_THAT(reports.front().dump, HasSubstr("  1 pair idle\n"));
  EXPECT_TRUE(request.wait().ok());
  EXPECT_THAT(st.dump(), HasSubstr("queues of the kernels: 2 pairs, 0 commands in flight, 0 of 65536 records open"));
}

TEST(Dump, NamesTheDriveOfAPairWhereDrivesHaveDifferentNumbersOfThem) {
  storage_options o;
  o.drives = {"emulated:size=1M", "emulated:size=1M"};
  o.device = "cpu";
  o.queues.of_drives = {{.count = 1}, {.count = 3}};
  storage st(o);
  registered_buffer const buffer = st.allocate_buffer(4096);
  auto request = st.ref<native, test::uncached_traits<uneven_rules<>>>().read_async(buffer.ref(), o.stripe_bytes, 512);
  EXPECT_THAT(st.dump(), HasSubstr("pair 1 (drive 1): "));
  EXPECT_TRUE(request.wait().ok());
}

TEST(Dump, OfACacheNamesWhatIsPinnedAndWhatIsDirty) {
  storage_options o;
  o.drives = {"emulated:size=1M"};
  o.device = "cpu";
  o.cache.size_bytes = 32 * o.cache.page_bytes;
  o.cache.overflow_frames = 3;
  storage st(o);
  {
    auto const bytes = st.ref<native, cached>().array<std::uint8_t>();
    auto written = bytes.thread_page();
    ASSERT_TRUE(written.seek(5 * 4096).ok());
    std::string const text = st.dump();
    EXPECT_THAT(
        text,
        HasSubstr(
            "cache: 2 sets of 16 frames, 3 overflow frames, 0 user frames, pages of 4096 bytes; 1 page, 1 of them "
            "dirty\n"));
    EXPECT_THAT(text, ContainsRegex("frame [0-9]+ .set [01], page 5.: read, dirty, 1 pin\n"));
    EXPECT_THAT(text, HasSubstr("first error: none; 0 write-backs failed\n"));
  }
  EXPECT_THAT(st.dump(), Not(HasSubstr("pin\n")));
}

TEST(Dump, OfACacheCountsStagingPages) {
  storage_options o;
  o.drives = {"emulated:size=1M"};
  o.device = "cpu";
  o.cache.size_bytes = 32 * o.cache.page_bytes;
  EXPECT_THAT(storage(o).dump(), Not(HasSubstr("staging")));
  o.cache.staging_pages = 40;
  storage st(o);
  EXPECT_THAT(st.dump(), HasSubstr("  40 of 40 staging pages are free\n"));
  using pools = frame_pools<no_sharing, replacement::no_policy, staged_frames>;
  {
    auto const bytes = st.ref<native, test::traits<replacement::clock, false, pools>>().array<std::uint8_t>();
    ASSERT_TRUE(bytes.thread_page().seek(0).ok());
  }
  EXPECT_THAT(st.dump(), HasSubstr("  40 of 40 staging pages are free\n"));
}

TEST(Watchdog, RefusesWhatItCannotDo) {
  storage_options o;
  o.drives = {"emulated:size=1M"};
  o.device = "cpu";
  storage const st(o);
  EXPECT_THROW((void)st.watch({.interval_ns = 0}), refused_input);
  EXPECT_THROW((void)st.watch({.stuck_after = 0}), refused_input);
  EXPECT_NO_THROW((void)st.watch({.interval_ns = o.timeout_ns - 1}));
  EXPECT_THAT([&] { (void)st.watch({.interval_ns = o.timeout_ns}); },
              testing::ThrowsMessage<refused_input>(
                  AllOf(HasSubstr("interval_ns: '10000000000'"), HasSubstr("timeout_ns, 10000000000"))));
}

}  // namespace
}  // namespace forebay
