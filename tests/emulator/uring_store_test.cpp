// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which way a file is reached, and whether that bypasses the page cache.
#include "emulator/uring_store.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "emulator/uring.hpp"
#include "emulator/uring_medium.hpp"
#include "support/loop_device.hpp"

namespace forebay::emulator {
namespace {

namespace fs = std::filesystem;

class uring_store_test : public ::testing::Test {
 protected:
  std::string path;

  void SetUp() override {
    if (std::string const why = uring::why_not(uring_medium::most_pieces); !why.empty()) GTEST_SKIP() << why;
  }
  void make(fs::path const& folder) {
    path = (folder / ("forebay-uring-store-" + std::to_string(::getpid()))).string();
    std::ofstream(path).close();
    fs::resize_file(path, 16 << 20);
  }
  ~uring_store_test() override {
    if (!path.empty()) fs::remove(path);
  }
};

TEST_F(uring_store_test, reaches_a_block_device_directly) {
  make(::testing::TempDir());
  test::loop_device const device(path);
  if (device.path().empty()) GTEST_SKIP() << device.why_not();
  EXPECT_EQ(choose_io(opened_file({.path = device.path()})).io, file_io::uring);
  auto const store = uring_store(opened_file({.path = device.path()}), 512, "");
  EXPECT_TRUE(store->access()->direct) << store->access()->why_not_direct;
}

TEST_F(uring_store_test, has_no_direct_io_where_the_file_system_is_memory) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "there is no /dev/shm here";
  make("/dev/shm");
  file_choice const choice = choose_io(opened_file({.path = path}));
  EXPECT_EQ(choice.io, file_io::mmap);
  EXPECT_EQ(choice.why, "the file system is memory");
  EXPECT_FALSE(uring_store(opened_file({.path = path}), 512, "")->access()->direct);
}

}  // namespace
}  // namespace forebay::emulator
