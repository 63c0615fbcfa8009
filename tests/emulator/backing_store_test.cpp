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
#include <iterator>
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
  std::string path = path_of_test();
  static std::string path_of_test() {
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '-');
    return (std::filesystem::path(::testing::TempDir()) / ("forebay-" + name + "-" + std::to_string(::getpid())))
        .string();
  }
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
  EXPECT_EQ(refusal(1000, 512), "size: '1000': the file has 1000 bytes; leave size out to take that");
  EXPECT_EQ(refusal(1024, 512), "");
  make(0);
  EXPECT_NE(refusal(0, 512).find("the file is empty"), std::string::npos);
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

/// What holds however the bytes are reached.
class file_drive_test : public file_backing_test, public ::testing::WithParamInterface<file_io> {};
INSTANTIATE_TEST_SUITE_P(file, file_drive_test, ::testing::Values(file_io::mmap, file_io::uring),
                         [](auto const& of) { return of.param == file_io::mmap ? "mmap" : "uring"; });

TEST_P(file_drive_test, a_file_that_is_cut_shorter_fails_commands_and_nothing_else) {
  using nvme::io_opcode;
  make(64 * 4096);
  testing::file_rig drive(path, GetParam());
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

/// Ends of files within their last block of 512 bytes, near its begin, its end and that of a page.
constexpr std::uint64_t ends[] = {1, 511, 513, 3 * 512 + 257, 4095, 4097, 2 * 4096 + 3};

TEST_P(file_drive_test, a_write_up_to_the_end_of_a_file_is_stored) {
  for (std::uint64_t const end : ends) {
    make(end);
    {
      testing::file_rig drive(path, GetParam());
      std::uint64_t const last = (end - 1) / 512;
      std::uint32_t const blocks = last == 0 ? 1 : 2;
      std::uint64_t const first_byte = (last + 1 - blocks) * 512;
      std::memset(drive.data(), 'x', end - first_byte);
      std::memset(drive.data() + (end - first_byte), 0, blocks * 512 - (end - first_byte));
      EXPECT_EQ(drive.run_blocks(nvme::io_opcode::write, last + 1 - blocks, blocks), 0) << end;
      EXPECT_EQ(drive.run_blocks(nvme::io_opcode::compare, last + 1 - blocks, blocks), 0) << end;
      EXPECT_EQ(drive.run_blocks(nvme::io_opcode::flush, 0, 1), 0) << end;
      std::memset(drive.data(), '?', 1024);
      EXPECT_EQ(drive.run_blocks(nvme::io_opcode::read, last, 1), 0) << end;
      EXPECT_EQ(std::count(drive.data(), drive.data() + 512, 'x'), static_cast<std::ptrdiff_t>(end - last * 512))
          << end;
      EXPECT_EQ(std::count(drive.data(), drive.data() + 512, 0), static_cast<std::ptrdiff_t>((last + 1) * 512 - end))
          << end;
    }
    EXPECT_EQ(std::filesystem::file_size(path), end);
    std::ifstream file(path, std::ios::binary);
    std::string const all(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(all.back(), 'x') << end;
  }
}

TEST_P(file_drive_test, a_write_of_more_than_zeros_beyond_the_end_of_a_file_fails_and_stores_nothing) {
  for (std::uint64_t const end : ends) {
    make(end);
    std::uint64_t const last = (end - 1) / 512;
    std::uint32_t const blocks = last == 0 ? 1 : 2;
    std::uint64_t const first = last + 1 - blocks;
    // The first byte beyond the end, and the last.
    for (std::uint64_t const at : {end - first * 512, std::uint64_t{blocks} * 512 - 1}) {
      testing::file_rig drive(path, GetParam());
      std::memset(drive.data(), 'x', end - first * 512);
      std::memset(drive.data() + (end - first * 512), 0, (last + 1) * 512 - end);
      drive.data()[at] = 1;
      EXPECT_EQ(drive.run_blocks(nvme::io_opcode::write, first, blocks), write_fault) << end;
      EXPECT_EQ(drive.run_blocks(nvme::io_opcode::read, first, blocks), 0) << end;
      EXPECT_EQ(std::count(drive.data(), drive.data() + blocks * 512, 0), blocks * 512) << end << ": nothing is stored";
      EXPECT_EQ(drive.run_blocks(nvme::io_opcode::flush, 0, 1), 0) << end << ": nothing is lost";
      EXPECT_EQ(drive.drive->collect()->commands.failed_commands, 1u);
    }
    EXPECT_EQ(std::filesystem::file_size(path), end);
  }
}

TEST_P(file_drive_test, zeros_may_be_written_over_the_end_of_a_file) {
  using nvme::io_opcode;
  make(4096 + 700);
  std::ofstream(path, std::ios::binary) << std::string(4096 + 700, 'x');
  {
    testing::file_rig drive(path, GetParam());
    EXPECT_EQ(drive.run_blocks(io_opcode::dataset_management, 9, 1), 0);
    EXPECT_EQ(drive.run_blocks(io_opcode::read, 8, 2), 0);
    EXPECT_EQ(std::string(drive.data(), 1024), std::string(512, 'x') + std::string(512, '\0'));
    EXPECT_EQ(drive.run_blocks(io_opcode::write_zeroes, 8, 2), 0);
    EXPECT_EQ(drive.run_blocks(io_opcode::write, 10, 1), nvme::status_field(nvme::generic_status::lba_out_of_range));
  }
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), std::string(4096, 'x') + std::string(700, '\0'));
}

TEST_F(file_backing_test, nothing_reaches_the_page_beyond_the_end_of_a_file) {
  make(4096 + 4);
  auto const store = file_backing(path, 0, 4096);
  media const view = store->view();
  EXPECT_EQ(view.bytes, 8192u);
  EXPECT_EQ(view.end_bytes, 4100u);
  std::vector<std::byte> good(4096), bad(4096);
  std::fill_n(good.begin(), 4, std::byte{1});
  std::fill_n(bad.begin(), 5, std::byte{2});
  auto const lanes = simt::team<simt::native>::here();
  auto const segment = [](std::vector<std::byte> const& bytes) {
    return dma_segment{reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size()};
  };
  dma_segment const of_good = segment(good), of_bad = segment(bad);
  EXPECT_TRUE(view.ends_in_zeros<simt::native>(lanes, 4096, &of_good, 1));
  EXPECT_FALSE(view.ends_in_zeros<simt::native>(lanes, 4096, &of_bad, 1));
  view.write<simt::native>(lanes, 4096, &of_bad, 1);
  EXPECT_EQ(view.data[4099], std::byte{2});
  EXPECT_EQ(view.data[4100], std::byte{0}) << "a write never goes beyond, whatever the client's memory holds by then";
}

TEST_P(file_drive_test, a_disk_that_is_full_fails_commands_and_nothing_else) {
  bool const mapped = GetParam() == file_io::mmap;
  std::uint16_t const full = mapped ? write_fault : nvme::status_field(nvme::generic_status::capacity_exceeded);
  std::string const disk = path + ".disk";
  std::filesystem::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    std::filesystem::remove(disk);
    GTEST_SKIP() << "no small disk can be mounted here: " << std::strerror(errno);
  }
  {
    std::ofstream(disk + "/drive").close();
    std::filesystem::resize_file(disk + "/drive", 64 * 4096);
    testing::file_rig drive(disk + "/drive", GetParam());
    std::uint32_t failed = 0;
    for (std::uint64_t page = 0; page < 64; ++page) {
      std::uint16_t const status = drive.run(nvme::io_opcode::write, page);
      EXPECT_TRUE(status == 0 || status == full) << status;
      failed += status != 0;
    }
    EXPECT_GE(failed, 48u);
    EXPECT_LT(failed, 64u);
    // A mapping takes a write that has no room, and loses it.
    EXPECT_EQ(drive.run(nvme::io_opcode::flush, 0), mapped ? write_fault : 0);
  }
  ::umount(disk.c_str());
  std::filesystem::remove(disk);
}

TEST_P(file_drive_test, a_file_that_was_cut_does_not_grow_again_unseen) {
  using nvme::io_opcode;
  for (std::uint64_t const page : {50, 63}) {  // the last one gives the file its length again
    make(64 * 4096);
    testing::file_rig drive(path, GetParam());
    EXPECT_EQ(drive.run(io_opcode::write, 40), 0);
    std::filesystem::resize_file(path, 32 * 4096);
    (void)drive.run(io_opcode::write, page);
    EXPECT_EQ(drive.run(io_opcode::read, 40), read_error) << page;
    EXPECT_EQ(drive.run(io_opcode::flush, 0), write_fault) << page;
    EXPECT_EQ(drive.run(io_opcode::read, 10), 0) << page;
  }
}

TEST_P(file_drive_test, what_was_written_is_in_the_file_when_the_drive_is_closed) {
  make(64 * 4096);
  {
    testing::file_rig drive(path, GetParam());
    std::memset(drive.data(), 9, 4096);
    EXPECT_EQ(drive.run(nvme::io_opcode::write, 5), 0);
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(64 * 4096);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(std::count(bytes.begin() + 5 * 4096, bytes.begin() + 6 * 4096, 9), 4096);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0), 63 * 4096);
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
