// SPDX-License-Identifier: Apache-2.0
//! \file
//! The conformance list on QEMU's NVMe controller.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "conformance/suite.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "support/qemu_nvme.hpp"

namespace forebay::conformance {

namespace {

constexpr std::uint16_t success = 0;
constexpr std::uint16_t invalid_field = nvme::status_field(nvme::generic_status::invalid_field_in_command);
constexpr std::uint16_t invalid_namespace = nvme::status_field(nvme::generic_status::invalid_namespace_or_format);
constexpr std::uint16_t no_such_cq = nvme::status_field(nvme::command_specific_status::completion_queue_invalid);

/// Where QEMU 7.2 answers otherwise than the specification has it.
constexpr std::array qemu_leniencies = {
    leniency{"identify_namespace_of_all_needs_namespace_management", invalid_namespace,
             "QEMU offers namespace management but not the common namespace structure"},
    leniency{"unknown_log_page_is_refused", invalid_field, "QEMU answers invalid field, not invalid log page"},
    leniency{"delete_refuses_unknown_queues", no_such_cq,
             "QEMU answers completion queue invalid, not invalid queue identifier"},
    leniency{"memory_that_nobody_mapped_is_refused", success, "QEMU drops data for an unmapped address"},
    leniency{"deallocate_out_of_range_is_refused", success, "QEMU skips a range that is out of range"},
};

class qemu_target final : public target {
 public:
  driver::register_space& registers() override { return qemu_.registers(); }
  driver::dma_space& dma() override { return qemu_.dma(); }
  std::string serial() const override { return qemu_.options().serial; }
  std::uint64_t drive_bytes() const override { return qemu_.options().drive_bytes; }
  std::uint32_t block_bytes() const override { return qemu_.options().block_bytes; }
  std::vector<std::uint64_t> stray_pages() override { return qemu_.dma().stray_pages(); }
  std::span<leniency const> leniencies() const override { return qemu_leniencies; }

 private:
  test::qemu_nvme qemu_;
};

}  // namespace

using qemu = suite<qemu_target>;

TEST_P(qemu, conforms) {
  FOREBAY_NEEDS_QEMU();
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(conformance, qemu, testing::ValuesIn(checks()), name_of);

}  // namespace forebay::conformance
