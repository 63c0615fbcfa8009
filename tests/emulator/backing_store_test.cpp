// SPDX-License-Identifier: Apache-2.0
#include "forebay/emulator/backing_store.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "forebay/error.hpp"
#include "forebay/simt/native.hpp"

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

TEST_F(file_backing_test, what_is_read_only_is_not_mapped_for_writing) {
  make(8192);
  auto const store = file_backing(path, 0, 512, true);
  EXPECT_TRUE(store->view().read_only);
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::string mode;
  while (std::getline(maps, line)) {
    if (line.find(path) != std::string::npos) mode = line.substr(line.find(' ') + 1, 4);
  }
  EXPECT_EQ(mode, "r--s");
  EXPECT_TRUE(store->sync());
  EXPECT_NO_THROW(file_backing(path, 0, 512, true)) << "drives that only read may share it";
  EXPECT_NE(refusal(0, 512).find("another drive has the file open"), std::string::npos);
}

TEST_F(file_backing_test, a_fifo_is_refused_at_once) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (bool const read_only : {false, true}) {
    EXPECT_THROW(file_backing(path, 0, 512, read_only), refused_input);
  }
}

TEST_F(file_backing_test, a_working_copy_is_as_read_only_as_its_home) {
  make(8192);
  auto const copy = working_copy(file_backing(path, 0, 512, true), memory::host());
  EXPECT_TRUE(copy->view().read_only);
  EXPECT_FALSE(working_copy(memory_backing(8192, 512), memory::host())->view().read_only);
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

TEST(working_copy_test, what_was_marked_goes_home_and_nothing_else) {
  constexpr std::uint64_t chunk = std::uint64_t{1} << media::dirty_chunk_log2;
  auto home = memory_backing(3 * chunk + 512, 512);
  std::byte* const at_home = home->view().data;
  at_home[0] = std::byte{1};
  at_home[3 * chunk] = std::byte{4};
  auto const copy = working_copy(std::move(home), memory::host());
  media const view = copy->view();
  EXPECT_EQ(view.bytes, 3 * chunk + 512);
  EXPECT_EQ(view.data[0], std::byte{1}) << "loaded at the start";
  EXPECT_EQ(view.data[3 * chunk], std::byte{4});
  for (std::uint64_t i : {0u, 1u, 2u, 3u}) view.data[i * chunk] = static_cast<std::byte>(0x10 + i);
  view.mark<simt::native>(chunk, 512);
  view.mark<simt::native>(3 * chunk, 512);
  EXPECT_EQ(at_home[chunk], std::byte{0}) << "not before sync";
  EXPECT_TRUE(copy->sync());
  EXPECT_EQ(at_home[0], std::byte{1}) << "not marked";
  EXPECT_EQ(at_home[chunk], std::byte{0x11});
  EXPECT_EQ(at_home[2 * chunk], std::byte{0});
  EXPECT_EQ(at_home[3 * chunk], std::byte{0x13}) << "a chunk that is cut off by the end";
  view.mark<simt::native>(chunk - 512, 2 * chunk);
  EXPECT_TRUE(copy->sync());
  EXPECT_EQ(at_home[0], std::byte{0x10});
  EXPECT_EQ(at_home[2 * chunk], std::byte{0x12});
  at_home[0] = std::byte{9};
  EXPECT_TRUE(copy->sync());
  EXPECT_EQ(at_home[0], std::byte{9}) << "marks are gone";
}

/// Host memory in which something happens once, just after a copy of so many bytes or more was made of it.
struct interrupted_memory : memory::resource {
  std::uint64_t least_bytes = 0;
  std::function<void()> then;

  memory::kind kind() const override { return memory::kind::host; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    return memory::host().allocate(bytes, alignment_bytes);
  }
  void deallocate(void* address) noexcept override { memory::host().deallocate(address); }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override {
    memory::host().copy_in(to, from_host, bytes);
  }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override {
    memory::host().copy_out(to_host, from, bytes);
    if (then && bytes >= least_bytes) std::exchange(then, nullptr)();
  }
};

TEST(working_copy_test, a_mark_that_arrives_during_the_copy_stays_for_the_next) {
  constexpr std::uint64_t chunk = std::uint64_t{1} << media::dirty_chunk_log2;
  auto home = memory_backing(2 * chunk, 512);
  std::byte* const at_home = home->view().data;
  interrupted_memory where;
  auto const copy = working_copy(std::move(home), where);
  media const view = copy->view();
  view.data[chunk] = std::byte{1};
  view.mark<simt::native>(chunk, 512);
  where.least_bytes = chunk;
  where.then = [&] {
    view.data[chunk] = std::byte{2};
    view.mark<simt::native>(chunk, 512);
  };
  EXPECT_TRUE(copy->sync());
  EXPECT_FALSE(where.then) << "nothing was copied";
  EXPECT_EQ(at_home[chunk], std::byte{1});
  EXPECT_TRUE(copy->sync());
  EXPECT_EQ(at_home[chunk], std::byte{2});
}

}  // namespace
}  // namespace forebay::emulator
