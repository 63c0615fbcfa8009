// SPDX-License-Identifier: Apache-2.0
//! \file
//! Bugs that other drivers of this kind were reported to have. Each test shows that this one does not have the bug.
//!
//! | bug | here | elsewhere |
//! |---|---|---|
//! | a completion that comes out of order is dropped while a thread waits for another one |
//! AThreadThatWaitsForOneCommandDropsNoCompletionOfAnother | Q8OneSlowCommandHoldsUpNobody of the ControllerSuite; Q1
//! in the queue's schedules | | memory of a queue that does not start on a page | MemoryOfEachQueueStartsOnAPage |
//! create_sq_refuses_a_misaligned_ring of the conformance list | | indices begin anew while the controller keeps its
//! own | IndicesBeginAnewOnlyWhenTheControllersDo | queue_is_recreated_only_when_it_is_gone of the conformance list |
//! | a register of 64 bits is written as a whole, or its high half first | RegistersOf64BitsAreWrittenInHalvesLowFirst
//! | queue_registers_are_written_before_enable_low_half_first of driver_test | | a register is read again and again,
//! which brings all ones and in the end breaks the link | CommandsReadNoRegister,
//! ADeviceThatReadsAsAllOnesIsNotReadAgainAndAgain | |
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/scheme.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "qemu/run_one.hpp"
#include "support/qemu_scheme.hpp"

namespace forebay {
namespace {

using simt::native;
namespace reg = nvme::registers;

constexpr std::uint64_t patience_ns = 20'000'000'000;
constexpr std::uint64_t page_bytes = 4096;

/// Registers whose accesses are written down. Thread-safe.
class watched_registers final : public driver::register_space {
 public:
  explicit watched_registers(driver::register_space& of) : of_(of) {}

  std::uint32_t read32(std::uint32_t offset_bytes) override {
    std::uint32_t const value = of_.read32(offset_bytes);
    std::lock_guard const lock(mutex_);
    ++reads_;
    return value;
  }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override {
    {
      std::lock_guard const lock(mutex_);
      writes_.emplace_back(offset_bytes, value);
    }
    of_.write32(offset_bytes, value);
  }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return of_.doorbell(offset_bytes); }

  std::uint64_t reads() const {
    std::lock_guard const lock(mutex_);
    return reads_;
  }
  /// The writes to the registers of the admin queue's addresses, in their order.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> writes_of_addresses() const {
    std::lock_guard const lock(mutex_);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
    for (auto const& write : writes_) {
      if (write.first >= reg::asq && write.first < reg::acq + 8) found.push_back(write);
    }
    return found;
  }

 private:
  driver::register_space& of_;
  mutable std::mutex mutex_;
  std::uint64_t reads_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> writes_;
};

class BugsOfOthers : public testing::Test {
 protected:
  void SetUp() override { FOREBAY_NEEDS_QEMU(); }
};

TEST_F(BugsOfOthers, AThreadThatWaitsForOneCommandDropsNoCompletionOfAnother) {
  test::add_qemu_scheme();
  storage_options o;
  o.drives = {"qemu:size=1M,hold=1,as=late"};
  o.device = "cpu";
  o.timeout_ns = patience_ns;
  o.queues.per_drive = 1;
  o.queues.depth = 8;
  storage st(o);
  std::vector<std::uint64_t> words(st.size_bytes() / 8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = i;
  st.pwrite(words.data(), st.size_bytes(), 0);
  auto const ref = st.ref<native>();
  constexpr std::uint64_t rounds = 20, others = 5;
  registered_buffer const buffer = st.allocate_buffer((others + 1) * page_bytes);
  auto const start = [&](std::uint64_t place, std::uint64_t page) {
    return ref.read_async(buffer.ref().subspan(place * page_bytes, page_bytes), page * page_bytes, page_bytes);
  };
  auto const expect_page = [&](auto& token, std::uint64_t place, std::uint64_t page) {
    EXPECT_EQ(to_string(token.wait()), to_string(status()));
    std::uint64_t first = 0;
    std::memcpy(&first, buffer.data() + place * page_bytes, sizeof first);
    EXPECT_EQ(first, page * page_bytes / 8);
  };
  test::qemu_nvme& qemu = test::opened_qemu("late");
  std::uint64_t done = qemu.traffic().read_commands;
  qemu.hold("read_aio");
  auto late = start(others, 200);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    std::vector<decltype(start(0, 0))> tokens;
    for (std::uint64_t i = 0; i < others; ++i) tokens.push_back(start(i, round * others + i));
    // All are in the ring: QEMU has counted them, and has then been asked once more.
    EXPECT_TRUE(native::wait_until([&] { return qemu.traffic().read_commands == done + others; },
                                   native::clock_ns() + patience_ns));
    done = qemu.traffic().read_commands;
    // The thread waits for the last one, and finds the completions of the others.
    for (std::uint64_t i = others; i-- > 0;) expect_page(tokens[i], i, round * others + i);
    EXPECT_FALSE(late.ready());
  }
  qemu.let_go();
  expect_page(late, others, 200);
}

TEST_F(BugsOfOthers, MemoryOfEachQueueStartsOnAPage) {
  test::qemu_nvme qemu;
  watched_registers registers(qemu.registers());
  driver::controller controller(registers, qemu.dma());
  for (auto const& [offset, value] : registers.writes_of_addresses()) {
    EXPECT_TRUE((offset != reg::asq && offset != reg::acq) || value % page_bytes == 0) << offset;
  }
  std::vector<driver::io_queue> queues;
  for (std::uint32_t const entries : {2u, 3u, 5u, 17u, 64u}) {
    queues.push_back(controller.create_io_queue_pair({.entries = entries}));
    for (void const* const ring : {static_cast<void const*>(queues.back().submission_ring()),
                                   static_cast<void const*>(queues.back().completion_ring())}) {
      EXPECT_EQ(qemu.dma().bus_address(ring) % page_bytes, 0u) << entries;
    }
    EXPECT_EQ(test::run_one(queues.back(), nvme::make_io_command(nvme::io_opcode::flush, 0, 1, 0, 1), 0), 0);
  }
  // Memory of the caller's that does not is refused, before the controller hears of it.
  driver::dma_buffer const memory(qemu.dma(), 2 * page_bytes);
  EXPECT_THROW(
      controller.create_io_queue_pair({.entries = 4, .submission_memory = memory.as<nvme::submission_entry>() + 1}),
      refused_input);
}

TEST_F(BugsOfOthers, IndicesBeginAnewOnlyWhenTheControllersDo) {
  test::qemu_nvme qemu;
  driver::controller controller(qemu.registers(), qemu.dma());
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 4});
  auto const flush = [&](std::uint32_t turn) {
    return test::run_one(
        queue, nvme::make_io_command(nvme::io_opcode::flush, static_cast<std::uint16_t>(turn), 1, 0, 1), turn);
  };
  for (std::uint32_t turn = 0; turn < 6; ++turn) ASSERT_EQ(flush(turn), 0);
  // The controller stands in the middle of its second lap, where it stays.
  EXPECT_THROW(controller.recreate(queue), std::exception);
  for (std::uint32_t turn = 6; turn < 11; ++turn) ASSERT_EQ(flush(turn), 0);
  controller.delete_io_queue_pair(queue);
  controller.recreate(queue);
  for (std::uint32_t turn = 0; turn < 7; ++turn) ASSERT_EQ(flush(turn), 0);
  controller.reset();
  EXPECT_FALSE(queue.live());
  controller.recreate(queue);
  for (std::uint32_t turn = 0; turn < 7; ++turn) ASSERT_EQ(flush(turn), 0);
}

TEST_F(BugsOfOthers, RegistersOf64BitsAreWrittenInHalvesLowFirst) {
  test::qemu_nvme qemu;
  watched_registers registers(qemu.registers());
  driver::controller controller(registers, qemu.dma());
  controller.reset();
  auto const writes = registers.writes_of_addresses();
  ASSERT_EQ(writes.size(), 8u) << "two queues, brought up twice";
  for (std::size_t i = 0; i < writes.size(); i += 2) {
    EXPECT_TRUE(writes[i].first == reg::asq || writes[i].first == reg::acq) << writes[i].first;
    EXPECT_EQ(writes[i + 1].first, writes[i].first + 4);
  }
}

/// A `qemu:` drive whose registers are watched: `watched:KEYS` is `qemu:KEYS`.
class watched_drive final : public drive::device {
 public:
  explicit watched_drive(std::string const& uri) : inner_(drive::open(uri)), registers_(inner_->registers()) {
    opened() = &registers_;
  }
  ~watched_drive() override { opened() = nullptr; }
  driver::register_space& registers() override { return registers_; }
  driver::dma_space& dma() override { return inner_->dma(); }
  std::uint32_t nsid() const override { return inner_->nsid(); }
  std::uint32_t most_queue_pairs() const override { return inner_->most_queue_pairs(); }
  nlohmann::json report() override { return inner_->report(); }
  void reset_statistics() override { inner_->reset_statistics(); }

  /// The registers of the one that is open.
  static watched_registers*& opened() {
    static watched_registers* registers = nullptr;
    return registers;
  }

 private:
  std::unique_ptr<drive::device> inner_;
  watched_registers registers_;
};

storage_options watched(std::uint64_t timeout_ns) {
  test::add_qemu_scheme();
  static std::once_flag once;
  std::call_once(once, [] {
    drive::add_scheme("watched",
                      [](drive::uri const& from, drive::open_options const&) {
                        return std::make_unique<watched_drive>("qemu:size=" + *from.value("size") + ",as=watched");
                      },
                      {.name = {}, .keys = {"size"}});
  });
  storage_options o;
  o.drives = {"watched:size=1M"};
  o.device = "cpu";
  o.timeout_ns = timeout_ns;
  return o;
}

/// Recovery looks once in a while whether the device is there, however many commands there are.
constexpr std::uint64_t commands = 1000;

TEST_F(BugsOfOthers, CommandsReadNoRegister) {
  storage st(watched(patience_ns));
  registered_buffer const buffer = st.allocate_buffer(page_bytes);
  auto const ref = st.ref<native>();
  std::uint64_t const before = watched_drive::opened()->reads();
  for (std::uint64_t i = 0; i < commands / 2; ++i) {
    ASSERT_TRUE(ref.write_async(buffer.ref(), i % 256 * page_bytes, page_bytes).wait().ok());
    ASSERT_TRUE(ref.read_async(buffer.ref(), i % 256 * page_bytes, page_bytes).wait().ok());
  }
  EXPECT_LT(watched_drive::opened()->reads() - before, commands / 2);
}

TEST_F(BugsOfOthers, ADeviceThatReadsAsAllOnesIsNotReadAgainAndAgain) {
  storage st(watched(200'000'000));
  registered_buffer const buffer = st.allocate_buffer(page_bytes);
  auto const ref = st.ref<native>();
  std::uint64_t const before = watched_drive::opened()->reads();
  test::opened_qemu("watched").kill();
  EXPECT_FALSE(ref.read_async(buffer.ref(), 0, page_bytes).wait().ok());
  ASSERT_TRUE(st.drain(patience_ns)) << "recovery finds out that the device has gone";
  char byte = 0;
  for (std::uint64_t i = 0; i < commands; ++i) {
    EXPECT_FALSE(ref.read_async(buffer.ref(), 0, page_bytes).wait().ok());
    EXPECT_THROW(st.pread(&byte, 1, 0), operation_failed);
  }
  EXPECT_LT(watched_drive::opened()->reads() - before, commands / 2);
}

}  // namespace
}  // namespace forebay
