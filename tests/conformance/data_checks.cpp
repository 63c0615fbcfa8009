// SPDX-License-Identifier: Apache-2.0
//! \file
//! Data transfers of every shape that PRPs can describe (section 4.3).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

constexpr std::size_t page = 4096;
/// Where a PRP list must start to have `slots` slots left in its page.
constexpr std::size_t list_offset_for(std::size_t slots) {
  return page - slots * sizeof(std::uint64_t);
}

std::uint32_t max_blocks(fixture& f) {
  return static_cast<std::uint32_t>(f.drive().max_transfer_bytes / f.drive().block_bytes);
}

std::uint32_t blocks_of(fixture& f, std::size_t bytes) {
  return static_cast<std::uint32_t>(bytes / f.drive().block_bytes);
}

}  // namespace

void add_data_checks(check_list& list) {
  list.insert(
      list.end(),
      {
          {"one_block_at_the_start", [](fixture& f) { f.round_trip(0, 1, 0, 0); }},
          {"one_block_at_the_end", [](fixture& f) { f.round_trip(f.drive().blocks - 1, 1, 0, 0); }},
          {"prp1_alone", [](fixture& f) { f.round_trip(16, blocks_of(f, page), 0, 0); }},
          {"prp1_with_an_offset",
           [](fixture& f) {
             std::size_t const block = f.drive().block_bytes;
             for (std::size_t offset = 0; offset + block <= page; offset += 512)
               f.round_trip(24, 1, offset, page - block - offset);
           }},
          {"prp1_offset_to_the_dword",
           [](fixture& f) {
             for (std::size_t const offset : {4, 8, 12, 20, 60, 68, 508, 516}) {
               f.round_trip(32, 1, offset, (2 * page - f.drive().block_bytes - offset) % page);
             }
           }},
          {"prp1_and_prp2", [](fixture& f) { f.round_trip(40, blocks_of(f, 2 * page), 0, 0); }},
          {"prp1_with_an_offset_and_prp2",
           [](fixture& f) {
             f.round_trip(56, blocks_of(f, page), 2048, 1024);
             f.round_trip(56, blocks_of(f, page), 4, 4092);
             f.round_trip(56, 1, page - 4, page - 256);
           }},
          {"prp_list_of_two", [](fixture& f) { f.round_trip(64, blocks_of(f, 3 * page), 0, 0); }},
          {"prp_list_over_scattered_pages",
           [](fixture& f) {
             for (std::size_t const pages : {5, 16, 33}) f.round_trip(128, blocks_of(f, pages * page), 0, 0);
           }},
          {"prp_list_after_an_offset_in_the_first_page",
           [](fixture& f) {
             for (std::size_t const offset : {4, 512, 2048, 3584, 4092}) {
               f.round_trip(128, blocks_of(f, 8 * page), offset, page - offset);
             }
           }},
          {"prp_list_that_starts_within_its_page",
           [](fixture& f) { f.round_trip(256, blocks_of(f, 8 * page), 0, 512, 1024); }},
          {"prp_list_that_fills_its_page_exactly",
           [](fixture& f) { f.round_trip(256, blocks_of(f, 8 * page), 0, 0, list_offset_for(7)); }},
          {"prp_list_chained_to_a_second_page",
           [](fixture& f) {
             // From one slot, which then is the pointer, to all but one.
             for (std::size_t slots = 1; slots <= 6; ++slots) {
               f.round_trip(256, blocks_of(f, 8 * page), 0, 1024, list_offset_for(slots));
             }
           }},
          {"every_size_up_to_mdts",
           [](fixture& f) {
             std::uint32_t const most = max_blocks(f);
             for (std::uint32_t blocks = 1; blocks < most; blocks += blocks < 40 ? 1 : 61) {
               f.round_trip(1000, blocks, 0, 512 * (blocks % 8));
             }
             f.round_trip(1000, most - 1, 0, 0);
             f.round_trip(1000, most, 0, 0);
           }},
          {"largest_transfer_with_an_offset",
           [](fixture& f) { f.round_trip(4096, max_blocks(f), 2048, 3584, list_offset_for(2)); }},
          {"transfer_beyond_mdts_is_refused",
           [](fixture& f) {
             buffer const data(f, (max_blocks(f) + 1) * std::size_t{f.drive().block_bytes});
             data.fill(std::byte{0x77});
             f.expect(f.transfer(nvme::io_opcode::read, 0, data), nvme::generic_status::invalid_field_in_command);
             f.expect(f.transfer(nvme::io_opcode::write, 0, data), nvme::generic_status::invalid_field_in_command);
             EXPECT_TRUE(data.holds(std::byte{0x77})) << "a refused read wrote";
           }},
          {"prp2_must_start_a_page",
           [](fixture& f) {
             for (nvme::io_opcode const opcode : {nvme::io_opcode::read, nvme::io_opcode::write}) {
               buffer const data(f, 2 * page);
               nvme::submission_entry entry = f.command(opcode, 0, blocks_of(f, 2 * page));
               data.describe(entry);
               entry.prp2 += 512;
               f.expect(f.io(entry), nvme::generic_status::prp_offset_invalid);
             }
           }},
          {"prp_list_entries_must_start_pages",
           [](fixture& f) {
             buffer const data(f, 4 * page);
             nvme::submission_entry entry = f.command(nvme::io_opcode::read, 0, blocks_of(f, 4 * page));
             data.describe(entry);
             data.lists().front()[1] += 8;
             f.expect(f.io(entry), nvme::generic_status::prp_offset_invalid);
           }},
          {"prp2_of_a_transfer_within_one_page_is_not_looked_at",
           [](fixture& f) {
             buffer const data(f, page);
             nvme::submission_entry entry = f.command(nvme::io_opcode::read, 0, blocks_of(f, page));
             data.describe(entry);
             entry.prp2 = 0xdeadbeef00000007;
             f.expect(f.io(entry), 0);
           }},
          {"metadata_pointer_is_not_looked_at_without_metadata",
           [](fixture& f) {
             buffer const data(f, page);
             nvme::submission_entry entry = f.command(nvme::io_opcode::read, 0, blocks_of(f, page));
             data.describe(entry);
             entry.mptr = 0xdeadbeef00000000;
             f.expect(f.io(entry), 0);
           }},
          {"memory_that_nobody_mapped_is_refused",
           [](fixture& f) {
             nvme::submission_entry entry = f.command(nvme::io_opcode::read, 0, 1);
             entry.prp1 = std::uint64_t{1} << 46;
             f.expect(f.io(entry), nvme::generic_status::data_transfer_error);
           }},
          {"prp_list_that_nobody_mapped_is_refused",
           [](fixture& f) {
             buffer const data(f, 3 * page);
             nvme::submission_entry entry = f.command(nvme::io_opcode::read, 0, blocks_of(f, 3 * page));
             data.describe(entry);
             entry.prp2 = std::uint64_t{1} << 46;
             f.expect(f.io(entry), nvme::generic_status::data_transfer_error);
           }},
          {"neighbouring_blocks_keep_their_data",
           [](fixture& f) {
             std::uint32_t const block = f.drive().block_bytes;
             buffer const before(f, std::size_t{8} * block);
             before.fill_pattern(512, 1, block);
             f.expect(f.transfer(nvme::io_opcode::write, 512, before), 0);
             buffer const middle(f, std::size_t{2} * block);
             middle.fill_pattern(515, 2, block);
             f.expect(f.transfer(nvme::io_opcode::write, 515, middle), 0);
             for (std::uint32_t i = 0; i < 8; ++i) {
               buffer const one(f, block);
               f.expect(f.transfer(nvme::io_opcode::read, 512 + i, one), 0);
               EXPECT_TRUE(one.holds_pattern(512 + i, i == 3 || i == 4 ? 2 : 1, block)) << "block " << i;
             }
           }},
      });
}

}  // namespace forebay::conformance
