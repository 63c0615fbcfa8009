// SPDX-License-Identifier: Apache-2.0
//! \file
//! Properties of an emulated controller that the conformance list does not test: its limits, its counters, its
//! reactions to misuse.
#include "forebay/detail/emulator/controller.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <unordered_map>
#include <utility>

#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/spaces.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/log_page.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "support/hand_host.hpp"

namespace forebay::emulator {
namespace {

namespace registers = nvme::registers;
using nvme::admin_opcode;
using nvme::command_specific_status;
using nvme::generic_status;
using simt::native;
using test::eventually;
using test::hand_host;

class controller_test : public ::testing::Test {
 protected:
  static subsystem_options options() {
    subsystem_options o;
    o.serial = "SERIAL7";
    return o;
  }
  controller drive{options(), memory_backing(1 << 20, 512)};
  hand_host client{drive.registers(), drive.dma()};
};

TEST_F(controller_test, capabilities) {
  nvme::controller_capabilities const cap{client.regs().read64(registers::cap)};
  EXPECT_GE(cap.max_queue_entries(), 4096u);
  EXPECT_TRUE(cap.contiguous_queues_required());
  EXPECT_EQ(cap.doorbell_stride(), 0u);
  EXPECT_TRUE(cap.nvm_command_set());
  EXPECT_FALSE(cap.nvm_subsystem_reset_supported());
  EXPECT_EQ(cap.min_page_bytes(), 4096u);
  EXPECT_EQ(client.regs().read32(registers::vs), 0x10400u);
}

TEST_F(controller_test, registers_that_are_read_only_stay) {
  client.regs().write64(registers::cap, 0);
  client.regs().write32(registers::vs, 0);
  client.regs().write32(registers::csts, 3);
  EXPECT_NE(client.regs().read64(registers::cap), 0u);
  EXPECT_EQ(client.regs().read32(registers::vs), 0x10400u);
  EXPECT_EQ(client.regs().read32(registers::csts), 0u);
  EXPECT_THROW(client.regs().doorbell(0x14), refused_input);
}

TEST_F(controller_test, interrupt_masks_set_and_clear) {
  client.regs().write32(registers::intms, 6);
  client.regs().write32(registers::intmc, 2);
  EXPECT_EQ(client.regs().read32(registers::intms), 4u);
  EXPECT_EQ(client.regs().read32(registers::intmc), 4u);
}

TEST_F(controller_test, an_admin_queue_out_of_reach_is_a_fatal_status_and_a_reset_clears_it) {
  client.set_up(0x1000, client.data_address());
  client.regs().write32(registers::cc, nvme::controller_configuration::make(true, 4096));
  ASSERT_TRUE(eventually([&] { return client.csts().fatal(); }));
  EXPECT_FALSE(client.csts().ready());
  client.disable();
  client.enable();
}

TEST_F(controller_test, admin_doorbells_that_were_rung_while_it_was_disabled_are_forgotten) {
  client.regs().write32(registers::sq_tail_doorbell(0, 0), 3);
  client.regs().write32(registers::cq_head_doorbell(0, 0), 2);
  client.enable();
  auto entry = client.admin(admin_opcode::get_features, 7);
  client.start(entry);
  client.start(entry);
  EXPECT_EQ(client.take().sq_head(), 1);
  EXPECT_EQ(client.take().command_id(), 1);
}

TEST_F(controller_test, many_queues_of_4096_entries) {
  client.enable();
  auto* const memory = static_cast<std::byte*>(client.dma().allocate(4096 * 80));
  for (std::uint32_t id = 1; id <= 128; ++id) {
    auto cq = client.admin(admin_opcode::create_io_completion_queue, id | 4095u << 16, 1);
    cq.prp1 = reinterpret_cast<std::uint64_t>(memory);
    ASSERT_EQ(client.code(cq), 0) << id;
    auto sq = client.admin(admin_opcode::create_io_submission_queue, id | 4095u << 16, 1 | id << 16);
    sq.prp1 = reinterpret_cast<std::uint64_t>(memory + 65536);
    ASSERT_EQ(client.code(sq), 0) << id;
  }
  auto cq = client.admin(admin_opcode::create_io_completion_queue, 129 | 7u << 16, 1);
  EXPECT_EQ(client.code(cq), nvme::status_field(command_specific_status::invalid_queue_identifier));
  client.disable();
  client.dma().deallocate(memory);
}

TEST_F(controller_test, queues_on_memory_that_no_one_registered_are_refused) {
  client.enable();
  auto cq = client.admin(admin_opcode::create_io_completion_queue, 1 | 7u << 16, 1);
  cq.prp1 = 0x1000;
  EXPECT_EQ(client.code(cq), nvme::status_field(generic_status::invalid_field_in_command));
  auto identify = client.admin(admin_opcode::identify, 1);
  identify.prp1 = 0x1000;
  EXPECT_EQ(client.code(identify), nvme::status_field(generic_status::data_transfer_error));
}

TEST_F(controller_test, identify_says_what_the_drive_is) {
  client.enable();
  EXPECT_EQ(client.code(client.admin(admin_opcode::identify, 1)), 0);
  auto const& id = client.data<nvme::identify_controller>();
  EXPECT_EQ(std::string(id.sn, 20), "SERIAL7             ");
  EXPECT_EQ(id.mdts, 8);
  EXPECT_EQ(id.oncs & 0x0d, 0x0d);
  EXPECT_EQ(id.vwc & 1, 1);
  auto ns = client.admin(admin_opcode::identify, 0);
  ns.nsid = 1;
  EXPECT_EQ(client.code(ns), 0);
  EXPECT_EQ(client.data<nvme::identify_namespace>().nsze, (1u << 20) / 512);
  EXPECT_EQ(client.data<nvme::identify_namespace>().block_bytes(), 512u);
}

TEST_F(controller_test, event_requests_wait_for_an_event_are_limited_and_can_be_aborted) {
  client.enable();
  for (int i = 0; i < 4; ++i) client.start(client.admin(admin_opcode::asynchronous_event_request));  // ids 0 to 3
  EXPECT_EQ(client.code(client.admin(admin_opcode::asynchronous_event_request)),
            nvme::status_field(command_specific_status::asynchronous_event_request_limit_exceeded));
  client.start(client.admin(admin_opcode::abort, 2u << 16));
  auto const first = client.take(), second = client.take();
  nvme::completion_entry const& event = first.command_id() == 2 ? first : second;
  nvme::completion_entry const& abort = first.command_id() == 2 ? second : first;
  EXPECT_EQ(event.status_field(), nvme::status_field(generic_status::command_abort_requested));
  EXPECT_EQ(abort.dw0, 0u);
  // An invalid doorbell value is an event: type 0, information 1, log page 1.
  auto* const memory = static_cast<std::byte*>(client.dma().allocate(8192));
  auto cq = client.admin(admin_opcode::create_io_completion_queue, 1 | 7u << 16, 1);
  cq.prp1 = reinterpret_cast<std::uint64_t>(memory);
  ASSERT_EQ(client.code(cq), 0);
  auto sq = client.admin(admin_opcode::create_io_submission_queue, 1 | 7u << 16, 1 | 1u << 16);
  sq.prp1 = reinterpret_cast<std::uint64_t>(memory + 4096);
  ASSERT_EQ(client.code(sq), 0);
  client.regs().write32(registers::sq_tail_doorbell(1, 0), 9);
  auto const raised = client.take();
  EXPECT_EQ(raised.command_id(), 0);
  EXPECT_EQ(raised.dw0, 0x00010100u);
  client.disable();
  client.dma().deallocate(memory);
}

TEST_F(controller_test, smart_counts_what_the_host_did) {
  client.enable();
  auto* const memory = static_cast<std::byte*>(client.dma().allocate(8192));
  auto* const cqes = reinterpret_cast<nvme::completion_entry*>(memory);
  auto* const sqes = reinterpret_cast<nvme::submission_entry*>(memory + 4096);
  auto cq = client.admin(admin_opcode::create_io_completion_queue, 1 | 31u << 16, 1);
  cq.prp1 = reinterpret_cast<std::uint64_t>(cqes);
  ASSERT_EQ(client.code(cq), 0);
  auto sq = client.admin(admin_opcode::create_io_submission_queue, 1 | 31u << 16, 1 | 1u << 16);
  sq.prp1 = reinterpret_cast<std::uint64_t>(sqes);
  ASSERT_EQ(client.code(sq), 0);
  for (std::uint16_t i = 0; i < 10; ++i) {
    sqes[i] = nvme::make_io_command(i < 7 ? nvme::io_opcode::read : nvme::io_opcode::write, i, 1, 0, 8);
    sqes[i].prp1 = client.data_address(4096);
  }
  client.regs().write32(registers::sq_tail_doorbell(1, 0), 10);
  // Acquire: pairs with the engine's release of the same word.
  ASSERT_TRUE(
      eventually([&] { return (std::atomic_ref(cqes[9].dw3).load(std::memory_order_acquire) >> 16 & 1) == 1; }));
  auto log = client.admin(admin_opcode::get_log_page,
                          nvme::get_log_page_cdw10(nvme::log_page_id::smart_health_information, 512));
  log.nsid = nvme::broadcast_nsid;
  EXPECT_EQ(client.code(log), 0);
  auto const& smart = client.data<nvme::smart_health_information>();
  EXPECT_EQ(smart.host_read_commands.low64(), 7u);
  EXPECT_EQ(smart.host_write_commands.low64(), 3u);
  EXPECT_EQ(smart.data_units_read.low64(), 1u);
  EXPECT_EQ(drive.shared().collect()->commands.bytes_read, 7u * 4096);
  client.disable();
  client.dma().deallocate(memory);
}

TEST_F(controller_test, the_error_log_keeps_failed_commands) {
  client.enable();
  EXPECT_NE(client.code(client.admin(admin_opcode::identify, 0x77)), 0);
  EXPECT_EQ(client.code(client.admin(admin_opcode::get_log_page,
                                     nvme::get_log_page_cdw10(nvme::log_page_id::error_information, 128))),
            0);
  auto const* const errors = &client.data<nvme::error_information_entry>();
  EXPECT_EQ(errors[0].error_count, 1u);
  EXPECT_EQ(errors[0].cmdid, 0);
  EXPECT_EQ(errors[1].error_count, 0u);
}

TEST_F(controller_test, features_have_current_and_default_values) {
  client.enable();
  auto const threshold = static_cast<std::uint32_t>(nvme::feature_id::temperature_threshold);
  EXPECT_EQ(client.run(client.admin(admin_opcode::get_features, threshold)).dw0, 343u);
  EXPECT_EQ(client.code(client.admin(admin_opcode::set_features, threshold, 300)), 0);
  EXPECT_EQ(client.run(client.admin(admin_opcode::get_features, threshold)).dw0, 300u);
  EXPECT_EQ(client.run(client.admin(admin_opcode::get_features, threshold | 1u << 8)).dw0, 343u);
  EXPECT_EQ(client.code(client.admin(admin_opcode::set_features, threshold | nvme::feature_save, 300)),
            nvme::status_field(command_specific_status::feature_identifier_not_saveable));
  auto const queues = static_cast<std::uint32_t>(nvme::feature_id::number_of_queues);
  EXPECT_EQ(client.run(client.admin(admin_opcode::set_features, queues, 3 | 3u << 16)).dw0, 127u | 127u << 16);
}

TEST_F(controller_test, shutdown_is_reported) {
  client.enable();
  auto const cc = nvme::controller_configuration::make(true, 4096);
  client.regs().write32(registers::cc,
                        nvme::controller_configuration::with_shutdown(cc, nvme::shutdown_notification::normal));
  EXPECT_TRUE(eventually([&] { return client.csts().shutdown() == nvme::shutdown_status::complete; }));
}

TEST_F(controller_test, a_reset_with_queues_and_traffic_comes_up_again) {
  for (int round = 0; round < 20; ++round) {
    client.enable();
    auto* const memory = static_cast<std::byte*>(client.dma().allocate(8192));
    auto cq = client.admin(admin_opcode::create_io_completion_queue, 3 | 31u << 16, 1);
    cq.prp1 = reinterpret_cast<std::uint64_t>(memory);
    ASSERT_EQ(client.code(cq), 0);
    auto sq = client.admin(admin_opcode::create_io_submission_queue, 5 | 31u << 16, 1 | 3u << 16);
    sq.prp1 = reinterpret_cast<std::uint64_t>(memory + 4096);
    ASSERT_EQ(client.code(sq), 0);
    auto* const sqes = reinterpret_cast<nvme::submission_entry*>(memory + 4096);
    for (std::uint16_t i = 0; i < 31; ++i) {
      sqes[i] = nvme::make_io_command(nvme::io_opcode::read, i, 1, 0, 8);
      sqes[i].prp1 = client.data_address();
    }
    client.regs().write32(registers::sq_tail_doorbell(5, 0), 31);
    client.disable();
    EXPECT_EQ(*client.regs().doorbell(registers::sq_tail_doorbell(5, 0)), 0u);
    client.dma().deallocate(memory);
  }
}

/// Two clients of one drive.
class shared_drive : public ::testing::Test {
 protected:
  static std::shared_ptr<subsystem> make() {
    subsystem_options o;
    o.serial = "SERIAL7";
    o.max_queues = 4;
    return std::make_shared<subsystem>(o, memory_backing(1 << 20, 512));
  }
  std::shared_ptr<subsystem> drive = make();
  controller first{drive, 2}, second{drive, 2};
  hand_host owner{first.registers(), first.dma()}, other{second.registers(), second.dma()};
};

TEST_F(shared_drive, memory_of_one_client_is_out_of_reach_of_the_other) {
  owner.enable();
  other.enable();
  auto const memory = owner.data_address();
  // Admin commands, queues and the controller's registers.
  auto identify = other.admin(admin_opcode::identify, 1);
  identify.prp1 = memory;
  EXPECT_EQ(other.code(identify), nvme::status_field(generic_status::data_transfer_error));
  auto cq = other.admin(admin_opcode::create_io_completion_queue, 1 | 7u << 16, 1);
  cq.prp1 = memory;
  EXPECT_EQ(other.code(cq), nvme::status_field(generic_status::invalid_field_in_command));
  cq.prp1 = other.data_address();
  ASSERT_EQ(other.code(cq), 0);
  auto sq = other.admin(admin_opcode::create_io_submission_queue, 1 | 7u << 16, 1 | 1u << 16);
  sq.prp1 = memory;
  EXPECT_EQ(other.code(sq), nvme::status_field(generic_status::invalid_field_in_command));
  sq.prp1 = other.data_address(4096);
  ASSERT_EQ(other.code(sq), 0);

  // I/O commands: a page, the second of two pages, a list, and an entry of a list.
  auto* const list = reinterpret_cast<std::uint64_t*>(other.data_address(16384));
  std::fill_n(list, 3, other.data_address(32768));
  list[1] = memory;
  auto* const sqes = reinterpret_cast<nvme::submission_entry*>(other.data_address(4096));
  auto const* const cqes = reinterpret_cast<nvme::completion_entry*>(other.data_address());
  std::uint64_t const mine = other.data_address(32768);
  std::uint64_t const prps[][2] = {
      {memory, 0}, {mine, memory}, {mine, memory}, {mine, reinterpret_cast<std::uint64_t>(list)}, {mine, 0}};
  std::uint32_t const blocks[] = {8, 16, 32, 32, 8};
  for (std::uint16_t i = 0; i < 5; ++i) {
    sqes[i] = nvme::make_io_command(nvme::io_opcode::write, i, 1, 0, blocks[i]);
    sqes[i].prp1 = prps[i][0];
    sqes[i].prp2 = prps[i][1];
  }
  other.regs().write32(registers::sq_tail_doorbell(1, 0), 5);
  for (int i = 0; i < 5; ++i) {
    // Acquire: pairs with the engine's release of the same word.
    ASSERT_TRUE(eventually([&] {
      return (std::atomic_ref(const_cast<std::uint32_t&>(cqes[i].dw3)).load(std::memory_order_acquire) >> 16 & 1) == 1;
    }));
    EXPECT_EQ(cqes[i].status_field() & nvme::status_code_mask,
              cqes[i].command_id() == 4 ? 0 : nvme::status_field(generic_status::data_transfer_error))
        << cqes[i].command_id();
  }

  other.disable();
  other.set_up(memory, other.data_address());
  other.regs().write32(registers::cc, nvme::controller_configuration::make(true, 4096));
  EXPECT_TRUE(eventually([&] { return other.csts().fatal(); })) << "an admin queue in another client's memory";
}

/// Address space that host threads must not touch, like a GPU's memory.
class untouchable_memory final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::kind::device; }
  void* allocate(std::size_t bytes, std::size_t) override {
    void* const made = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    bytes_.emplace(made, bytes);
    return made;
  }
  void deallocate(void* address) noexcept override {
    ::munmap(address, bytes_.at(address));
    bytes_.erase(address);
  }
  void copy_in(void*, void const*, std::size_t) override {}
  void copy_out(void*, void const*, std::size_t) override {}

 private:
  std::unordered_map<void*, std::size_t> bytes_;
};

TEST(controller_for_a_gpu, does_not_touch_memory_that_only_the_gpu_reaches) {
  untouchable_memory gpu;
  auto const drive = std::make_shared<subsystem>(subsystem_options{}, memory_backing(1 << 20, 512));
  // The doorbells are not the GPU's: this engine runs on threads.
  controller one{drive, 2, memory::host(), &gpu};
  hand_host client{one.registers(), one.dma()};
  void* const far = one.dma().allocate_for_gpu(1 << 20);
  auto const address = one.dma().bus_address(far);
  client.enable();
  auto identify = client.admin(admin_opcode::identify, 1);
  identify.prp1 = address;
  EXPECT_EQ(client.code(identify), nvme::status_field(generic_status::data_transfer_error)) << "data";
  auto log = client.admin(admin_opcode::get_log_page, 1 | (3 * 4096 / 4 - 1) << 16);
  log.prp2 = address;
  EXPECT_EQ(client.code(log), nvme::status_field(generic_status::data_transfer_error)) << "a PRP list";
  auto cq = client.admin(admin_opcode::create_io_completion_queue, 1 | 7u << 16, 1);
  cq.prp1 = address;
  EXPECT_EQ(client.code(cq), 0) << "queues are the GPU's";
  client.disable();
  for (auto const& [asq, acq] :
       {std::pair(address, client.data_address()), std::pair(client.data_address(), address)}) {
    client.set_up(asq, acq);
    client.regs().write32(registers::cc, nvme::controller_configuration::make(true, 4096));
    EXPECT_TRUE(eventually([&] { return client.csts().fatal(); })) << "an admin queue";
    client.disable();
  }
  one.dma().deallocate(far);
}

TEST(subsystem_options_test, are_checked) {
  auto const refused = [](auto change) {
    subsystem_options o;
    change(o);
    EXPECT_THROW(controller(o, no_backing(4096, 512)), refused_input);
  };
  refused([](auto& o) { o.units = 0; });
  refused([](auto& o) { o.max_queues = 0; });
  refused([](auto& o) { o.max_queue_entries = 1; });
  refused([](auto& o) { o.timing.channels = 65; });
  refused([](auto& o) { o.serial = "a serial number that is too long"; });
}

TEST(dma_space_test, allocations_are_registered_and_aligned) {
  dma_regions regions(memory::host(), 6);
  dma_space space(regions, memory::host());
  void* const memory = space.allocate(5000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0u);
  EXPECT_TRUE(regions.table().contains<native>(space.bus_address(memory), 8192));
  space.deallocate(memory);
  EXPECT_FALSE(regions.table().contains<native>(reinterpret_cast<std::uint64_t>(memory), 1));
  EXPECT_THROW(space.map(reinterpret_cast<void*>(0x1001), 4096), refused_input);
  EXPECT_THROW(space.unmap(reinterpret_cast<void*>(0x1000), 4096), refused_input);
}

/// Notes which memory it is told of.
class told_medium final : public medium {
 public:
  using range = std::pair<void const*, std::size_t>;
  std::multiset<range> ranges;

  std::unique_ptr<medium_port> open(port_use) override { return nullptr; }
  void add_memory(void const*, void const* address, std::size_t bytes) override { ranges.emplace(address, bytes); }
  void remove_memory(void const*, void const* address, std::size_t bytes) noexcept override {
    if (auto const found = ranges.find({address, bytes}); found != ranges.end()) ranges.erase(found);
  }
  void remove_memory(void const*) noexcept override { ranges.clear(); }
};

TEST(dma_space_test, its_medium_is_told_of_all_memory) {
  dma_regions regions(memory::host(), 6);
  told_medium told;
  alignas(4096) static std::byte mapped[8192];
  {
    dma_space space(regions, memory::host(), nullptr, nullptr, &told);
    void* const memory = space.allocate(5000);
    space.map(mapped, 8192);
    space.map(mapped, 4096);
    EXPECT_EQ(told.ranges, (std::multiset<told_medium::range>{{memory, 8192}, {mapped, 8192}, {mapped, 4096}}));
    space.deallocate(memory);
    space.unmap(mapped, 4096);
    EXPECT_EQ(told.ranges, (std::multiset<told_medium::range>{{mapped, 8192}}));
    EXPECT_THROW(space.allocate(std::size_t{200} << 30), operation_failed);
    EXPECT_EQ(told.ranges.size(), 1u);
  }
  // A client that was killed unmaps nothing.
  EXPECT_TRUE(told.ranges.empty());
}

TEST(dma_space_test, memory_that_cannot_be_registered_is_given_back_and_the_rest_stays) {
  dma_regions regions(memory::host(), 4);
  dma_space space(regions, memory::host());
  void* const kept = space.allocate(4096);
  EXPECT_THROW(space.allocate(std::size_t{200} << 30), operation_failed);
  EXPECT_TRUE(regions.table().contains<native>(space.bus_address(kept), 4096));
  for (int i = 0; i < 100; ++i) space.deallocate(space.allocate(std::size_t{20} << 20));
}

}  // namespace
}  // namespace forebay::emulator
