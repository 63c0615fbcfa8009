// SPDX-License-Identifier: Apache-2.0
//! \file
//! Identify (section 5.15).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

nvme::submission_entry identify(nvme::identify_cns cns, std::uint32_t nsid, std::uint64_t prp1,
                                std::uint64_t prp2 = 0) {
  nvme::submission_entry entry;
  entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::identify, 0);
  entry.nsid = nsid;
  entry.prp1 = prp1;
  entry.prp2 = prp2;
  entry.cdw10 = static_cast<std::uint32_t>(cns);
  return entry;
}

void expect_invalid_namespace(fixture& f, nvme::identify_cns cns, std::uint32_t nsid) {
  buffer const page(f, 4096);
  page.fill(std::byte{0x11});
  f.expect(f.admin(identify(cns, nsid, page.bus_address(0))), nvme::generic_status::invalid_namespace_or_format);
  EXPECT_TRUE(page.holds(std::byte{0x11})) << "a refused command wrote";
}

bool printable(char const* text, std::size_t bytes) {
  return std::all_of(text, text + bytes, [](char c) { return c >= 0x20 && c <= 0x7e; });
}

}  // namespace

void add_identify_checks(check_list& list) {
  list.insert(
      list.end(),
      {
          {"identify_controller_strings_are_printable",
           [](fixture& f) {
             nvme::identify_controller const c = f.controller().identify_controller();
             EXPECT_TRUE(printable(c.sn, sizeof c.sn));
             EXPECT_TRUE(printable(c.mn, sizeof c.mn));
             EXPECT_TRUE(printable(c.fr, sizeof c.fr));
             EXPECT_EQ(f.drive().serial, f.on.serial());
             EXPECT_FALSE(f.drive().model.empty());
           }},
          {"identify_controller_entry_sizes",
           [](fixture& f) {
             nvme::identify_controller const c = f.controller().identify_controller();
             EXPECT_EQ(c.sqes & 15, 6);
             EXPECT_EQ(c.cqes & 15, 4);
             EXPECT_GE(c.sqes >> 4, 6);
             EXPECT_GE(c.cqes >> 4, 4);
           }},
          {"identify_controller_mandatory_fields",
           [](fixture& f) {
             nvme::identify_controller const c = f.controller().identify_controller();
             EXPECT_GE(c.nn, 1u);
             EXPECT_LE(c.cntrltype, 1) << "an I/O controller, or one that does not say";
             EXPECT_NE(c.mdts, 0) << "the checks of MDTS need one";
             EXPECT_EQ(std::string_view(c.subnqn, strnlen(c.subnqn, sizeof c.subnqn)).substr(0, 4), "nqn.");
             EXPECT_GT(c.wctemp, 0);
             EXPECT_GE(c.cctemp, c.wctemp);
           }},
          {"identify_offers_what_the_checks_use",
           [](fixture& f) {
             EXPECT_TRUE(f.drive().compare);
             EXPECT_TRUE(f.drive().write_zeroes);
             EXPECT_TRUE(f.drive().dataset_management);
             EXPECT_FALSE(f.drive().write_protected);
             EXPECT_GE(f.drive().io_queue_pairs, 8u);
             EXPECT_GE(f.drive().max_queue_entries, 1024u);
           }},
          {"identify_namespace_tells_size_and_block",
           [](fixture& f) {
             nvme::identify_namespace const n = f.controller().identify_namespace(f.on.nsid());
             EXPECT_EQ(n.nsze * n.block_bytes(), f.on.drive_bytes());
             EXPECT_EQ(n.block_bytes(), f.on.block_bytes());
             EXPECT_LE(n.ncap, n.nsze);
             EXPECT_LE(n.nuse, n.ncap);
             EXPECT_LE(n.flbas & 15, n.nlbaf);
           }},
          {"identify_namespace_refuses_ids_that_cannot_be",
           [](fixture& f) {
             std::uint32_t const nn = f.controller().identify_controller().nn;
             expect_invalid_namespace(f, nvme::identify_cns::identify_namespace, 0);
             expect_invalid_namespace(f, nvme::identify_cns::identify_namespace, nn + 1);
             expect_invalid_namespace(f, nvme::identify_cns::identify_namespace, 0xfffffffe);
           }},
          {"identify_namespace_of_all_needs_namespace_management",
           [](fixture& f) {
             auto const management = static_cast<std::uint16_t>(nvme::optional_admin_command::namespace_management);
             if ((f.controller().identify_controller().oacs & management) == 0) {
               expect_invalid_namespace(f, nvme::identify_cns::identify_namespace, nvme::broadcast_nsid);
               return;
             }
             buffer const page(f, 4096);
             f.expect(
                 f.admin(identify(nvme::identify_cns::identify_namespace, nvme::broadcast_nsid, page.bus_address(0))),
                 0);
           }},
          {"active_namespace_list_names_the_namespace",
           [](fixture& f) {
             std::vector<std::uint32_t> all(f.on.nsid());
             std::iota(all.begin(), all.end(), 1u);
             EXPECT_EQ(f.controller().active_namespaces(0), all);
             EXPECT_EQ(f.controller().active_namespaces(f.on.nsid() - 1), std::vector<std::uint32_t>{f.on.nsid()});
             EXPECT_TRUE(f.controller().active_namespaces(f.on.nsid()).empty());
           }},
          {"active_namespace_list_refuses_reserved_ids",
           [](fixture& f) {
             expect_invalid_namespace(f, nvme::identify_cns::active_namespace_list, 0xfffffffe);
             expect_invalid_namespace(f, nvme::identify_cns::active_namespace_list, 0xffffffff);
           }},
          {"namespace_identification_descriptors",
           [](fixture& f) {
             buffer const page(f, 4096);
             f.expect(f.admin(identify(nvme::identify_cns::namespace_identification_descriptor_list, f.on.nsid(),
                                       page.bus_address(0))),
                      0);
             std::size_t at = 0;
             int found = 0;
             while (at + 4 <= 4096 && page[at] != std::byte{0}) {
               auto const type = std::to_integer<unsigned>(page[at]);
               auto const bytes = std::to_integer<unsigned>(page[at + 1]);
               EXPECT_EQ(bytes, type == 1 ? 8u : type == 4 ? 1u : 16u) << "type " << type;
               ASSERT_GT(bytes, 0u);
               at += 4 + bytes;
               ++found;
             }
             EXPECT_GE(found, 1);
           }},
          {"identify_refuses_an_unknown_structure",
           [](fixture& f) {
             buffer const page(f, 4096);
             f.expect(f.admin(identify(static_cast<nvme::identify_cns>(0xfe), 1, page.bus_address(0))),
                      nvme::generic_status::invalid_field_in_command);
           }},
          {"identify_data_may_span_two_pages",
           [](fixture& f) {
             buffer const data(f, 4096, 1024);
             f.expect(f.admin(identify(nvme::identify_cns::identify_controller, 0, data.bus_address(0),
                                       data.bus_address(4096 - 1024))),
                      0);
             nvme::identify_controller const whole = f.controller().identify_controller();
             for (std::size_t i = 0; i < 2048; ++i) {
               ASSERT_EQ(data[i], reinterpret_cast<std::byte const*>(&whole)[i]) << i;
             }
             EXPECT_TRUE(data.guards_intact());
           }},
      });
}

}  // namespace forebay::conformance
