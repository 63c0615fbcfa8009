// SPDX-License-Identifier: Apache-2.0
//! \file
//! Features, log pages, asynchronous events and other admin commands (section 5).
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

using nvme::feature_id;

std::uint16_t feature_status(fixture& f, nvme::admin_opcode opcode, std::uint8_t id, std::uint32_t value) {
  nvme::submission_entry entry;
  entry.cdw0 = nvme::make_cdw0(opcode, 0);
  entry.cdw10 = id;
  entry.cdw11 = value;
  return f.admin(entry);
}

nvme::submission_entry request_event() {
  nvme::submission_entry entry;
  entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::asynchronous_event_request, 0);
  return entry;
}

std::uint64_t now() {
  return simt::native::clock_ns();
}

}  // namespace

void add_admin_checks(check_list& list) {
  list.insert(
      list.end(),
      {
          {"unknown_admin_opcode_is_refused",
           [](fixture& f) {
             for (std::uint8_t const opcode : std::initializer_list<std::uint8_t>{0x03, 0x7b, 0xff}) {
               nvme::submission_entry entry;
               entry.cdw0 = nvme::make_cdw0(opcode, 0);
               f.expect(f.admin(entry), nvme::generic_status::invalid_command_opcode);
             }
           }},
          {"number_of_queues_is_granted_and_read_back",
           [](fixture& f) {
             f.bring_up({.io_queue_pairs = 4});
             nvme::number_of_queues const granted{f.controller().get_feature(feature_id::number_of_queues)};
             EXPECT_GE(granted.submission_queues(), f.drive().io_queue_pairs);
             EXPECT_GE(granted.completion_queues(), f.drive().io_queue_pairs);
             EXPECT_EQ(f.drive().io_queue_pairs, 4u);
           }},
          {"number_of_queues_of_65536_is_refused",
           [](fixture& f) {
             f.expect(feature_status(f, nvme::admin_opcode::set_features, 0x07, 0xffffffff),
                      nvme::generic_status::invalid_field_in_command);
           }},
          {"number_of_queues_is_fixed_once_queues_exist",
           [](fixture& f) {
             f.pair();
             f.expect(feature_status(f, nvme::admin_opcode::set_features, 0x07, nvme::number_of_queues::make(2, 2)),
                      nvme::generic_status::command_sequence_error);
           }},
          {"arbitration_is_set_or_says_that_it_cannot_be",
           [](fixture& f) {
             std::uint32_t const before = f.controller().get_feature(feature_id::arbitration);
             std::uint16_t const answer = feature_status(f, nvme::admin_opcode::set_features, 0x01, 3);
             nvme::arbitration const after{f.controller().get_feature(feature_id::arbitration)};
             if (answer == nvme::status_field(nvme::command_specific_status::feature_not_changeable)) {
               EXPECT_EQ(after.value, before);
             } else {
               f.expect(answer, 0);
               EXPECT_EQ(after.burst_log2(), 3u);
               f.controller().set_feature(feature_id::arbitration, before);
             }
           }},
          {"temperature_threshold_is_read_and_set",
           [](fixture& f) {
             std::uint32_t const before = f.controller().get_feature(feature_id::temperature_threshold);
             f.controller().set_feature(feature_id::temperature_threshold, 333);
             nvme::temperature_threshold const set{f.controller().get_feature(feature_id::temperature_threshold)};
             EXPECT_EQ(set.threshold_kelvin(), 333u);
             f.controller().set_feature(feature_id::temperature_threshold, before & 0xffff);
           }},
          {"volatile_write_cache_is_switched",
           [](fixture& f) {
             ASSERT_TRUE(f.drive().volatile_write_cache);
             f.controller().set_feature(feature_id::volatile_write_cache, 0);
             EXPECT_FALSE(
                 nvme::volatile_write_cache{f.controller().get_feature(feature_id::volatile_write_cache)}.enabled());
             f.round_trip(7, 8, 0, 0);
             f.controller().set_feature(feature_id::volatile_write_cache, 1);
             EXPECT_TRUE(
                 nvme::volatile_write_cache{f.controller().get_feature(feature_id::volatile_write_cache)}.enabled());
           }},
          {"mandatory_features_are_readable",
           [](fixture& f) {
             for (std::uint8_t const id :
                  std::initializer_list<std::uint8_t>{0x01, 0x02, 0x04, 0x07, 0x08, 0x0a, 0x0b}) {
               f.expect(feature_status(f, nvme::admin_opcode::get_features, id, 0), 0, "feature " + std::to_string(id));
             }
             f.controller().get_feature(feature_id::error_recovery, nvme::feature_select::current, 1);
           }},
          {"asynchronous_event_configuration_is_read_and_set",
           [](fixture& f) {
             f.controller().set_feature(feature_id::asynchronous_event_configuration, 0x1f);
             EXPECT_EQ(f.controller().get_feature(feature_id::asynchronous_event_configuration) & 0x1f, 0x1fu);
             f.controller().set_feature(feature_id::asynchronous_event_configuration, 0);
           }},
          {"unknown_feature_is_refused",
           [](fixture& f) {
             for (std::uint8_t const id : std::initializer_list<std::uint8_t>{0x00, 0x7c, 0xbf}) {
               f.expect(feature_status(f, nvme::admin_opcode::get_features, id, 0),
                        nvme::generic_status::invalid_field_in_command);
               f.expect(feature_status(f, nvme::admin_opcode::set_features, id, 0),
                        nvme::generic_status::invalid_field_in_command);
             }
           }},
          {"smart_log_tells_temperature_and_spare",
           [](fixture& f) {
             nvme::smart_health_information smart;
             f.controller().get_log_page(nvme::log_page_id::smart_health_information, &smart, sizeof smart);
             EXPECT_GT(smart.temperature_kelvin(), 200u);
             EXPECT_LT(smart.temperature_kelvin(), 400u);
             EXPECT_LE(smart.available_spare, 100);
           }},
          {"smart_log_counts_commands",
           [](fixture& f) {
             auto const counts = [&] {
               nvme::smart_health_information smart;
               f.controller().get_log_page(nvme::log_page_id::smart_health_information, &smart, sizeof smart);
               return std::pair{smart.host_read_commands.low64(), smart.host_write_commands.low64()};
             };
             auto const [reads, writes] = counts();
             for (int i = 0; i < 3; ++i) f.round_trip(0, 1, 0, 0);
             EXPECT_EQ(counts(), (std::pair{reads + 3, writes + 3}));
           }},
          {"error_log_and_firmware_log_are_there",
           [](fixture& f) {
             nvme::error_information_entry error;
             f.controller().get_log_page(nvme::log_page_id::error_information, &error, sizeof error);
             nvme::firmware_slot_information firmware;
             f.controller().get_log_page(nvme::log_page_id::firmware_slot_information, &firmware, sizeof firmware);
             EXPECT_GE(firmware.afi & 7, 1);
             EXPECT_LE(firmware.afi & 7, 7);
           }},
          {"log_page_writes_no_more_than_asked",
           [](fixture& f) {
             buffer const data(f, 512, 0);
             nvme::submission_entry entry;
             entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::get_log_page, 0);
             entry.nsid = nvme::broadcast_nsid;
             entry.prp1 = data.bus_address(0);
             entry.cdw10 = nvme::get_log_page_cdw10(nvme::log_page_id::smart_health_information, 512);
             f.expect(f.admin(entry), 0);
             EXPECT_TRUE(data.guards_intact());
           }},
          {"unknown_log_page_is_refused",
           [](fixture& f) {
             buffer const data(f, 512);
             nvme::submission_entry entry;
             entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::get_log_page, 0);
             entry.prp1 = data.bus_address(0);
             entry.cdw10 = nvme::get_log_page_cdw10(static_cast<nvme::log_page_id>(0xbe), 512);
             f.expect(f.admin(entry), nvme::command_specific_status::invalid_log_page);
           }},
          {"outstanding_event_request_disturbs_nothing",
           [](fixture& f) {
             driver::admin_ticket const event = f.controller().start(request_event());
             f.give_time();
             f.round_trip(3, 4, 0, 0);
             EXPECT_FALSE(f.controller().finish(event, 0).has_value());
             f.controller().reset();
             EXPECT_THROW(f.controller().finish(event, 0), driver::controller_failure);
           }},
          {"event_requests_beyond_the_limit_are_refused",
           [](fixture& f) {
             std::uint32_t const limit = f.controller().identify_controller().aerl + 1u;
             ASSERT_LT(limit, 30u);
             std::vector<driver::admin_ticket> tickets;
             for (std::uint32_t i = 0; i < limit; ++i) tickets.push_back(f.controller().start(request_event()));
             f.expect(f.admin(request_event()),
                      nvme::command_specific_status::asynchronous_event_request_limit_exceeded);
             for (driver::admin_ticket const t : tickets) EXPECT_FALSE(f.controller().finish(t, 0).has_value());
           }},
          {"doorbell_beyond_the_ring_raises_an_event",
           [](fixture& f) {
             queue_pair const pair = f.make_pair(1, 4);
             driver::admin_ticket const event = f.controller().start(request_event());
             f.controller().identify_controller();  // the request was fetched before: events without one may be lost
             simt::native::st_mmio(pair.sq.doorbell, 4);
             auto const raised = f.controller().finish(event, now() + patience_ns);
             ASSERT_TRUE(raised.has_value());
             EXPECT_EQ(raised->status_field(), 0);
             EXPECT_EQ(raised->dw0 & 7, 0u) << "an error event";
             EXPECT_EQ(raised->dw0 >> 8 & 0xff, 1u) << "Invalid Doorbell Write Value";
             EXPECT_EQ(raised->dw0 >> 16 & 0xff, 1u) << "to be read from the error log";
           }},
          {"abort_of_an_unknown_command_does_nothing",
           [](fixture& f) {
             f.pair();
             EXPECT_FALSE(f.controller().abort(1, 0x1234));
             f.round_trip(0, 1, 0, 0);
           }},
          {"admin_commands_from_several_threads",
           [](fixture& f) {
             driver::controller& controller = f.controller();
             std::uint64_t const blocks = f.drive().blocks;
             std::uint32_t const nsid = f.on.nsid();
             std::vector<std::thread> threads;
             for (int t = 0; t < 4; ++t) {
               threads.emplace_back([&] {
                 for (int i = 0; i < 50; ++i) EXPECT_EQ(controller.identify_namespace(nsid).nsze, blocks);
               });
             }
             for (std::thread& t : threads) t.join();
           }},
      });
}

}  // namespace forebay::conformance
