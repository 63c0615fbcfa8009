// SPDX-License-Identifier: Apache-2.0
//! \file
//! The driver against controllers that misbehave. The conformance list tests working ones.
#include "forebay/detail/driver/controller.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "driver/fake_controller.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::driver {
namespace {

using test::counted_memory;
using test::fake_controller;
using cause = controller_failure::cause;
using testing::HasSubstr;
namespace reg = nvme::registers;

/// The fake answers at once or never, so every deadline may be short.
controller_options impatient() {
  controller_options o;
  o.admin_timeout_ns = 2'000'000;
  o.shutdown_timeout_ns = 2'000'000;
  o.ready_timeout_ns = 2'000'000;
  return o;
}

template <class Action>
cause failure_of(Action&& action) {
  try {
    action();
  } catch (controller_failure const& e) {
    EXPECT_STRNE(e.what(), "");
    return e.why();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

template <class Exception, class Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (Exception const& e) {
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

struct driver_test : testing::Test {
  fake_controller fake;
  counted_memory memory;

  std::unique_ptr<controller> bring_up(controller_options const& options = impatient()) {
    return std::make_unique<controller>(fake, memory, options);
  }
  /// Says nothing to commands of this opcode.
  void withhold(nvme::admin_opcode opcode) {
    fake.handler = [this, opcode](nvme::submission_entry const& e) -> std::optional<fake_controller::reply> {
      if (e.opcode() == static_cast<std::uint8_t>(opcode)) return std::nullopt;
      return fake.answer(e);
    };
  }
  void work_again() {
    fake.handler = [this](nvme::submission_entry const& e) { return std::optional(fake.answer(e)); };
  }
  std::vector<std::uint8_t> opcodes() const {
    std::vector<std::uint8_t> all;
    for (nvme::submission_entry const& e : fake.commands()) all.push_back(e.opcode());
    return all;
  }
};

// Bring-up.

TEST_F(driver_test, queue_registers_are_written_before_enable_low_half_first) {
  auto const controller = bring_up();
  std::vector<std::uint32_t> offsets;
  for (auto const& w : fake.writes()) {
    if (w.offset < reg::doorbell_base) offsets.push_back(w.offset);
  }
  EXPECT_EQ(offsets, (std::vector<std::uint32_t>{reg::aqa, reg::asq, reg::asq + 4, reg::acq, reg::acq + 4, reg::cc}));
}

TEST_F(driver_test, identity_is_what_the_controller_says) {
  fake.name_space.lbaf[0].lbads = 12;
  fake.identify.oncs = 1 << 0 | 1 << 3;
  fake.name_space.nsattr = 1;
  auto const controller = bring_up();
  drive_identity const& id = controller->identity();
  EXPECT_EQ(id.serial, "FAKE 1");
  EXPECT_EQ(id.model, "");
  EXPECT_EQ(id.blocks, 1000u);
  EXPECT_EQ(id.block_bytes, 4096u);
  EXPECT_EQ(id.size_bytes(), 4096000u);
  EXPECT_EQ(id.max_transfer_bytes, 131072u);
  EXPECT_EQ(id.max_queue_entries, 1024u);
  EXPECT_EQ(id.io_queue_pairs, 4u);
  EXPECT_TRUE(id.volatile_write_cache);
  EXPECT_TRUE(id.compare);
  EXPECT_FALSE(id.dataset_management);
  EXPECT_TRUE(id.write_zeroes);
  EXPECT_TRUE(id.write_protected);
}

TEST_F(driver_test, without_mdts_the_block_count_field_is_the_limit) {
  fake.identify.mdts = 0;
  EXPECT_EQ(bring_up()->identity().max_transfer_bytes, 65536u * 512);
}

TEST_F(driver_test, never_ready_is_a_timeout) {
  fake.becomes_ready = false;
  EXPECT_EQ(failure_of([&] { bring_up(); }), cause::timed_out);
  EXPECT_THAT(message_of<controller_failure>([&] { bring_up(); }), HasSubstr("did not become ready within 2 ms"));
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(driver_test, fatal_status_at_enable_is_told) {
  fake.fatal_at_enable = true;
  EXPECT_EQ(failure_of([&] { bring_up(); }), cause::fatal);
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(driver_test, absent_device_is_told) {
  fake.removed = true;
  EXPECT_EQ(failure_of([&] { bring_up(); }), cause::removed);
}

TEST_F(driver_test, leftover_of_another_driver_is_stopped_first) {
  fake.write32(reg::cc, nvme::controller_configuration::make(true, 4096));
  std::size_t const before = fake.writes().size();
  auto const controller = bring_up();
  auto const first = fake.writes()[before];
  EXPECT_EQ(first.offset, reg::cc);
  EXPECT_FALSE(nvme::controller_configuration{first.value}.enabled());
}

TEST_F(driver_test, leftover_that_never_became_ready_is_stopped_all_the_same) {
  fake.becomes_ready = false;
  fake.write32(reg::cc, nvme::controller_configuration::make(true, 4096));
  fake.becomes_ready = true;
  EXPECT_EQ(bring_up()->identity().blocks, 1000u);
}

TEST_F(driver_test, controller_that_never_stops_is_a_timeout) {
  fake.write32(reg::cc, nvme::controller_configuration::make(true, 4096));
  fake.stops = false;
  EXPECT_THAT(message_of<controller_failure>([&] { bring_up(); }), HasSubstr("did not stop"));
}

TEST_F(driver_test, controllers_that_cannot_be_used_are_refused) {
  fake.capabilities = nvme::controller_capabilities::make(1024, true, 1, 0, 0, 0, 4);
  EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }), HasSubstr("NVM command set"));
  fake.capabilities = nvme::controller_capabilities::make(1024, true, 1, 0, 1, 2, 4);
  EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }), HasSubstr("smallest page is 16384"));
  fake.capabilities = nvme::controller_capabilities::make(1, true, 1, 0, 1, 0, 4);
  EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }), HasSubstr("a queue needs two"));
}

TEST_F(driver_test, controller_that_hides_its_configuration_is_stopped_all_the_same) {
  fake.becomes_ready = false;
  fake.hides_configuration = true;
  EXPECT_EQ(failure_of([&] { bring_up(); }), cause::timed_out);
  auto const last = fake.writes().back();
  EXPECT_EQ(last.offset, reg::cc);
  EXPECT_FALSE(nvme::controller_configuration{last.value}.enabled());
}

TEST_F(driver_test, shutdown_has_a_time_limit_whatever_the_controller_asks_for) {
  fake.identify.rtd3e = ~0u;
  fake.completes_shutdown = false;
  controller_options options = impatient();
  options.shutdown_timeout_most_ns = 3'000'000;
  auto const controller = bring_up(options);
  EXPECT_THAT(message_of<controller_failure>([&] { controller->shutdown(); }), HasSubstr("shutdown within 3 ms"));
}

TEST_F(driver_test, queue_without_doorbells_takes_no_id) {
  auto const controller = bring_up();
  fake.window_bytes = 4096 + 8;
  for (int i = 0; i < 10; ++i) {
    EXPECT_THAT(message_of<operation_failed>([&] { (void)controller->create_io_queue_pair(); }),
                HasSubstr("no register is there"));
  }
  fake.window_bytes = 8192;
  EXPECT_EQ(controller->create_io_queue_pair().id(), 1);
}

TEST_F(driver_test, texts_of_the_controller_are_printable) {
  std::memcpy(fake.identify.sn, "A\n\x01\xff\x7f B", 7);
  auto const controller = bring_up();
  EXPECT_EQ(controller->identity().serial, "A???? B");
}

TEST_F(driver_test, namespaces_that_cannot_be_used_are_refused) {
  fake.active = {2, 3};
  EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }), HasSubstr("namespace 1 is not active"));
  fake.active = {1};
  fake.name_space.lbaf[0].ms = 8;
  EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }), HasSubstr("8 bytes of metadata"));
  fake.name_space.lbaf[0] = {0, 3, 0};
  EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }), HasSubstr("blocks of 2^3 bytes"));
  fake.name_space.lbaf[0] = {0, 16, 0};
  fake.identify.mdts = 3;
  EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }), HasSubstr("moves at most 32768 bytes"));
  fake.name_space.lbaf[0] = {0, 9, 0};
  for (std::uint64_t const blocks : {std::uint64_t{0}, std::uint64_t{1} << 54, ~std::uint64_t{0}}) {
    fake.name_space.nsze = blocks;
    EXPECT_THAT(message_of<operation_failed>([&] { bring_up(); }),
                HasSubstr("namespace 1 has " + std::to_string(blocks) + " blocks of 512 bytes"));
  }
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(driver_test, another_namespace_can_be_chosen) {
  fake.active = {1, 7};
  controller_options options = impatient();
  options.nsid = 7;
  EXPECT_EQ(bring_up(options)->identity().nsid, 7u);
}

TEST_F(driver_test, options_out_of_range_are_refused) {
  controller_options options = impatient();
  options.admin_queue_entries = 1;
  EXPECT_THAT(message_of<refused_input>([&] { bring_up(options); }), HasSubstr("admin_queue_entries: '1'"));
  options = impatient();
  options.admin_queue_entries = 65;
  EXPECT_THAT(message_of<refused_input>([&] { bring_up(options); }), HasSubstr("use at most 64"));
  options = impatient();
  options.io_queue_pairs = 0;
  EXPECT_THAT(message_of<refused_input>([&] { bring_up(options); }), HasSubstr("io_queue_pairs: '0'"));
  options = impatient();
  options.nsid = nvme::broadcast_nsid;
  EXPECT_THAT(message_of<refused_input>([&] { bring_up(options); }), HasSubstr("nsid"));
}

TEST_F(driver_test, doorbells_follow_the_stride) {
  fake.capabilities = nvme::controller_capabilities::make(1024, true, 1, 2, 1, 0, 4);
  auto const controller = bring_up();
  io_queue const queue = controller->create_io_queue_pair({.entries = 8});
  EXPECT_EQ(queue.sq_tail_doorbell(), fake.doorbell(0x1000 + 2 * 16));
  EXPECT_EQ(queue.cq_head_doorbell(), fake.doorbell(0x1000 + 3 * 16));
}

// Commands without an answer.

TEST_F(driver_test, silent_command_is_aborted) {
  auto const controller = bring_up();
  fake.handler = [this](nvme::submission_entry const& e) -> std::optional<fake_controller::reply> {
    if (e.opcode() == static_cast<std::uint8_t>(nvme::admin_opcode::get_features)) return std::nullopt;
    if (e.opcode() == static_cast<std::uint8_t>(nvme::admin_opcode::abort)) {
      EXPECT_EQ(e.cdw10 & 0xffff, 0u) << "of the admin queue";
      fake.complete(static_cast<std::uint16_t>(e.cdw10 >> 16),
                    {nvme::status_field(nvme::generic_status::command_abort_requested), 0});
      return fake_controller::reply{0, 0};
    }
    return fake.answer(e);
  };
  try {
    controller->get_feature(nvme::feature_id::arbitration);
    ADD_FAILURE() << "nothing was thrown";
  } catch (command_error const& e) {
    EXPECT_EQ(e.status_field(), nvme::status_field(nvme::generic_status::command_abort_requested));
  }
  work_again();
  EXPECT_EQ(controller->identify_namespace(1).nsze, 1000u) << "the controller goes on";
}

TEST_F(driver_test, command_that_cannot_be_aborted_fails_the_controller_until_reset) {
  auto const controller = bring_up();
  std::size_t const idle = memory.held();
  withhold(nvme::admin_opcode::identify);
  EXPECT_EQ(failure_of([&] { controller->identify_controller(); }), cause::timed_out);
  EXPECT_EQ(opcodes().back(), static_cast<std::uint8_t>(nvme::admin_opcode::abort));
  EXPECT_EQ(memory.held(), idle + 1) << "the controller may still write the page";
  std::size_t const commands = fake.commands().size();
  EXPECT_EQ(failure_of([&] { controller->get_feature(nvme::feature_id::arbitration); }), cause::cancelled);
  EXPECT_EQ(fake.commands().size(), commands) << "no command goes to a controller that does not answer";
  work_again();
  controller->reset();
  EXPECT_EQ(memory.held(), idle);
  EXPECT_EQ(controller->identify_namespace(1).nsze, 1000u);
}

TEST_F(driver_test, silent_abort_fails_the_controller_too) {
  auto const controller = bring_up();
  withhold(nvme::admin_opcode::abort);
  EXPECT_EQ(failure_of([&] { controller->abort(1, 2); }), cause::timed_out);
}

TEST_F(driver_test, refused_abort_is_no_excuse_for_the_command) {
  auto const controller = bring_up();
  fake.refuse[nvme::admin_opcode::abort] =
      nvme::status_field(nvme::command_specific_status::abort_command_limit_exceeded);
  withhold(nvme::admin_opcode::identify);
  EXPECT_EQ(failure_of([&] { controller->identify_controller(); }), cause::timed_out);
}

TEST_F(driver_test, fatal_status_under_way_is_told) {
  controller_options options = impatient();
  options.admin_timeout_ns = 60'000'000'000;  // longer than any test may take
  auto const controller = bring_up(options);
  fake.handler = [this](nvme::submission_entry const&) -> std::optional<fake_controller::reply> {
    fake.raise_fatal();
    return std::nullopt;
  };
  EXPECT_EQ(failure_of([&] { controller->identify_controller(); }), cause::fatal);
  work_again();
  controller->reset();
  EXPECT_EQ(controller->identify_namespace(1).nsze, 1000u);
}

TEST_F(driver_test, removal_under_way_is_told_and_frees_all_memory) {
  controller_options options = impatient();
  options.admin_timeout_ns = 60'000'000'000;
  auto controller = bring_up(options);
  io_queue queue = controller->create_io_queue_pair({.entries = 8});
  fake.handler = [this](nvme::submission_entry const&) -> std::optional<fake_controller::reply> {
    fake.removed = true;
    return std::nullopt;
  };
  EXPECT_EQ(failure_of([&] { controller->identify_controller(); }), cause::removed);
  EXPECT_FALSE(queue.live()) << "a device that left the bus touches nothing";
  queue = {};
  controller.reset();
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(driver_test, completion_of_nothing_is_a_protocol_failure) {
  auto const controller = bring_up();
  for (std::uint16_t const id : std::initializer_list<std::uint16_t>{9, 5000}) {
    fake.complete(id, {});
    EXPECT_EQ(failure_of([&] { controller->identify_controller(); }), cause::protocol);
    controller->reset();
  }
}

TEST_F(driver_test, failed_command_says_which_and_why_in_words) {
  auto const controller = bring_up();
  fake.refuse[nvme::admin_opcode::get_features] =
      nvme::status_field(nvme::generic_status::invalid_field_in_command) | nvme::do_not_retry;
  EXPECT_EQ(message_of<command_error>([&] { controller->get_feature(nvme::feature_id::arbitration); }),
            "Get Features 01h: invalid field in command (SCT 0h, SC 02h, do not retry)");
}

TEST_F(driver_test, long_command_holds_nothing_up_until_ids_run_out) {
  controller_options options = impatient();
  options.admin_queue_entries = 3;  // two command ids
  auto const controller = bring_up(options);
  withhold(nvme::admin_opcode::asynchronous_event_request);
  nvme::submission_entry event;
  event.cdw0 = nvme::make_cdw0(nvme::admin_opcode::asynchronous_event_request, 0);
  admin_ticket const first = controller->start(event);
  EXPECT_EQ(controller->identify_namespace(1).nsze, 1000u);
  EXPECT_FALSE(controller->finish(first, 0).has_value());
  controller->start(event);
  EXPECT_THAT(message_of<controller_failure>([&] { controller->identify_controller(); }),
              HasSubstr("every admin command id"));
  fake.complete(first.command_id, {0, 0x00010100});
  auto const done = controller->finish(first, simt::native::clock_ns() + 60'000'000'000);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->dw0, 0x00010100u);
  EXPECT_EQ(controller->identify_namespace(1).nsze, 1000u) << "its id is free again";
}

TEST_F(driver_test, reset_cancels_commands_of_other_threads) {
  controller_options options = impatient();
  options.admin_timeout_ns = 60'000'000'000;
  auto const controller = bring_up(options);
  withhold(nvme::admin_opcode::get_features);
  std::optional<cause> why;
  std::thread waiter([&] { why = failure_of([&] { controller->get_feature(nvme::feature_id::arbitration); }); });
  bool const started =
      simt::native::wait_until([&] { return fake.withheld() == 1; }, simt::native::clock_ns() + 60'000'000'000);
  EXPECT_TRUE(started);
  controller->reset();
  waiter.join();
  EXPECT_EQ(why, cause::cancelled);
}

// Queues.

TEST_F(driver_test, ring_must_be_contiguous_on_the_bus) {
  auto const controller = bring_up();
  memory.scattered = true;
  EXPECT_THAT(message_of<refused_input>([&] { controller->create_io_queue_pair({.entries = 1024}); }),
              HasSubstr("contiguous on the bus"));
  memory.scattered = false;
  EXPECT_EQ(controller->create_io_queue_pair({.entries = 1024}).entries(), 1024u);
}

TEST_F(driver_test, fewer_granted_queues_are_a_limit) {
  fake.granted_queues = 2;
  auto const controller = bring_up();
  io_queue const a = controller->create_io_queue_pair({.entries = 8});
  io_queue const b = controller->create_io_queue_pair({.entries = 8});
  EXPECT_THAT(message_of<operation_failed>([&] { controller->create_io_queue_pair({.entries = 8}); }),
              HasSubstr("all 2 I/O queue pairs"));
}

TEST_F(driver_test, more_granted_queues_than_asked_are_not_used) {
  fake.granted_queues = 100;
  controller_options options = impatient();
  options.io_queue_pairs = 3;
  EXPECT_EQ(bring_up(options)->identity().io_queue_pairs, 3u);
}

TEST_F(driver_test, refused_submission_queue_leaves_no_completion_queue) {
  auto const controller = bring_up();
  std::size_t const idle = memory.held();
  fake.refuse[nvme::admin_opcode::create_io_submission_queue] =
      nvme::status_field(nvme::command_specific_status::invalid_queue_size);
  EXPECT_THAT(message_of<command_error>([&] { controller->create_io_queue_pair({.entries = 8}); }),
              HasSubstr("Create I/O Submission Queue 1 of 8 entries: invalid queue size"));
  EXPECT_EQ(opcodes().back(), static_cast<std::uint8_t>(nvme::admin_opcode::delete_io_completion_queue));
  EXPECT_EQ(memory.held(), idle);
  fake.refuse.clear();
  EXPECT_EQ(controller->create_io_queue_pair({.entries = 8}).id(), 1);
}

TEST_F(driver_test, refused_completion_queue_keeps_nothing) {
  auto const controller = bring_up();
  std::size_t const idle = memory.held();
  fake.refuse[nvme::admin_opcode::create_io_completion_queue] =
      nvme::status_field(nvme::command_specific_status::invalid_queue_identifier);
  EXPECT_THROW(controller->create_io_queue_pair({.entries = 8}), command_error);
  EXPECT_EQ(memory.held(), idle);
}

TEST_F(driver_test, rings_that_could_not_be_deleted_stay_until_the_controller_stops) {
  auto controller = bring_up();
  std::size_t const idle = memory.held();
  fake.refuse[nvme::admin_opcode::delete_io_submission_queue] =
      nvme::status_field(nvme::generic_status::internal_error);
  {
    io_queue const queue = controller->create_io_queue_pair({.entries = 8});
  }
  EXPECT_EQ(memory.held(), idle + 2);
  EXPECT_EQ(controller->create_io_queue_pair({.entries = 8}).id(), 2) << "and so does the id";
  fake.refuse.clear();
  controller->reset();
  EXPECT_EQ(memory.held(), idle);
  EXPECT_EQ(controller->create_io_queue_pair({.entries = 8}).id(), 1);
}

TEST_F(driver_test, recreated_queue_gets_cleared_rings_of_its_own_only) {
  auto const controller = bring_up();
  auto* const mine = static_cast<nvme::completion_entry*>(memory.allocate(4096));
  {
    io_queue queue = controller->create_io_queue_pair({.entries = 8, .completion_memory = mine});
    queue.submission_ring()[3].cdw0 = 7;
    queue.completion_ring()[3].dw3 = 7;
    controller->reset();
    controller->recreate(queue);
    EXPECT_EQ(queue.submission_ring()[3].cdw0, 0u);
    EXPECT_EQ(queue.completion_ring()[3].dw3, 7u) << "memory of the caller is the caller's to clear";
  }
  memory.deallocate(mine);
}

TEST_F(driver_test, priorities_of_queues_are_told_where_the_controller_arbitrates_by_them) {
  fake.capabilities |= std::uint64_t{1} << 17;
  controller_options options = impatient();
  options.priorities = priority_weights{.high = 256, .medium = 7, .low = 1};
  auto const controller = bring_up(options);
  std::uint32_t cc = 0;
  for (auto const& w : fake.writes()) {
    if (w.offset == reg::cc) cc = w.value;
  }
  EXPECT_EQ(nvme::controller_configuration{cc}.arbitration(), 1u);
  std::optional<nvme::arbitration> weights;
  for (nvme::submission_entry const& e : fake.commands()) {
    if (e.opcode() == static_cast<std::uint8_t>(nvme::admin_opcode::set_features) && (e.cdw10 & 0xff) == 1) {
      weights = nvme::arbitration{e.cdw11};
    }
  }
  ASSERT_TRUE(weights.has_value());
  EXPECT_EQ(weights->high_priority_weight(), 256u);
  EXPECT_EQ(weights->medium_priority_weight(), 7u);
  EXPECT_EQ(weights->low_priority_weight(), 1u);
  for (auto const priority : {nvme::queue_priority::urgent, nvme::queue_priority::high, nvme::queue_priority::medium,
                              nvme::queue_priority::low}) {
    io_queue queue = controller->create_io_queue_pair({.entries = 8, .priority = priority});
    EXPECT_EQ(queue.priority(), priority);
    EXPECT_EQ(fake.commands().back().cdw11 & 7u, 1u | static_cast<std::uint32_t>(priority) << 1);
    controller->delete_io_queue_pair(queue);
    controller->recreate(queue);
    EXPECT_EQ(fake.commands().back().cdw11 & 7u, 1u | static_cast<std::uint32_t>(priority) << 1);
  }
}

TEST_F(driver_test, priorities_are_refused_where_the_controller_has_round_robin_only) {
  controller_options options = impatient();
  options.priorities = priority_weights();
  EXPECT_THAT(message_of<refused_input>([&] { bring_up(options); }), HasSubstr("CAP.AMS"));
  EXPECT_EQ(memory.held(), 0u);
  fake.capabilities |= std::uint64_t{1} << 17;
  options.priorities->low = 0;
  EXPECT_THAT(message_of<refused_input>([&] { bring_up(options); }), HasSubstr("priorities.low: '0'"));
  options.priorities->low = 257;
  EXPECT_THAT(message_of<refused_input>([&] { bring_up(options); }), HasSubstr("priorities.low: '257'"));
}

TEST_F(driver_test, without_priorities_none_is_told) {
  fake.capabilities |= std::uint64_t{1} << 17;
  auto const controller = bring_up();
  io_queue const queue = controller->create_io_queue_pair({.entries = 8, .priority = nvme::queue_priority::low});
  EXPECT_EQ(fake.commands().back().cdw11 & 7u, 1u);
  for (auto const& w : fake.writes()) {
    if (w.offset != reg::cc) continue;
    EXPECT_EQ(nvme::controller_configuration{w.value}.arbitration(), 0u);
  }
}

TEST_F(driver_test, queue_of_another_controller_is_refused) {
  fake_controller other_fake;
  auto const controller = bring_up();
  forebay::driver::controller other(other_fake, memory, impatient());
  io_queue queue = other.create_io_queue_pair({.entries = 8});
  EXPECT_THROW(controller->delete_io_queue_pair(queue), refused_input);
  other.reset();
  EXPECT_THROW(controller->recreate(queue), refused_input);
}

// Reset and shutdown.

TEST_F(driver_test, another_drive_after_a_reset_is_refused) {
  auto const controller = bring_up();
  fake.name_space.nsze = 999;
  EXPECT_THAT(message_of<operation_failed>([&] { controller->reset(); }), HasSubstr("before 'FAKE 1' of 1000 blocks"));
  EXPECT_EQ(controller->identity().blocks, 1000u);
  EXPECT_EQ(failure_of([&] { controller->identify_controller(); }), cause::cancelled) << "it takes no commands";
  fake.name_space.nsze = 1000;
  controller->reset();
  fake.capabilities += 1;
  EXPECT_EQ(failure_of([&] { controller->reset(); }), cause::protocol);
}

TEST_F(driver_test, shutdown_is_notified_before_disable) {
  auto controller = bring_up();
  std::size_t const before = fake.writes().size();
  controller.reset();
  auto const writes = fake.writes();
  ASSERT_EQ(writes.size(), before + 2);
  EXPECT_EQ(nvme::controller_configuration{writes[before].value}.shutdown(), nvme::shutdown_notification::normal);
  EXPECT_TRUE(nvme::controller_configuration{writes[before].value}.enabled());
  EXPECT_FALSE(nvme::controller_configuration{writes[before + 1].value}.enabled());
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(driver_test, unfinished_shutdown_is_told_and_disables_all_the_same) {
  auto controller = bring_up();
  fake.completes_shutdown = false;
  EXPECT_THAT(message_of<controller_failure>([&] { controller->shutdown(); }),
              HasSubstr("did not finish its shutdown"));
  controller.reset();
  EXPECT_FALSE(nvme::controller_configuration{fake.writes().back().value}.enabled());
  EXPECT_EQ(memory.held(), 0u);
}

TEST_F(driver_test, memory_of_a_controller_that_never_stops_is_never_freed) {
  auto controller = bring_up();
  fake.stops = false;
  controller.reset();
  EXPECT_GE(memory.held(), 2u) << "the admin rings, which it may still write";
}

TEST_F(driver_test, reset_that_fails_can_be_tried_again) {
  auto const controller = bring_up();
  io_queue queue = controller->create_io_queue_pair({.entries = 8});
  fake.stops = false;
  EXPECT_EQ(failure_of([&] { controller->reset(); }), cause::timed_out);
  EXPECT_TRUE(queue.live()) << "it may still use the rings";
  EXPECT_EQ(failure_of([&] { controller->identify_controller(); }), cause::cancelled);
  fake.stops = true;
  controller->reset();
  EXPECT_FALSE(queue.live());
  controller->recreate(queue);
  EXPECT_TRUE(queue.live());
}

TEST(quirks, the_status_is_not_read_too_early) {
  counted_memory memory;
  for (bool const waits : {true, false}) {
    fake_controller fake;
    fake.status_delay_ns = waits ? 20'000'000 : 3'600'000'000'000;
    controller_options options;
    if (waits) options.quirks.ready_delay_ns = fake.status_delay_ns;
    {
      controller one(fake, memory, options);
      one.reset();
    }
    EXPECT_EQ(fake.early_reads() == 0, waits);
  }
}
TEST(quirks, limit_queues_and_hide_a_command) {
  counted_memory memory;
  fake_controller fake;
  fake.identify.oncs = static_cast<std::uint16_t>(nvme::optional_nvm_command::write_zeroes);
  EXPECT_TRUE(controller(fake, memory).identity().write_zeroes);
  controller one(fake, memory, {.quirks = {.queue_entries_most = 32, .no_write_zeroes = true}});
  EXPECT_FALSE(one.identity().write_zeroes);
  EXPECT_EQ(one.identity().max_queue_entries, 32u);
  EXPECT_EQ(message_of<refused_input>([&] { (void)one.create_io_queue_pair({.entries = 33}); }),
            "entries: '33': the controller takes 2 to 32 entries");
}
TEST(quirks, a_controller_that_does_not_say_how_long_its_queues_may_be_is_told) {
  counted_memory memory;
  fake_controller fake;
  fake.capabilities = nvme::controller_capabilities::make(1, true, 1, 0, 1, 0, 4);
  EXPECT_THAT(message_of<operation_failed>([&] { controller(fake, memory); }), HasSubstr("its queues have one entry"));
  controller const one(fake, memory, {.quirks = {.queue_entries_if_untold = 64}});
  EXPECT_EQ(one.identity().max_queue_entries, 64u);
}

}  // namespace
}  // namespace forebay::driver
