// SPDX-License-Identifier: Apache-2.0
//! \file
//! Registers, bring-up and shutdown (NVM Express Base Specification 1.4, sections 3.1 and 7.6).
#include <gtest/gtest.h>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

using simt::native;
namespace reg = nvme::registers;

nvme::controller_status status_of(fixture& f) {
  return {f.registers().read32(reg::csts)};
}

template <class Predicate>
bool eventually(Predicate&& predicate) {
  return native::wait_until(predicate, native::clock_ns() + patience_ns);
}

/// Enables the controller as a driver would, without one.
void enable(fixture& f) {
  f.registers().write32(reg::aqa, nvme::admin_queue_attributes::make(16, 16));
  f.registers().write64(reg::asq, f.bus_address(f.allocate(4096)));
  f.registers().write64(reg::acq, f.bus_address(f.allocate(4096)));
  f.registers().write32(reg::cc, nvme::controller_configuration::make(true, 4096));
  ASSERT_TRUE(eventually([&] { return status_of(f).ready(); }));
}

void disable(fixture& f) {
  f.registers().write32(reg::cc, 0);
  ASSERT_TRUE(eventually([&] { return !status_of(f).ready(); }));
}

void shut_down(fixture& f, nvme::shutdown_notification how) {
  f.bring_up({});
  f.close();
  ASSERT_NO_FATAL_FAILURE(enable(f));
  EXPECT_EQ(status_of(f).shutdown(), nvme::shutdown_status::none);
  f.registers().write32(reg::cc, nvme::controller_configuration::with_shutdown(f.registers().read32(reg::cc), how));
  EXPECT_TRUE(eventually([&] { return status_of(f).shutdown() == nvme::shutdown_status::complete; }));
  ASSERT_NO_FATAL_FAILURE(disable(f));
  f.bring_up({});
  EXPECT_EQ(status_of(f).shutdown(), nvme::shutdown_status::none) << "a new life starts without";
}

void many_identifies(fixture& f, int count) {
  for (int i = 0; i < count; ++i) EXPECT_EQ(f.controller().identify_namespace(f.on.nsid()).nsze, f.drive().blocks);
}

}  // namespace

void add_register_checks(check_list& list) {
  list.insert(list.end(),
              {
                  {"cap_offers_the_nvm_command_set",
                   [](fixture& f) {
                     nvme::controller_capabilities const cap{f.registers().read64(reg::cap)};
                     EXPECT_TRUE(cap.nvm_command_set());
                     EXPECT_GE(cap.max_queue_entries(), 2u);
                   }},
                  {"cap_page_sizes_include_4096",
                   [](fixture& f) {
                     nvme::controller_capabilities const cap{f.registers().read64(reg::cap)};
                     EXPECT_EQ(cap.min_page_bytes(), 4096u);
                     EXPECT_GE(cap.max_page_bytes(), cap.min_page_bytes());
                   }},
                  {"cap_never_changes",
                   [](fixture& f) {
                     std::uint64_t const before = f.registers().read64(reg::cap);
                     f.registers().write64(reg::cap, ~before);
                     EXPECT_EQ(f.registers().read64(reg::cap), before);
                     f.bring_up({});
                     EXPECT_EQ(f.registers().read64(reg::cap), before);
                   }},
                  {"version_is_1_4_or_later_in_register_and_identify",
                   [](fixture& f) {
                     nvme::controller_version const vs{f.registers().read32(reg::vs)};
                     EXPECT_GE(vs.value, nvme::controller_version::make(1, 4, 0));
                     EXPECT_EQ(f.drive().version.value, vs.value);
                   }},
                  {"csts_ready_follows_cc_enable",
                   [](fixture& f) {
                     f.bring_up({});
                     EXPECT_TRUE(status_of(f).ready());
                     f.close();
                     EXPECT_FALSE(status_of(f).ready());
                     for (int i = 0; i < 3; ++i) {
                       ASSERT_NO_FATAL_FAILURE(enable(f));
                       EXPECT_FALSE(status_of(f).fatal());
                       ASSERT_NO_FATAL_FAILURE(disable(f));
                     }
                   }},
                  {"cc_reads_back",
                   [](fixture& f) {
                     f.bring_up({});
                     nvme::controller_configuration const cc{f.registers().read32(reg::cc)};
                     EXPECT_TRUE(cc.enabled());
                     EXPECT_EQ(cc.sq_entry_bytes_log2(), 6u);
                     EXPECT_EQ(cc.cq_entry_bytes_log2(), 4u);
                     EXPECT_EQ(cc.page_bytes(), f.drive().page_bytes);
                     EXPECT_EQ(cc.shutdown(), nvme::shutdown_notification::none);
                   }},
                  {"admin_queue_registers_read_back",
                   [](fixture& f) {
                     f.bring_up({.admin_queue_entries = 17});
                     nvme::admin_queue_attributes const aqa{f.registers().read32(reg::aqa)};
                     EXPECT_EQ(aqa.sq_entries(), 17u);
                     EXPECT_EQ(aqa.cq_entries(), 17u);
                     EXPECT_NE(f.registers().read64(reg::asq), 0u);
                     EXPECT_EQ(f.registers().read64(reg::asq) % 4096, 0u);
                     EXPECT_NE(f.registers().read64(reg::acq), f.registers().read64(reg::asq));
                   }},
                  {"normal_shutdown_completes", [](fixture& f) { shut_down(f, nvme::shutdown_notification::normal); }},
                  {"abrupt_shutdown_completes", [](fixture& f) { shut_down(f, nvme::shutdown_notification::abrupt); }},
                  {"shut_down_controller_takes_no_command_until_reset",
                   [](fixture& f) {
                     f.bring_up({});
                     f.controller().shutdown();
                     EXPECT_FALSE(status_of(f).ready());
                     EXPECT_THROW(f.controller().identify_controller(), driver::controller_failure);
                     f.controller().reset();
                     many_identifies(f, 2);
                   }},
                  {"bring_up_twenty_times",
                   [](fixture& f) {
                     for (int i = 0; i < 10; ++i) {
                       f.bring_up({});
                       many_identifies(f, 1);
                     }
                     for (int i = 0; i < 10; ++i) {
                       f.controller().reset();
                       many_identifies(f, 1);
                     }
                   }},
                  {"admin_queue_of_two_entries",
                   [](fixture& f) {
                     f.bring_up({.admin_queue_entries = 2});
                     many_identifies(f, 20);
                   }},
                  {"admin_queue_wraps",
                   [](fixture& f) {
                     f.bring_up({.admin_queue_entries = 7});
                     many_identifies(f, 50);
                   }},
                  {"a_taken_over_controller_is_brought_up",
                   [](fixture& f) {
                     // As after a crashed driver: enabled, with queues in memory that is gone.
                     f.bring_up({});
                     f.close();
                     ASSERT_NO_FATAL_FAILURE(enable(f));
                     f.bring_up({});
                     many_identifies(f, 3);
                   }},
              });
}

}  // namespace forebay::conformance
