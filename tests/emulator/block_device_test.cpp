// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the system tells about block devices, from tables as it writes them.
#include "emulator/block_device.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/loop_device.hpp"

namespace forebay::emulator {
namespace {

namespace fs = std::filesystem;

/// A disk, 8:16, with two partitions, 8:17 and 8:18, in a folder of its own.
class block_device_tables : public ::testing::Test {
 protected:
  fs::path folder = fs::path(::testing::TempDir()) /
                    ("forebay-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
                     std::to_string(::getpid()));
  device_places places = {folder / "mountinfo", folder / "swaps", folder / "dev", folder / "by-id"};
  dev_t disk = makedev(8, 16), first = makedev(8, 17), second = makedev(8, 18);

  block_device_tables() {
    fs::path const devices = folder / "devices" / "sdb";
    tell(devices / "dev", "8:16\n");
    for (int i : {1, 2}) {
      fs::path const part = devices / ("sdb" + std::to_string(i));
      tell(part / "dev", "8:" + std::to_string(16 + i) + "\n");
      tell(part / "partition", std::to_string(i) + "\n");
      link(part, folder / "dev" / ("8:" + std::to_string(16 + i)));
    }
    link(devices, folder / "dev" / "8:16");
    tell(places.mounts, "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n");
    tell(places.swaps, "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
  }
  ~block_device_tables() override { fs::remove_all(folder); }

  static void tell(fs::path const& file, std::string const& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::app) << text;
  }
  static void link(fs::path const& to, fs::path const& from) {
    fs::create_directories(from.parent_path());
    fs::create_symlink(to, from);
  }
  std::string user(dev_t device) { return user_of_device(device, places); }
};

TEST_F(block_device_tables, tell_of_nobody_where_nobody_uses_the_device) {
  for (dev_t const device : {disk, first, second, makedev(9, 9)}) EXPECT_EQ(user(device), "");
  EXPECT_EQ(user_of_device(disk, {"/no/such", "/no/such", "/no/such", "/no/such"}), "");
}

TEST_F(block_device_tables, tell_where_a_device_or_a_partition_of_it_is_mounted) {
  tell(places.mounts, "36 22 8:17 / /mnt/my\\040disk rw,noatime shared:1 master:2 - ext4 /dev/sdb1 rw\n");
  EXPECT_EQ(user(disk), "it is mounted at /mnt/my disk");
  EXPECT_EQ(user(first), "it is mounted at /mnt/my disk");
  EXPECT_EQ(user(second), "") << "its neighbour is mounted";
}

TEST_F(block_device_tables, tell_who_holds_a_device_and_its_parts) {
  tell(folder / "devices/sdb/sdb2/holders/dm-3/dm/name", "vg-root\n");
  EXPECT_EQ(user(disk), "it is held by dm-3 (vg-root)");
  EXPECT_EQ(user(second), "it is held by dm-3 (vg-root)");
  EXPECT_EQ(user(first), "");
  tell(folder / "devices/sdb/holders/md0/dev", "9:0\n");
  EXPECT_EQ(user(first), "it is held by md0") << "the whole disk is a member";
}

TEST_F(block_device_tables, tell_the_names_of_a_device) {
  tell(folder / "devices/sdb/wwid", "naa.5000c500a1b2c3d4\n");
  tell(folder / "devices/sdb/device/serial", "ZC1 234  \n");
  for (char const* name : {"naa.5000c500a1b2c3d4", "ZC1 234"}) {
    EXPECT_TRUE(device_has_name(disk, name, places)) << name;
    EXPECT_FALSE(device_has_name(first, name, places)) << "a partition is less than its disk: " << name;
  }
  for (char const* name : {"", "ZC1", "sdb", "../dev/8:16", "naa"}) {
    EXPECT_FALSE(device_has_name(disk, name, places)) << name;
  }
}

/// A device of 16 MiB over a file of zeros.
class real_block_device : public block_device_tables {
 protected:
  std::string file = (folder / "disk").string();
  std::unique_ptr<test::loop_device> device;

  void SetUp() override {
    tell(file, "");
    fs::resize_file(file, 16 << 20);
    device = std::make_unique<test::loop_device>(file);
    if (device->path().empty()) GTEST_SKIP() << device->why_not();
  }
  dev_t number() const {
    struct stat about{};
    EXPECT_EQ(::stat(device->path().c_str(), &about), 0);
    return about.st_rdev;
  }
  bool run(std::string const& command) const {
    return std::system((command + " " + device->path() + " >/dev/null 2>&1").c_str()) == 0;
  }
};

TEST_F(real_block_device, has_its_size_and_its_blocks) {
  device_shape const shape = shape_of_device(device->fd());
  EXPECT_EQ(shape.bytes, 16u << 20);
  EXPECT_EQ(shape.block_bytes, 512u);
  EXPECT_FALSE(shape.is_protected);
  EXPECT_TRUE(shape_of_device(test::loop_device(file, 512, true).fd()).is_protected);
}

TEST_F(real_block_device, is_named_by_its_links) {
  link(device->path(), fs::path(places.names) / "virtio-disk_7");
  link(device->path(), fs::path(places.names) / "wwn-0x5000c500a1b2c3d4");
  link("/dev/null", fs::path(places.names) / "other");
  for (char const* name : {"virtio-disk_7", "wwn-0x5000c500a1b2c3d4", "0x5000c500a1b2c3d4"}) {
    EXPECT_TRUE(device_has_name(number(), name, places)) << name;
  }
  for (char const* name : {"other", "disk_7", "7", "0x5000c500a1b2c3d"}) {
    EXPECT_FALSE(device_has_name(number(), name, places)) << name;
  }
}

TEST_F(real_block_device, that_is_swap_space_is_told) {
  tell(places.swaps, device->path() + "      partition\t16380\t\t0\t\t-2\n");
  EXPECT_EQ(user(number()), "it is swap space");
}

TEST_F(real_block_device, is_found_behind_a_file_system_over_several_devices) {
  tell(places.mounts, "36 22 0:52 / /mnt/pool rw - btrfs " + device->path() + " rw\n");
  EXPECT_EQ(user(number()), "it is mounted at /mnt/pool");
}

TEST_F(real_block_device, of_zeros_carries_nothing) {
  EXPECT_EQ(signatures_on(device->fd()), std::vector<std::string>());
}

TEST_F(real_block_device, that_was_swap_space_carries_a_signature) {
  if (!run("mkswap")) GTEST_SKIP() << "there is no such program here";
  EXPECT_EQ(signatures_on(device->fd()), std::vector<std::string>{"swap"});
}

TEST_F(real_block_device, with_a_file_system_carries_a_signature) {
  if (!run("mkfs.ext4 -q -F")) GTEST_SKIP() << "there is no such program here";
  EXPECT_EQ(signatures_on(device->fd()), std::vector<std::string>{"ext4 file system"});
}

TEST_F(real_block_device, with_a_partition_table_carries_a_signature) {
  // One partition of Linux, of 1000 sectors from 2048 on.
  std::string record(512, '\0');
  record.replace(446, 16, std::string("\0\0\0\0\x83\0\0\0\0\x08\0\0\xe8\x03\0\0", 16));
  record.replace(510, 2, "\x55\xaa");
  ASSERT_EQ(::pwrite(device->fd(), record.data(), record.size(), 0), 512);
  EXPECT_EQ(signatures_on(device->fd()), std::vector<std::string>{"dos partition table"});
}

TEST_F(real_block_device, that_is_part_of_an_array_carries_a_signature) {
  // The superblock of md, version 1.2: its magic and version, 4 KiB from the begin, and where it says that it is.
  std::string superblock(1024, '\0');
  superblock.replace(0, 8, std::string("\xfc\x4e\x2b\xa9\x01\0\0\0", 8));
  superblock[144] = 8;
  ASSERT_EQ(::pwrite(device->fd(), superblock.data(), superblock.size(), 4096), 1024);
  EXPECT_EQ(signatures_on(device->fd()), std::vector<std::string>{"linux_raid_member part of a larger volume"});
}

}  // namespace
}  // namespace forebay::emulator
