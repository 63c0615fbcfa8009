// SPDX-License-Identifier: Apache-2.0
//! \file
//! Accessors and helpers of the nvme layer, against numbers worked out by hand from the specification.
#include <gtest/gtest.h>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/log_page.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/nvme/status_text.hpp"

namespace forebay::nvme {
namespace {

TEST(submission_entry, carries_opcode_id_and_range) {
  submission_entry e = make_io_command(io_opcode::read, 0xbeef, 7, 0x123456789abcdef0, 65536);
  EXPECT_EQ(e.cdw0, 0xbeef0002u);
  EXPECT_EQ(e.nsid, 7u);
  EXPECT_EQ(e.cdw10, 0x9abcdef0u);
  EXPECT_EQ(e.cdw11, 0x12345678u);
  EXPECT_EQ(e.cdw12, 0xffffu);
  EXPECT_EQ(e.slba(), 0x123456789abcdef0u);
  EXPECT_EQ(e.block_count(), 65536u);
  e.cdw0 |= 3u << 14 | 2u << 8;
  e.set_command_id(0x0102);
  EXPECT_EQ(e.command_id(), 0x0102);
  EXPECT_EQ(e.opcode(), 0x02);
  EXPECT_EQ(e.psdt(), 3u);
  EXPECT_EQ(e.fused(), 2u);
}

TEST(completion_entry, takes_its_words_apart) {
  completion_entry c;
  c.dw2 = 0x00050011;
  c.dw3 = 0xc5024321;  // DNR, SCT 2h, SC 81h, phase 0
  EXPECT_EQ(c.sq_head(), 0x11);
  EXPECT_EQ(c.sq_id(), 5);
  EXPECT_EQ(c.command_id(), 0x4321);
  EXPECT_EQ(c.phase(), 0u);
  EXPECT_EQ(c.status_field() & do_not_retry, do_not_retry);
  EXPECT_EQ(c.status_field() & status_code_mask, status_field(media_status::unrecovered_read_error));
  EXPECT_EQ(completion_entry::make_dw2(0x11, 5), c.dw2);
  EXPECT_EQ(completion_entry::make_dw3(0x4321, 0, c.status_field()), c.dw3);
  c.dw3 = completion_entry::make_dw3(0xffff, 1, 0);
  EXPECT_EQ(c.phase(), 1u);
  EXPECT_EQ(c.command_id(), 0xffff);
  EXPECT_EQ(c.status_field(), 0);
}

TEST(prp_count, counts_pages_touched) {
  EXPECT_EQ(prp_count(0, 1, 4096), 1u);
  EXPECT_EQ(prp_count(0, 4096, 4096), 1u);
  EXPECT_EQ(prp_count(4095, 1, 4096), 1u);
  EXPECT_EQ(prp_count(4095, 2, 4096), 2u);
  EXPECT_EQ(prp_count(512, 131072, 4096), 33u);
}

TEST(registers, doorbells_lie_where_the_stride_puts_them) {
  EXPECT_EQ(registers::sq_tail_doorbell(0, 0), 0x1000u);
  EXPECT_EQ(registers::cq_head_doorbell(0, 0), 0x1004u);
  EXPECT_EQ(registers::sq_tail_doorbell(3, 0), 0x1018u);
  EXPECT_EQ(registers::cq_head_doorbell(3, 2), 0x1000u + 7 * 16);
}

TEST(registers, capabilities_decode) {
  controller_capabilities const cap{0x004018200f0107ff};  // what QEMU 7.2 reports
  EXPECT_EQ(cap.max_queue_entries(), 2048u);
  EXPECT_TRUE(cap.contiguous_queues_required());
  EXPECT_EQ(cap.timeout_ns(), 7'500'000'000u);
  EXPECT_EQ(cap.doorbell_stride(), 0u);
  EXPECT_TRUE(cap.nvm_command_set());
  EXPECT_EQ(cap.min_page_bytes(), 4096u);
  EXPECT_EQ(cap.max_page_bytes(), 65536u);
}

TEST(features, number_of_queues_is_0s_based_on_the_wire) {
  EXPECT_EQ(number_of_queues::make(1, 1), 0u);
  EXPECT_EQ(number_of_queues::make(16, 8), 0x0007000fu);
  EXPECT_EQ(number_of_queues{0x0007000f}.submission_queues(), 16u);
  EXPECT_EQ(number_of_queues{0x0007000f}.completion_queues(), 8u);
}

TEST(log_pages, count_of_dwords_is_0s_based) {
  EXPECT_EQ(get_log_page_cdw10(log_page_id::smart_health_information, 512), 0x007f0002u);
  EXPECT_EQ(get_log_page_cdw11(512), 0u);
  EXPECT_EQ(get_log_page_cdw11((0x12345ull + 1) * 4), 1u);
}

TEST(identify, mdts_counts_smallest_pages) {
  identify_controller c;
  EXPECT_EQ(c.max_data_transfer_bytes(4096), 0u);
  c.mdts = 5;
  EXPECT_EQ(c.max_data_transfer_bytes(4096), 131072u);
}

TEST(identify, namespace_block_comes_from_the_format_in_use) {
  identify_namespace n;
  n.lbaf[3].lbads = 12;
  n.flbas = 3;
  EXPECT_EQ(n.block_bytes(), 4096u);
}

TEST(status_text, names_every_code_and_no_other) {
  EXPECT_EQ(status_text(0), "successful completion");
  EXPECT_EQ(status_text(status_field(generic_status::lba_out_of_range)), "LBA out of range");
  EXPECT_EQ(status_text(status_field(media_status::compare_failure) | do_not_retry), "compare failure");
  EXPECT_EQ(status_text(status_field(command_specific_status::invalid_queue_size)), "invalid queue size");
  EXPECT_EQ(status_text(0x07f), "unknown status");
  EXPECT_EQ(status_text(0x17f), "unknown status");
}

}  // namespace
}  // namespace forebay::nvme
