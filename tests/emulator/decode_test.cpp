// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands that are refused before they are carried out, without a controller.
#include "forebay/detail/emulator/decode.hpp"

#include <gtest/gtest.h>

#include <string>

namespace forebay::emulator {
namespace {

using nvme::generic_status;
using nvme::io_opcode;

constexpr std::uint64_t max_transfer_bytes = 1 << 20;

std::uint16_t refusal(generic_status code) {
  return static_cast<std::uint16_t>(nvme::status_field(code) | nvme::do_not_retry);
}

std::uint16_t status_on(media const& drive, io_opcode opcode, std::uint32_t cdw11 = 0) {
  bool const has_range = opcode != io_opcode::dataset_management && opcode != io_opcode::flush;
  nvme::submission_entry entry =
      has_range ? nvme::make_io_command(opcode, 1, emulated_nsid, 8, 8) : nvme::submission_entry();
  if (!has_range) {
    entry.cdw0 = static_cast<std::uint32_t>(opcode);
    entry.nsid = emulated_nsid;
    entry.cdw11 = cdw11;
  }
  return decode(entry, drive, max_transfer_bytes).status_field;
}

TEST(Decode, AProtectedNamespaceTakesNothingThatWrites) {
  media drive{.bytes = 1 << 20};
  for (bool const read_only : {false, true}) {
    SCOPED_TRACE(read_only ? "protected" : "not protected");
    drive.read_only = read_only;
    std::uint16_t const of_writes = read_only ? refusal(generic_status::namespace_is_write_protected) : 0;
    EXPECT_EQ(status_on(drive, io_opcode::write), of_writes);
    EXPECT_EQ(status_on(drive, io_opcode::write_zeroes), of_writes);
    EXPECT_EQ(status_on(drive, io_opcode::dataset_management, nvme::cdw11_attribute_deallocate), of_writes);
    EXPECT_EQ(status_on(drive, io_opcode::dataset_management), 0);
    EXPECT_EQ(status_on(drive, io_opcode::read), 0);
    EXPECT_EQ(status_on(drive, io_opcode::compare), 0);
    EXPECT_EQ(status_on(drive, io_opcode::flush), 0);
  }
}

}  // namespace
}  // namespace forebay::emulator
