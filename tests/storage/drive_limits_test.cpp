// SPDX-License-Identifier: Apache-2.0
#include "storage/drive_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace forebay {
namespace {

using driver::drive_identity;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> const names{"a", "b", "c"};
constexpr std::uint64_t list_bytes = 2 << 20;

/// Three drives that differ in their serial numbers only.
std::vector<drive_identity> three() {
  std::vector<drive_identity> drives(3);
  for (std::size_t i = 0; i < drives.size(); ++i) {
    drives[i].serial = "serial " + std::to_string(i);
    drives[i].nsid = 1;
    drives[i].blocks = 1000;
    drives[i].block_bytes = 512;
    drives[i].max_transfer_bytes = 1 << 20;
    drives[i].io_queue_pairs = 5;
  }
  return drives;
}

TEST(DriveLimits, AreThoseOfTheWeakestDriveWhicheverItIs) {
  for (std::size_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    auto drives = three();
    drive_limits const equal = limits_of_all(drives, names, list_bytes);
    EXPECT_EQ(equal.bytes, 512'000u);
    EXPECT_EQ(equal.command_bytes_max, 1u << 20);
    EXPECT_FALSE(equal.write_protected);

    drives[i].max_transfer_bytes = 128 << 10;
    drives[i].blocks = 900;
    drives[i].write_protected = true;
    drive_limits const weak = limits_of_all(drives, names, list_bytes);
    EXPECT_EQ(weak.bytes, 900u * 512);
    EXPECT_EQ(weak.command_bytes_max, 128u << 10);
    EXPECT_TRUE(weak.write_protected);
  }
}

TEST(DriveLimits, ACommandHasNoMoreThanItsList) {
  EXPECT_EQ(limits_of_all(three(), names, 64 << 10).command_bytes_max, 64u << 10);
}

TEST(DriveLimits, DrivesThatCannotMakeOneStorageAreRefusedByName) {
  auto const refuses = [](auto change, std::string const& why) {
    auto drives = three();
    change(drives);
    EXPECT_THAT([&] { limits_of_all(drives, names, list_bytes); },
                ThrowsMessage<refused_input>(AllOf(HasSubstr("drives: 'c'"), HasSubstr(why))));
  };
  refuses([](auto& d) { d[2].block_bytes = 4096; }, "its block is 4096 bytes, that of 'a' is 512");
  refuses([](auto& d) { d[2].nsid = 2; }, "it is namespace 2 of its controller, and 'a' is namespace 1");
  refuses([](auto& d) { d[2].serial = d[1].serial; }, "is the same drive as 'b'");
  refuses([](auto& d) { d[2].io_queue_pairs = 1; }, "it grants 1 I/O queue pair");
  // Two pairs are enough, and two drives without a serial number may be two drives.
  auto drives = three();
  drives[1].serial = drives[2].serial = "";
  drives[0].io_queue_pairs = 2;
  EXPECT_NO_THROW(limits_of_all(drives, names, list_bytes));
}

}  // namespace
}  // namespace forebay
