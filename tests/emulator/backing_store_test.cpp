// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/backing_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "file_rig.hpp"
#include "forebay/detail/memory/machine.hpp"
#include "forebay/detail/simt/native.hpp"
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

constexpr std::uint16_t write_fault = nvme::status_field(nvme::media_status::write_fault);
constexpr std::uint16_t read_error = nvme::status_field(nvme::media_status::unrecovered_read_error);

TEST_F(file_backing_test, a_file_that_is_cut_shorter_fails_commands_and_nothing_else) {
  using nvme::io_opcode;
  make(64 * 4096);
  testing::file_rig drive(path);
  EXPECT_EQ(drive.run(io_opcode::write, 10), 0);
  EXPECT_EQ(drive.run(io_opcode::write, 40), 0);
  EXPECT_EQ(drive.run(io_opcode::flush, 0), 0);
  std::filesystem::resize_file(path, 32 * 4096);
  EXPECT_EQ(drive.run(io_opcode::read, 10), 0);
  EXPECT_EQ(drive.run(io_opcode::read, 40), read_error);
  EXPECT_EQ(drive.run(io_opcode::read, 40), read_error) << "zeros are there now, which nobody wrote";
  EXPECT_EQ(drive.run(io_opcode::write, 41), write_fault);
  EXPECT_EQ(drive.run(io_opcode::read, 31, 2), read_error);
  EXPECT_EQ(drive.run(io_opcode::compare, 42), read_error);
  EXPECT_EQ(drive.run(io_opcode::write_zeroes, 43), write_fault);
  EXPECT_EQ(drive.run(io_opcode::dataset_management, 44), write_fault);
  EXPECT_EQ(drive.run(io_opcode::flush, 0), write_fault) << "what was written to lost pages is lost";
  EXPECT_EQ(drive.run(io_opcode::write, 10), 0) << "pages that are there serve on";
  EXPECT_EQ(drive.run(io_opcode::read, 10), 0);
}

TEST_F(file_backing_test, a_disk_that_is_full_fails_commands_and_nothing_else) {
  std::string const disk = path + ".disk";
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    std::filesystem::remove(disk);
    GTEST_SKIP() << "no small disk can be mounted here: " << std::strerror(errno);
  }
  {
    std::ofstream(disk + "/drive").close();
    std::filesystem::resize_file(disk + "/drive", 64 * 4096);
    testing::file_rig drive(disk + "/drive");
    std::uint32_t failed = 0;
    for (std::uint64_t page = 0; page < 64; ++page) {
      std::uint16_t const status = drive.run(nvme::io_opcode::write, page);
      EXPECT_TRUE(status == 0 || status == write_fault) << status;
      failed += status != 0;
    }
    EXPECT_GE(failed, 48u);
    EXPECT_LT(failed, 64u);
    EXPECT_EQ(drive.run(nvme::io_opcode::flush, 0), write_fault);
  }
  ::umount(disk.c_str());
  std::filesystem::remove(disk);
}

void die_of_another_mapping(char const* path) {
  int const file = ::open(path, O_RDWR);
  void* const at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  *static_cast<char volatile*>(at) = 1;
}

TEST_F(file_backing_test, a_fault_of_somebody_elses_mapping_ends_the_program_as_ever) {
  make(4096);
  auto const store = file_backing(path, 0, 512);
  std::string const other = path + ".other";
  std::ofstream(other).close();
  // A sanitizer reports it first, and then ends the process.
  EXPECT_EXIT(die_of_another_mapping(other.c_str()), [](int status) { return status != 0; }, "");
  std::remove(other.c_str());
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

TEST_F(file_backing_test, a_working_copy_of_a_file_that_ends_within_a_block_has_zeros_after_it) {
  make(4097);
  auto const copy = working_copy(file_backing(path, 0, 4096, true), memory::host());
  media const view = copy->view();
  EXPECT_EQ(view.bytes, 8192u);
  EXPECT_EQ(std::count(view.data, view.data + view.bytes, std::byte{0}), 8192);
  EXPECT_TRUE(copy->sync());
  EXPECT_EQ(std::filesystem::file_size(path), 4097u);
}

TEST(memory_backing_test, a_large_drive_is_zeroed_and_costs_nothing_until_written) {
  auto const store = memory_backing(std::uint64_t{64} << 30, 4096);
  media const view = store->view();
  EXPECT_EQ(view.blocks(), (std::uint64_t{64} << 30) / 4096);
  EXPECT_EQ(view.data[(std::uint64_t{63} << 30) + 17], std::byte{0});
}

std::size_t resident_pages(std::byte* from, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / 4096);
  EXPECT_EQ(::mincore(from, bytes, pages.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; }));
}

TEST(memory_backing_test, is_populated_when_asked_and_keeps_what_it_holds) {
  constexpr std::uint64_t bytes = 8 << 20;
  auto const store = memory_backing(2 * bytes, 512);
  std::byte* const data = store->view().data;
  std::memcpy(data + 4096, "hello", 5);
  EXPECT_LT(resident_pages(data, bytes), bytes / 4096);
  EXPECT_EQ(store->populate(bytes), bytes);
  EXPECT_EQ(resident_pages(data, bytes), bytes / 4096);
  EXPECT_EQ(std::memcmp(data + 4096, "hello", 5), 0);
  EXPECT_EQ(data[bytes - 1], std::byte{0});
  EXPECT_EQ(store->populate(~std::uint64_t{0}), 2 * bytes) << "no more than there is";
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(store->populate(bytes, stop.get_token()), 0u);
  std::uint64_t const machine = memory::machine_bytes();
  EXPECT_EQ(memory_backing(machine, 512)->populate(machine), 0u) << "more than half of what the machine has";
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

/// Host memory that runs an action once, just after a copy of at least a given number of bytes was made of it.
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
