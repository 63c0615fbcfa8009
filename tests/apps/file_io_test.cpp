// SPDX-License-Identifier: Apache-2.0
#include "apps/file_io/file_io.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/pattern.hpp"
#include "apps/file_io/blocks.hpp"
#include "apps/file_io/cufile_engine.hpp"
#include "apps/file_io/engine.hpp"
#include "apps/file_io/file.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"
#include "scratch_file.hpp"

namespace forebay::file_io {
namespace {

constexpr std::uint64_t file_bytes = 2 << 20;
#ifdef __SANITIZE_THREAD__
constexpr bool with_thread_sanitizer = true;
#else
constexpr bool with_thread_sanitizer = false;
#endif

class file_io_test : public ::testing::Test {
 protected:
  void change_byte(std::uint64_t at) const {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    auto const before = static_cast<char>(stream.get());
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(before ^ 1));
  }

  /// The field that is refused, and "nothing" where none is.
  std::string refused(options const& wanted) const {
    try {
      run(wanted);
    } catch (refused_input const& why) {
      return why.field();
    }
    return "nothing";
  }

  testing::scratch_file const scratch{file_bytes};
  std::filesystem::path const path = scratch.path();
};

class file_io_engines : public file_io_test, public ::testing::WithParamInterface<char const*> {
 protected:
  options of(block_io::options const& job) const { return {.path = path, .engine = GetParam(), .job = job}; }
};

TEST_P(file_io_engines, every_mix_verifies_at_every_depth) {
  for (std::uint32_t read_percent : {100u, 0u, 60u}) {
    for (bool random : {true, false}) {
      // Threads that write a block of a mapping together are a race, as they are one on a drive. ThreadSanitizer sees
      // it.
      if (with_thread_sanitizer && random && read_percent < 100 && std::string(GetParam()) == "mmap") continue;
      for (std::uint32_t depth : {1u, 7u, 32u}) {
        SCOPED_TRACE(std::to_string(read_percent) + (random ? " random " : " sequential ") + std::to_string(depth));
        auto const r = run(of({.random = random,
                               .read_percent = read_percent,
                               .block_bytes = 4096,
                               .iodepth = depth,
                               .seed = read_percent + depth,
                               .verify = true}));
        EXPECT_EQ(r.job.read.completion.summary.count + r.job.write.completion.summary.count, 512u);
        EXPECT_EQ(r.job.errors, 0u) << r.first_error;
        EXPECT_EQ(r.job.mismatches, 0u);
        EXPECT_GT(r.job.verified_blocks, 0u);
        EXPECT_GT(r.job.seconds, 0);
        EXPECT_EQ(r.file_bytes, file_bytes);
      }
    }
  }
}

TEST_P(file_io_engines, blocks_of_every_size_are_transferred) {
  for (std::uint64_t bytes : {4096ull, 16384ull, 65536ull, 262144ull, 1048576ull, 2097152ull}) {
    SCOPED_TRACE(bytes);
    auto const r = run(of({.random = false, .block_bytes = bytes, .iodepth = 4, .verify = true}));
    EXPECT_EQ(r.job.read.completion.summary.count, file_bytes / bytes);
    EXPECT_EQ(r.job.mismatches + r.job.errors, 0u) << r.first_error;
  }
}

TEST_P(file_io_engines, sequential_writes_put_the_pattern_into_the_file) {
  ASSERT_EQ(run(of({.random = false, .read_percent = 0, .block_bytes = 8192, .iodepth = 8, .seed = 5, .verify = true}))
                .job.errors,
            0u);
  std::ifstream stream(path, std::ios::binary);
  std::vector<std::uint64_t> words(file_bytes / 8);
  stream.read(reinterpret_cast<char*>(words.data()), file_bytes);
  for (std::uint64_t i = 0; i < words.size(); i += 97) {
    ASSERT_EQ(words[i], apps::pattern_word(5, apps::generation::rewritten, i * 8)) << i;
  }
}

TEST_P(file_io_engines, verify_sees_what_another_program_changed) {
  block_io::options wanted{.random = false, .block_bytes = 4096, .iodepth = 8, .verify = true};
  ASSERT_EQ(run(of(wanted)).job.mismatches, 0u);
  change_byte(5 * 4096 + 800);
  wanted.lay_down = false;
  auto const r = run(of(wanted));
  EXPECT_EQ(r.job.mismatches, 1u);
  EXPECT_EQ(r.job.first_mismatch_byte, 5u * 4096);
}

TEST_P(file_io_engines, a_timed_run_counts_a_whole_interval) {
  auto const r = run(of({.block_bytes = 4096, .iodepth = 4, .runtime_s = 0.1, .ramp_time_s = 0.02}));
  EXPECT_DOUBLE_EQ(r.job.seconds, 0.1);
  EXPECT_GT(r.job.read.completion.summary.count, 0u);
  EXPECT_EQ(r.job.errors, 0u) << r.first_error;
}

TEST_P(file_io_engines, a_file_that_is_read_stays_as_it_is_and_may_be_read_only) {
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  auto const before = std::filesystem::last_write_time(path);
  EXPECT_EQ(run(of({.block_bytes = 4096})).job.errors, 0u);
  EXPECT_EQ(std::filesystem::last_write_time(path), before);
}

TEST_P(file_io_engines, what_cannot_be_is_refused_by_its_name) {
  EXPECT_EQ(refused(of({.block_bytes = 500})), "--bs");
  EXPECT_EQ(refused(of({.block_bytes = 4 << 20})), "--bs");
  EXPECT_EQ(refused(of({.block_bytes = 4096, .iodepth = 0})), "--iodepth");
  EXPECT_EQ(refused(of({.block_bytes = 4096, .iodepth = 1025})), "--iodepth");
  EXPECT_EQ(refused(of({.block_bytes = 4096, .size_bytes = file_bytes + 4096})), "--size");
  options elsewhere = of({.block_bytes = 4096});
  for (char const* other : {"/no/such/file", "/tmp", "/dev/null"}) {
    elsewhere.path = other;
    EXPECT_EQ(refused(elsewhere), "--filename") << other;
  }
}

TEST_P(file_io_engines, a_drive_that_has_the_file_open_locks_writers_out) {
  int const drive = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(drive, LOCK_SH), 0);
  EXPECT_EQ(refused(of({.block_bytes = 4096})), "nothing");
  EXPECT_EQ(refused(of({.read_percent = 0, .block_bytes = 4096})), "--filename");
  ::close(drive);
}

TEST_P(file_io_engines, what_is_behind_the_end_of_a_file_that_was_cut_shorter_is_an_error) {
  file const from(path, {});
  blocks const memory(1, 4096, -1);
  auto const with = find_engine(GetParam()).open(from, memory);
  auto const way = with->open_channel({0, 1}, nullptr);
  std::filesystem::resize_file(path, 4096);
  for (auto const& [at, error] : {std::pair(0u, 0), std::pair(1u << 20, EIO), std::pair(0u, 0)}) {
    way->start(0, {false, at});
    while (!way->ended(0)) {
    }
    EXPECT_EQ(way->take_error(0), error) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(all, file_io_engines, ::testing::Values("mmap", "pread", "io_uring"),
                         [](auto const& engine) { return std::string(engine.param); });

TEST_F(file_io_test, several_threads_share_the_depth_of_io_uring) {
  auto const r = run({.path = path,
                      .engine = "io_uring",
                      .job = {.block_bytes = 4096, .iodepth = 13, .gpu_threads = 4, .verify = true}});
  EXPECT_EQ(r.job.threads, 4u);
  EXPECT_EQ(r.job.errors + r.job.mismatches, 0u) << r.first_error;
  EXPECT_EQ(r.job.read.completion.summary.count, 512u);
}

TEST_F(file_io_test, an_engine_with_a_thread_for_each_command_has_as_many_as_commands) {
  auto const r = run({.path = path, .engine = "pread", .job = {.block_bytes = 4096, .iodepth = 6}});
  EXPECT_EQ(r.job.threads, 6u);
  EXPECT_EQ(refused({.path = path, .engine = "pread", .job = {.block_bytes = 4096, .iodepth = 6, .gpu_threads = 2}}),
            "--gpu-threads");
}

TEST_F(file_io_test, unknown_engines_are_refused) {
  EXPECT_EQ(refused({.path = path, .engine = "libaio"}), "--ioengine");
}

TEST_F(file_io_test, cufile_needs_a_gpu) {
  EXPECT_EQ(refused({.path = path, .engine = "cufile", .job = {.block_bytes = 4096}}), "--ioengine");
}

// ---- cuFile, on a library that has no GPU

class file_io_cufile : public file_io_test {
 protected:
  /// Named whole: under a sanitizer the loader does not look where the program says.
  std::string const library =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib/libforebay_fake_cufile.so";
  ~file_io_cufile() override { ::unsetenv("FAKE_CUFILE_FAILS"); }
};

TEST_F(file_io_cufile, moves_blocks_both_ways) {
  file const from(path, {.writable = true, .direct = true});
  blocks const memory(3, 4096, -1);
  auto const with = open_cufile_of(library, from, memory);
  EXPECT_EQ(with->cufile(), "direct");
  auto const way = with->open_channel({2, 1}, nullptr);
  auto const move = [&](bool is_write, std::uint64_t at) {
    way->start(2, {is_write, at});
    EXPECT_TRUE(way->ended(2));
    return way->take_error(2);
  };
  apps::fill_pattern<simt::native>(memory.end(2), 4096, 8192, 1, apps::generation::rewritten);
  ASSERT_EQ(move(true, 8192), 0);
  std::fill_n(memory.end(2), 4096, std::byte{0});
  ASSERT_EQ(move(false, 8192), 0);
  EXPECT_TRUE(apps::matches_pattern<simt::native>(memory.end(2), 4096, 8192, 1, apps::generation::rewritten));
  EXPECT_EQ(move(false, file_bytes), EIO);
}

TEST_F(file_io_cufile, says_so_when_it_must_go_through_host_memory) {
  file const from(path, {.direct = true});
  blocks const memory(1, 4096, -1);
  for (char const* function : {"cuFileDriverOpen", "cuFileHandleRegister", "cuFileBufRegister", "cuFileRead"}) {
    SCOPED_TRACE(function);
    ::setenv("FAKE_CUFILE_FAILS", function, 1);
    auto const with = open_cufile_of(library, from, memory);
    EXPECT_EQ(with->cufile(), "compat");
    EXPECT_NE(with->way().find(function), std::string::npos) << with->way();
    EXPECT_NE(with->way().find("5008"), std::string::npos) << with->way();
  }
}

TEST_F(file_io_cufile, a_library_that_is_not_there_is_refused) {
  file const from(path, {.direct = true});
  blocks const memory(1, 4096, -1);
  try {
    open_cufile_of("libno-such-library.so.0", from, memory);
    FAIL() << "opened";
  } catch (refused_input const& why) {
    EXPECT_EQ(why.field(), "--ioengine");
    EXPECT_NE(why.remedy().find("LD_LIBRARY_PATH"), std::string::npos) << why.remedy();
  }
}

}  // namespace
}  // namespace forebay::file_io
