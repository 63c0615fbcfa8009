// SPDX-License-Identifier: Apache-2.0
//! \file
//! The transport itself: what the driver's tests over QEMU rely on.
#include "support/qemu_nvme.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "qemu/run_one.hpp"

namespace forebay::test {
namespace {

using simt::native;

constexpr std::uint64_t patience_ns = 20'000'000'000;

TEST(qemu, answers_and_says_its_version) {
  FOREBAY_NEEDS_QEMU();
  qemu_nvme qemu;
  EXPECT_FALSE(qemu.version().empty());
  nvme::controller_version const version{qemu.registers().read32(nvme::registers::vs)};
  EXPECT_EQ(version.major(), 1u);
  EXPECT_GE(version.minor(), 4u);
  EXPECT_EQ(qemu.qmp("query-status").at("running"), false);
  EXPECT_THROW(qemu.qmp("no-such-command"), operation_failed);
}

TEST(qemu, refuses_a_drive_it_cannot_make) {
  FOREBAY_NEEDS_QEMU();
  EXPECT_THROW(qemu_nvme({.block_bytes = 1000}), operation_failed);
}

TEST(shared_memory, scatters_pages_and_zeroes_them) {
  shared_memory memory(1 << 20, 1 << 16, 1);
  auto* const bytes = static_cast<std::byte*>(memory.allocate(16 * 4096));
  int neighbours = 0;
  for (std::size_t i = 1; i < 16; ++i) {
    neighbours += memory.bus_address(bytes + i * 4096) == memory.bus_address(bytes + (i - 1) * 4096) + 4096;
  }
  EXPECT_LT(neighbours, 15);
  EXPECT_EQ(memory.bus_address(bytes + 4096 + 17), memory.bus_address(bytes + 4096) + 17);
  std::memset(bytes, 0xff, 16 * 4096);
  memory.deallocate(bytes);
  auto* const again = static_cast<std::byte*>(memory.allocate(200 * 4096));
  for (std::size_t i = 0; i < 200 * 4096; ++i) ASSERT_EQ(again[i], std::byte{0});
  EXPECT_THROW(memory.allocate(100 * 4096), std::bad_alloc);
  memory.deallocate(again);
  auto* const all = memory.allocate((1 << 20) - (1 << 16));
  memory.deallocate(all);
}

TEST(shared_memory, contiguous_pages_follow_each_other) {
  shared_memory memory(1 << 20, 1 << 16, 1);
  auto* const bytes = static_cast<std::byte*>(memory.allocate_contiguous(16 * 4096));
  for (std::size_t i = 1; i < 16; ++i) {
    EXPECT_EQ(memory.bus_address(bytes + i * 4096), memory.bus_address(bytes) + i * 4096);
  }
  EXPECT_THROW(memory.bus_address(bytes + 16 * 4096), std::logic_error);
  memory.deallocate(bytes);
}

/// What is locked. It checks that an area is locked as a whole, once, and unlocked by its address.
class noted_locks {
 public:
  page_locks functions() {
    return {[this](void* address, std::size_t bytes) {
              if (refuses) throw std::runtime_error("no lock");
              EXPECT_TRUE(held.emplace(address, bytes).second);
            },
            [this](void* address) { EXPECT_EQ(held.erase(address), 1u); }};
  }
  std::map<void*, std::size_t> held;
  bool refuses = false;
};

TEST(shared_memory, locks_each_area_while_it_may_be_used) {
  noted_locks locks;
  {
    shared_memory memory(1 << 20, 1 << 16, 1, locks.functions());
    void* const scattered = memory.allocate(5 * 4096 - 1);
    void* const run = memory.allocate_contiguous(3 * 4096);
    EXPECT_THAT(locks.held,
                testing::UnorderedElementsAre(testing::Pair(scattered, 5 * 4096u), testing::Pair(run, 3 * 4096u)));
    locks.refuses = true;
    EXPECT_THROW(memory.allocate((1 << 20) - (1 << 16) - 8 * 4096), std::runtime_error);
    locks.refuses = false;
    memory.deallocate(memory.allocate((1 << 20) - (1 << 16) - 8 * 4096));
  }
  EXPECT_TRUE(locks.held.empty());
}

TEST(shared_memory, keeps_an_area_that_is_locked_and_gives_it_again_as_zeros) {
  noted_locks locks;
  shared_memory memory(1 << 20, 1 << 16, 1, locks.functions());
  auto* const first = static_cast<std::byte*>(memory.allocate(4 * 4096));
  std::memset(first, 0xff, 4 * 4096);
  std::uint64_t const last_page = memory.bus_address(first + 3 * 4096);
  memory.deallocate(first);
  EXPECT_EQ(locks.held.count(first), 1u);
  EXPECT_THROW(memory.bus_address(first), std::logic_error);
  EXPECT_THROW(memory.map(first, 4096), refused_input);
  EXPECT_TRUE(memory.stray_pages().empty());
  first[4 * 4096 - 1] = std::byte{1};  // as a device does that goes on after the memory was taken from it
  EXPECT_EQ(memory.stray_pages(), std::vector<std::uint64_t>{last_page});
  EXPECT_NE(memory.allocate_contiguous(4 * 4096), first) << "its pages do not follow each other";
  auto* const again = static_cast<std::byte*>(memory.allocate(4 * 4096));
  EXPECT_EQ(again, first);
  EXPECT_EQ(again[4 * 4096 - 1], std::byte{0});
  EXPECT_TRUE(memory.stray_pages().empty());
  memory.deallocate(again);
  // The only way to have so much is to take back what is kept.
  EXPECT_NE(memory.allocate((1 << 20) - (1 << 16) - 4 * 4096), nullptr);
  EXPECT_EQ(locks.held.count(first), 0u);
}

TEST(shared_memory, finds_a_run_wherever_it_is) {
  shared_memory memory(1 << 20, 1 << 16, 1);
  std::set<std::uint64_t> firsts;
  for (int i = 0; i < 16; ++i) {
    void* const run = memory.allocate_contiguous(16 * 4096 - 1);
    firsts.insert(memory.bus_address(run));
    memory.deallocate(run);
  }
  EXPECT_GT(firsts.size(), 8u);
  EXPECT_NE(memory.allocate_contiguous((1 << 20) - (1 << 16)), nullptr);
  EXPECT_THROW(memory.allocate_contiguous(1), std::bad_alloc);
}

TEST(qemu, finds_pages_that_a_wrong_prp_touched) {
  FOREBAY_NEEDS_QEMU();
  qemu_nvme qemu;
  driver::controller controller(qemu.registers(), qemu.dma());
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 4});
  driver::dma_buffer data(qemu.dma(), 4096);
  nvme::submission_entry read = nvme::make_io_command(nvme::io_opcode::read, 0, 1, 0, 8);
  read.prp1 = data.bus_address();
  EXPECT_EQ(run_one(queue, read, 0), 0);
  EXPECT_TRUE(qemu.dma().stray_pages().empty());
  // One page too few: QEMU reports success and writes to bus address 0.
  read = nvme::make_io_command(nvme::io_opcode::read, 1, 1, 0, 16);
  read.prp1 = data.bus_address();
  EXPECT_EQ(run_one(queue, read, 1), 0);
  EXPECT_EQ(qemu.dma().stray_pages(), std::vector<std::uint64_t>{0});
}

TEST(qemu, relays_every_doorbell_value_even_the_same_again) {
  FOREBAY_NEEDS_QEMU();
  qemu_nvme qemu;
  driver::controller controller(qemu.registers(), qemu.dma());
  // Each life of the queue starts at tail 0, so its first doorbell value is the last one of the life before.
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 4});
  for (int life = 0; life < 3; ++life) {
    EXPECT_EQ(run_one(queue, nvme::make_io_command(nvme::io_opcode::flush, 7, 1, 0, 1), 0), 0);
    controller.delete_io_queue_pair(queue);
    controller.recreate(queue);
  }
}

TEST(qemu, injects_errors_of_the_backing_store) {
  FOREBAY_NEEDS_QEMU();
  qemu_nvme qemu({.errors = {{.iotype = "read", .error = EIO, .sector = 2048, .once = true},
                             {.iotype = "write", .error = ENOSPC, .sector = 4096}}});
  driver::controller controller(qemu.registers(), qemu.dma());
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 4});
  driver::dma_buffer data(qemu.dma(), 4096);
  auto run = [&, turn = 0u](nvme::io_opcode opcode, std::uint64_t slba) mutable {
    nvme::submission_entry entry = nvme::make_io_command(opcode, 0, 1, slba, 1);
    entry.prp1 = data.bus_address();
    return run_one(queue, entry, turn++);
  };
  EXPECT_EQ(run(nvme::io_opcode::read, 2048), nvme::status_field(nvme::media_status::unrecovered_read_error));
  EXPECT_EQ(run(nvme::io_opcode::read, 2048), 0) << "the rule was for once";
  EXPECT_EQ(run(nvme::io_opcode::write, 4096), nvme::status_field(nvme::media_status::write_fault));
  EXPECT_EQ(run(nvme::io_opcode::write, 4097), 0);
}

TEST(qemu, paused_controller_answers_nothing_and_recovers) {
  FOREBAY_NEEDS_QEMU();
  qemu_nvme qemu;
  driver::controller controller(qemu.registers(), qemu.dma(), {.admin_timeout_ns = 1'000'000'000});
  qemu.pause();
  try {
    controller.identify_controller();
    ADD_FAILURE() << "a stopped controller answered";
  } catch (driver::controller_failure const& e) {
    EXPECT_EQ(e.why(), driver::controller_failure::cause::timed_out) << e.what();
  }
  EXPECT_THROW(controller.identify_controller(), driver::controller_failure) << "it needs a reset first";
  qemu.resume();
  controller.reset();
  EXPECT_EQ(controller.identify_namespace(1).nsze, controller.identity().blocks);
}

TEST(qemu, killed_controller_counts_as_removed) {
  FOREBAY_NEEDS_QEMU();
  qemu_nvme qemu;
  driver::controller controller(qemu.registers(), qemu.dma());
  driver::io_queue queue = controller.create_io_queue_pair({.entries = 4});
  qemu.kill();
  try {
    controller.identify_controller();
    ADD_FAILURE() << "a dead controller answered";
  } catch (driver::controller_failure const& e) {
    EXPECT_EQ(e.why(), driver::controller_failure::cause::removed) << e.what();
  }
  EXPECT_FALSE(queue.live());
  try {
    controller.reset();
    ADD_FAILURE() << "a dead controller was reset";
  } catch (driver::controller_failure const& e) {
    EXPECT_EQ(e.why(), driver::controller_failure::cause::removed) << e.what();
  }
}

TEST(qemu, doorbell_of_a_queue_outside_ram_is_fatal_until_reset) {
  FOREBAY_NEEDS_QEMU();
  qemu_nvme qemu;
  driver::controller controller(qemu.registers(), qemu.dma());
  driver::dma_buffer const completions(qemu.dma(), 4096);
  auto const create = [&](nvme::admin_opcode opcode, std::uint64_t prp1, std::uint32_t cdw11) {
    nvme::submission_entry entry;
    entry.cdw0 = nvme::make_cdw0(opcode, 0);
    entry.prp1 = prp1;
    entry.cdw10 = 1 | 3 << 16;
    entry.cdw11 = cdw11;
    return controller.execute(entry).status_field();
  };
  ASSERT_EQ(create(nvme::admin_opcode::create_io_completion_queue, completions.bus_address(), 1), 0);
  ASSERT_EQ(create(nvme::admin_opcode::create_io_submission_queue, std::uint64_t{1} << 40, 1 | 1 << 16), 0);
  native::st_mmio(qemu.registers().doorbell(nvme::registers::sq_tail_doorbell(1, 0)), 1);
  bool const fatal = native::wait_until(
      [&] { return nvme::controller_status{qemu.registers().read32(nvme::registers::csts)}.fatal(); },
      native::clock_ns() + patience_ns);
  ASSERT_TRUE(fatal);
  controller.reset();
  EXPECT_EQ(controller.identify_namespace(1).nsze, controller.identity().blocks);
  EXPECT_FALSE(nvme::controller_status{qemu.registers().read32(nvme::registers::csts)}.fatal());
}

}  // namespace
}  // namespace forebay::test
