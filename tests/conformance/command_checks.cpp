// SPDX-License-Identifier: Apache-2.0
//! \file
//! The commands of the NVM command set and their errors (section 6).
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

using nvme::generic_status;
using nvme::io_opcode;

/// Writes a pattern to `blocks` blocks.
void prepare(fixture& f, std::uint64_t slba, std::uint32_t blocks, std::uint64_t salt) {
  buffer const data(f, std::size_t{blocks} * f.drive().block_bytes);
  data.fill_pattern(slba, salt, f.drive().block_bytes);
  f.expect(f.transfer(io_opcode::write, slba, data), 0);
}

void expect_pattern(fixture& f, std::uint64_t slba, std::uint32_t blocks, std::uint64_t salt) {
  buffer const data(f, std::size_t{blocks} * f.drive().block_bytes);
  f.expect(f.transfer(io_opcode::read, slba, data), 0);
  EXPECT_TRUE(data.holds_pattern(slba, salt, f.drive().block_bytes)) << "lba " << slba;
}

void expect_zeros(fixture& f, std::uint64_t slba, std::uint32_t blocks) {
  buffer const data(f, std::size_t{blocks} * f.drive().block_bytes);
  data.fill(std::byte{0x5a});
  f.expect(f.transfer(io_opcode::read, slba, data), 0);
  EXPECT_TRUE(data.holds(std::byte{0})) << "lba " << slba;
}

/// A command on `blocks` blocks with a data buffer that fits.
nvme::submission_entry with_data(fixture& f, io_opcode opcode, std::uint64_t slba, std::uint32_t blocks,
                                 buffer const& data) {
  nvme::submission_entry entry = f.command(opcode, slba, blocks);
  data.describe(entry);
  return entry;
}

void expect_out_of_range(fixture& f, io_opcode opcode) {
  std::uint64_t const blocks = f.drive().blocks;
  buffer const data(f, 4096);
  data.fill(std::byte{0x3c});
  for (auto const& [slba, count] : {std::pair<std::uint64_t, std::uint32_t>{blocks, 1},
                                    {blocks - 1, 2},
                                    {blocks + 1000, 1},
                                    {~std::uint64_t{0}, 1},
                                    {~std::uint64_t{0} - 1, 4}}) {
    f.expect(f.io(with_data(f, opcode, slba, count, data)), generic_status::lba_out_of_range,
             "lba " + std::to_string(slba));
  }
  EXPECT_TRUE(data.holds(std::byte{0x3c})) << "a refused command wrote";
}

std::uint16_t deallocate(fixture& f, std::vector<nvme::dataset_management_range> const& ranges) {
  buffer const data(f, 4096);
  for (std::size_t i = 0; i < ranges.size(); ++i)
    std::memcpy(&data[i * sizeof ranges[i]], &ranges[i], sizeof ranges[i]);
  nvme::submission_entry entry = f.command(io_opcode::dataset_management, 0, 1);
  entry.cdw10 = static_cast<std::uint32_t>(ranges.size() - 1);
  entry.cdw11 = nvme::cdw11_attribute_deallocate;
  entry.cdw12 = 0;
  data.describe(entry);
  return f.io(entry);
}

}  // namespace

void add_command_checks(check_list& list) {
  list.insert(
      list.end(),
      {
          {"unknown_io_opcode_is_refused",
           [](fixture& f) {
             for (std::uint8_t const opcode : std::initializer_list<std::uint8_t>{0x03, 0x7f, 0xff}) {
               f.expect(f.io(f.command(static_cast<io_opcode>(opcode), 0, 1)), generic_status::invalid_command_opcode);
             }
           }},
          {"read_out_of_range_is_refused", [](fixture& f) { expect_out_of_range(f, io_opcode::read); }},
          {"write_out_of_range_is_refused", [](fixture& f) { expect_out_of_range(f, io_opcode::write); }},
          {"compare_out_of_range_is_refused", [](fixture& f) { expect_out_of_range(f, io_opcode::compare); }},
          {"write_zeroes_out_of_range_is_refused", [](fixture& f) { expect_out_of_range(f, io_opcode::write_zeroes); }},
          {"namespace_that_is_not_there_is_refused",
           [](fixture& f) {
             std::uint32_t const nn = f.controller().identify_controller().nn;
             buffer const data(f, 4096);
             for (std::uint32_t const nsid : {std::uint32_t{0}, nn + 1, std::uint32_t{0xfffffffe}}) {
               nvme::submission_entry entry = with_data(f, io_opcode::read, 0, 1, data);
               entry.nsid = nsid;
               f.expect(f.io(entry), generic_status::invalid_namespace_or_format, "nsid " + std::to_string(nsid));
             }
           }},
          {"reserved_psdt_is_refused",
           [](fixture& f) {
             buffer const data(f, 4096);
             nvme::submission_entry entry = with_data(f, io_opcode::read, 0, 1, data);
             entry.cdw0 |= std::uint32_t{3} << 14;
             f.expect(f.io(entry), generic_status::invalid_field_in_command);
           }},
          {"fused_command_is_refused_where_unsupported",
           [](fixture& f) {
             ASSERT_EQ(f.controller().identify_controller().fuses & 1, 0);
             buffer const data(f, 4096);
             nvme::submission_entry entry = with_data(f, io_opcode::compare, 0, 1, data);
             entry.cdw0 |= std::uint32_t{1} << 8;
             f.expect(f.io(entry), generic_status::invalid_field_in_command);
           }},
          {"write_with_force_unit_access",
           [](fixture& f) {
             buffer const data(f, 4096);
             std::uint32_t const blocks = 4096 / f.drive().block_bytes;
             data.fill_pattern(8, 21, f.drive().block_bytes);
             nvme::submission_entry entry = with_data(f, io_opcode::write, 8, blocks, data);
             entry.cdw12 |= nvme::cdw12_force_unit_access;
             f.expect(f.io(entry), 0);
             expect_pattern(f, 8, blocks, 21);
           }},
          {"read_with_limited_retry_and_force_unit_access",
           [](fixture& f) {
             prepare(f, 8, 1, 22);
             buffer const data(f, f.drive().block_bytes);
             nvme::submission_entry entry = with_data(f, io_opcode::read, 8, 1, data);
             entry.cdw12 |= nvme::cdw12_force_unit_access | nvme::cdw12_limited_retry;
             f.expect(f.io(entry), 0);
             EXPECT_TRUE(data.holds_pattern(8, 22, f.drive().block_bytes));
           }},
          {"flush_completes",
           [](fixture& f) {
             prepare(f, 8, 8, 23);
             f.expect(f.io(f.command(io_opcode::flush, 0, 1)), 0);
             expect_pattern(f, 8, 8, 23);
           }},
          {"flush_of_a_namespace_that_is_not_there_is_refused",
           [](fixture& f) {
             nvme::submission_entry entry = f.command(io_opcode::flush, 0, 1);
             entry.nsid = f.controller().identify_controller().nn + 1;
             f.expect(f.io(entry), generic_status::invalid_namespace_or_format);
           }},
          {"compare_of_equal_data_succeeds",
           [](fixture& f) {
             std::uint32_t const block = f.drive().block_bytes;
             prepare(f, 64, 40, 31);
             for (std::uint32_t const blocks : {1, 8, 9, 40}) {
               buffer const data(f, std::size_t{blocks} * block, 1024);
               data.fill_pattern(64, 31, block);
               f.expect(f.transfer(io_opcode::compare, 64, data), 0);
             }
           }},
          {"compare_of_other_data_fails",
           [](fixture& f) {
             std::uint32_t const block = f.drive().block_bytes;
             prepare(f, 64, 40, 31);
             buffer const data(f, std::size_t{40} * block);
             for (std::size_t const at : {std::size_t{0}, data.size_bytes() / 2, data.size_bytes() - 1}) {
               data.fill_pattern(64, 31, block);
               data[at] ^= std::byte{1};
               f.expect(f.transfer(io_opcode::compare, 64, data), nvme::media_status::compare_failure);
             }
             expect_pattern(f, 64, 40, 31);
           }},
          {"write_zeroes_reads_as_zeros",
           [](fixture& f) {
             prepare(f, 200, 32, 41);
             f.expect(f.io(f.command(io_opcode::write_zeroes, 204, 16)), 0);
             expect_pattern(f, 200, 4, 41);
             expect_zeros(f, 204, 16);
             expect_pattern(f, 220, 12, 41);
           }},
          {"write_zeroes_and_deallocate",
           [](fixture& f) {
             prepare(f, 200, 32, 42);
             nvme::submission_entry entry = f.command(io_opcode::write_zeroes, 200, 32);
             entry.cdw12 |= nvme::cdw12_deallocate;
             f.expect(f.io(entry), 0);
             expect_zeros(f, 200, 32);
           }},
          {"write_zeroes_beyond_mdts",
           [](fixture& f) {
             // MDTS bounds data transfers; this command has none.
             auto const blocks = static_cast<std::uint32_t>(2 * f.drive().max_transfer_bytes / f.drive().block_bytes);
             prepare(f, blocks - 1, 8, 43);
             f.expect(f.io(f.command(io_opcode::write_zeroes, 0, blocks)), 0);
             expect_zeros(f, blocks - 1, 1);
             expect_pattern(f, blocks, 7, 43);
           }},
          {"deallocated_blocks_read_as_promised",
           [](fixture& f) {
             prepare(f, 304, 32, 51);
             f.expect(deallocate(f, {{0, 16, 312}}), 0);
             expect_pattern(f, 304, 8, 51);
             ASSERT_TRUE(f.drive().deallocated_reads_zero);
             expect_zeros(f, 312, 16);
             expect_pattern(f, 328, 8, 51);
           }},
          {"deallocate_takes_256_ranges",
           [](fixture& f) {
             std::vector<nvme::dataset_management_range> ranges;
             for (std::uint32_t i = 0; i < 256; ++i) ranges.push_back({0, 8, 4096 + std::uint64_t{i} * 16});
             prepare(f, 4096 + 255 * 16, 16, 52);
             f.expect(deallocate(f, ranges), 0);
             expect_zeros(f, 4096 + 255 * 16, 8);
             expect_pattern(f, 4096 + 255 * 16 + 8, 8, 52);
           }},
          {"deallocate_out_of_range_is_refused",
           [](fixture& f) {
             f.expect(deallocate(f, {{0, 2, f.drive().blocks - 1}}), generic_status::lba_out_of_range, "straddling");
             f.expect(deallocate(f, {{0, 1, f.drive().blocks}}), generic_status::lba_out_of_range, "beyond");
           }},
          {"dataset_management_without_deallocate_changes_nothing",
           [](fixture& f) {
             prepare(f, 304, 8, 53);
             nvme::dataset_management_range const range{0, 8, 304};
             buffer const data(f, sizeof range);
             std::memcpy(&data[0], &range, sizeof range);
             nvme::submission_entry entry = f.command(io_opcode::dataset_management, 0, 1);
             entry.cdw11 = 1;  // "integral dataset for read", a hint
             entry.cdw12 = 0;
             data.describe(entry);
             f.expect(f.io(entry), 0);
             expect_pattern(f, 304, 8, 53);
           }},
          {"a_failed_command_is_followed_by_good_ones",
           [](fixture& f) {
             buffer const data(f, 4096);
             for (int i = 0; i < 20; ++i) {
               f.expect(f.io(with_data(f, io_opcode::read, f.drive().blocks, 1, data)),
                        generic_status::lba_out_of_range);
               f.round_trip(static_cast<std::uint64_t>(i), 1, 0, 0);
             }
           }},
      });
}

}  // namespace forebay::conformance
