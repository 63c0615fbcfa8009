// SPDX-License-Identifier: Apache-2.0
#include "storage/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "forebay/error.hpp"

namespace forebay {
namespace {

using detail::drive_plan;
using detail::plan_drives;
using driver::drive_identity;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::uint32_t block_bytes = 512;

drive_identity drive_of(std::uint64_t bytes) {
  drive_identity d;
  d.nsid = 1;
  d.blocks = bytes / block_bytes;
  d.block_bytes = block_bytes;
  d.max_transfer_bytes = 1 << 20;
  d.max_queue_entries = 128;
  d.io_queue_pairs = 9;
  return d;
}

storage_options options_of(std::size_t drives, std::uint64_t stripe_bytes) {
  storage_options o;
  for (std::size_t i = 0; i < drives; ++i) o.drives.push_back("drive " + std::to_string(i));
  o.stripe_bytes = stripe_bytes;
  return o;
}

TEST(Layout, OneDriveIsUsedWholeWhateverTheStripe) {
  drive_plan const plan = plan_drives(options_of(1, 3000), std::vector{drive_of(1000 * block_bytes)}, false);
  EXPECT_EQ(plan.layout.size_bytes, 1000u * block_bytes);
  EXPECT_EQ(plan.layout.block_shift, 9u);
  EXPECT_EQ(plan.layout.pairs_per_drive, 1u);
  EXPECT_TRUE(plan.writable);
}

TEST(Layout, SeveralDrivesHoldWholeStripesOfTheSmallest) {
  std::vector const drives{drive_of(200'000 * block_bytes), drive_of(100'001 * block_bytes)};
  EXPECT_EQ(plan_drives(options_of(2, 4096), drives, false).layout.size_bytes, 2u * 12'500 * 4096);
  storage_layout const one_after_the_other = plan_drives(options_of(2, 0), drives, false).layout;
  EXPECT_EQ(one_after_the_other.stripe_bytes, 781u * 65536);
  EXPECT_TRUE(one_after_the_other.one_after_the_other());
}

TEST(Layout, IsRefusedWhereItHasNoSize) {
  auto const refuses = [](std::uint64_t stripe_bytes, std::uint64_t drive_bytes, std::string const& why) {
    std::vector const drives{drive_of(drive_bytes), drive_of(drive_bytes)};
    EXPECT_THAT([&] { plan_drives(options_of(2, stripe_bytes), drives, false); },
                ThrowsMessage<refused_input>(HasSubstr(why)));
  };
  refuses(0, 65536 - block_bytes, "stripe_bytes: '0': drives one after the other hold at least 65536 bytes each");
  refuses(1000, 1 << 20, "stripe_bytes: '1000': give a multiple of the block, 512 bytes");
  refuses(2 << 20, 1 << 20, "stripe_bytes: '2097152': give at most what the smallest drive holds, 1048576 bytes");
  refuses(4096, std::uint64_t{1} << 63, "together they must hold less than 2^64 bytes");
}

TEST(Layout, TheWeakestDriveSaysWhatQueuesThoseHaveThatAreNotNamed) {
  std::vector drives{drive_of(1 << 20), drive_of(1 << 20), drive_of(1 << 20)};
  drives[1].io_queue_pairs = 4;
  drives[1].max_queue_entries = 64;
  storage_options o = options_of(3, 4096);
  o.queues.of_drives = {{}, {}, {.count = 8, .depth = 100}};
  auto const queues = plan_drives(o, drives, true).queues;
  ASSERT_EQ(queues.size(), 3u);
  for (std::size_t i : {0, 1}) {
    EXPECT_EQ(queues[i].count, 3u);
    EXPECT_EQ(queues[i].depth, 64u);
  }
  EXPECT_EQ(queues[2].count, 8u);
  EXPECT_EQ(queues[2].depth, 100u);
}

TEST(Layout, TheHostHasHalfOfThePairsThatKernelsLeaveOnEveryDrive) {
  std::vector drives{drive_of(1 << 20), drive_of(1 << 20)};
  storage_options o = options_of(2, 4096);
  EXPECT_EQ(plan_drives(o, drives, true).host_pairs, 1u);  // kernels would like more than there are
  for (auto const& [kernels, host] : {std::pair(8u, 1u), {4u, 3u}, {1u, 4u}}) {
    o.queues.per_drive = kernels;
    EXPECT_EQ(plan_drives(o, drives, true).host_pairs, host) << kernels;
    EXPECT_EQ(plan_drives(o, drives, false).host_pairs, 1u);
  }
  drives[0].io_queue_pairs = 40;
  drives[1].io_queue_pairs = 30;
  EXPECT_EQ(plan_drives(o, drives, true).host_pairs, 8u);
  drives[1].io_queue_pairs = 3;
  EXPECT_EQ(plan_drives(o, drives, true).host_pairs, 1u);
}

TEST(Layout, IsNotWritableWhereOneDriveIsNot) {
  std::vector drives{drive_of(1 << 20), drive_of(1 << 20)};
  drives[1].write_protected = true;
  EXPECT_FALSE(plan_drives(options_of(2, 4096), drives, false).writable);
  drives[1].write_protected = false;
  storage_options o = options_of(2, 4096);
  o.read_only = true;
  EXPECT_FALSE(plan_drives(o, drives, false).writable);
}

}  // namespace
}  // namespace forebay
