// SPDX-License-Identifier: Apache-2.0
#include "forebay/emulator/backing_store.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

class file_backing_test : public ::testing::Test {
 protected:
  std::string path = (std::filesystem::path(::testing::TempDir()) /
                      ("forebay-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
                       std::to_string(::getpid())))
                         .string();
  void make(std::uint64_t bytes) {
    std::ofstream(path).close();
    std::filesystem::resize_file(path, bytes);
  }
  ~file_backing_test() override { std::remove(path.c_str()); }

  std::string refusal(std::uint64_t bytes, std::uint32_t block) {
    try {
      file_backing(path, bytes, block);
    } catch (refused_input const& refused) {
      return refused.what();
    }
    return "";
  }
};

TEST_F(file_backing_test, what_is_written_is_there_when_it_is_opened_again) {
  make(8192);
  {
    auto const store = file_backing(path, 0, 512);
    EXPECT_EQ(store->view().bytes, 8192u);
    std::memcpy(store->view().data + 4096, "hello", 5);
    EXPECT_TRUE(store->sync());
  }
  auto const again = file_backing(path, 8192, 512);
  EXPECT_EQ(std::memcmp(again->view().data + 4096, "hello", 5), 0);
}

TEST_F(file_backing_test, refusals_name_field_value_and_remedy) {
  EXPECT_NE(refusal(0, 512).find("path: '" + path + "': no such file"), std::string::npos);
  make(8192);
  EXPECT_EQ(refusal(4096, 512), "size: '4096': the file has 8192 bytes; leave size out to take that");
  make(1000);
  EXPECT_NE(refusal(0, 512).find("must be a multiple of lba_bytes=512"), std::string::npos);
  make(0);
  EXPECT_NE(refusal(0, 512).find("and not 0"), std::string::npos);
  make(4096);
  auto const first = file_backing(path, 0, 512);
  EXPECT_NE(refusal(0, 512).find("another drive has the file open"), std::string::npos);
}

TEST(memory_backing_test, a_large_drive_is_zeroed_and_costs_nothing_until_written) {
  auto const store = memory_backing(std::uint64_t{64} << 30, 4096);
  media const view = store->view();
  EXPECT_EQ(view.blocks(), (std::uint64_t{64} << 30) / 4096);
  EXPECT_EQ(view.data[(std::uint64_t{63} << 30) + 17], std::byte{0});
}

TEST(no_backing_test, has_a_size_and_no_bytes) {
  auto const store = no_backing(std::uint64_t{1} << 40, 512);
  EXPECT_EQ(store->view().data, nullptr);
  EXPECT_EQ(store->view().bytes, std::uint64_t{1} << 40);
}

}  // namespace
}  // namespace forebay::emulator
