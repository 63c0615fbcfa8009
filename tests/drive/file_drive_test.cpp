// SPDX-License-Identifier: Apache-2.0
//! \file
//! `file:` drives: files of any length that are only read, and files that are made.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"

namespace forebay {
namespace {

namespace fs = std::filesystem;

/// What this process has called fsync for, as long as it is not null.
std::vector<fs::path>* synced = nullptr;
/// If not 0, fsync fails with it.
int sync_error = 0;

/// In a folder of its own.
class file_drive : public ::testing::Test {
 protected:
  fs::path folder = fs::canonical(::testing::TempDir()) /
                    ("forebay-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
                     std::to_string(::getpid()));
  std::string path = (folder / "drive.img").string();

  file_drive() { fs::create_directories(folder); }
  ~file_drive() override { fs::remove_all(folder); }

  static std::string text_of(std::size_t bytes) {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i % 26);
    return text;
  }
  void write(std::string const& text) { std::ofstream(path, std::ios::binary) << text; }
  std::string contents() {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool is_empty() const { return fs::is_empty(folder); }

  static std::string refusal(std::string const& uri, bool read_only = false) {
    try {
      drive::open(uri, {.read_only = read_only});
    } catch (refused_input const& refused) {
      return refused.what();
    }
    return "accepted";
  }
  /// All of the drive, through a storage that only reads.
  static std::string read_all(std::string const& uri) {
    storage drives({.drives = {uri}, .device = "cpu", .read_only = true});
    std::string all(drives.size_bytes(), '?');
    drives.pread(all.data(), all.size(), 0);
    return all;
  }
};

TEST_F(file_drive, that_is_only_read_may_have_any_length) {
  for (std::uint64_t const block : {std::uint64_t{512}, std::uint64_t{4096}}) {
    for (std::uint64_t const length : {std::uint64_t{1}, block - 1, block, block + 1, 3 * block + 7,
                                       std::uint64_t{4095}, std::uint64_t{4097}, std::uint64_t{3 << 20} + 511}) {
      std::string const text = text_of(length);
      write(text);
      std::uint64_t const rounded = (length + block - 1) / block * block;
      std::string const uri = "file:" + path + ",lba_bytes=" + std::to_string(block);
      EXPECT_EQ(drive::open(uri, {.read_only = true})->report()["size_bytes"], rounded);
      std::string const all = read_all(uri);
      ASSERT_EQ(all.size(), rounded);
      EXPECT_TRUE(all.compare(0, length, text) == 0) << length << " bytes in blocks of " << block;
      EXPECT_EQ(std::count(all.begin() + static_cast<std::ptrdiff_t>(length), all.end(), '\0'),
                static_cast<std::ptrdiff_t>(rounded - length))
          << length << " bytes in blocks of " << block;
      EXPECT_EQ(refusal(uri + ",size=" + std::to_string(rounded), true), "accepted");
      EXPECT_EQ(contents(), text) << "the file stays as it is";
    }
  }
}

TEST_F(file_drive, what_lay_behind_the_end_of_a_file_before_is_not_read) {
  write(text_of(4096));
  fs::resize_file(path, 513);
  EXPECT_EQ(read_all("file:" + path), text_of(513) + std::string(511, '\0'));
}

TEST_F(file_drive, that_ends_within_a_block_is_refused_where_it_may_be_written) {
  for (std::uint64_t const length : {1, 511, 513, 4097}) {
    write(text_of(length));
    EXPECT_EQ(refusal("file:" + path), "path: '" + path + "': its size, " + std::to_string(length) +
                                           " bytes, must be a multiple of lba_bytes=512 and not 0; if it need not be "
                                           "written, open the storage read-only and unserved");
    EXPECT_EQ(contents(), text_of(length));
  }
}

TEST_F(file_drive, that_is_empty_is_refused) {
  write("");
  for (bool const read_only : {false, true}) {
    EXPECT_EQ(refusal("file:" + path, read_only),
              "path: '" + path + "': its size, 0 bytes, must be a multiple of lba_bytes=512 and not 0");
  }
}

TEST_F(file_drive, of_another_size_than_its_uri_says_is_refused_when_it_is_read_too) {
  write(text_of(513));
  EXPECT_EQ(refusal("file:" + path + ",size=512", true),
            "size: '512': the file has 513 bytes; leave size out to take that");
}

TEST_F(file_drive, is_made_written_and_opened_again) {
  std::string const text = text_of(512);
  {
    storage made({.drives = {"file:" + path + ",create=1,size=1M"}, .device = "cpu"});
    EXPECT_EQ(made.size_bytes(), 1u << 20);
    std::string zeros(512, '?');
    made.pread(zeros.data(), zeros.size(), 4096);
    EXPECT_EQ(zeros, std::string(512, '\0'));
    made.pwrite(text.data(), text.size(), 512);
  }
  EXPECT_EQ(fs::file_size(path), 1u << 20);
  EXPECT_EQ(contents().substr(512, 512), text);
  EXPECT_EQ(refusal("file:" + path), "accepted");
}

TEST_F(file_drive, that_exists_is_not_made) {
  write(text_of(1024));
  EXPECT_EQ(refusal("file:" + path + ",create=1,size=1M"), "path: '" + path + "': the file exists; remove it first");
  EXPECT_EQ(contents(), text_of(1024));
}

TEST_F(file_drive, is_not_made_where_the_uri_or_the_options_cannot_be_meant) {
  std::string const uri = "file:" + path + ",create=1";
  EXPECT_EQ(refusal(uri), "size: '': give the size of the file to make, as in size=1G");
  EXPECT_EQ(refusal(uri + ",size=1000"), "size: '1000': give a multiple of lba_bytes, which is 512");
  EXPECT_NE(refusal(uri + ",size=1M,threads=0").find("threads"), std::string::npos);
  EXPECT_EQ(refusal("file:" + path + ",create=0,size=1M"),
            "create: '0': use create=1, or leave it out to open a file that exists");
  EXPECT_EQ(refusal(uri + ",size=1M", true),
            "create: '1': a storage that is opened to read only cannot make a file; open it for writing");
  EXPECT_EQ(refusal("emulated:backing=file,path=" + path + ",create=1,size=1M").substr(0, 7), "create:");
  EXPECT_TRUE(is_empty());
}

TEST_F(file_drive, is_not_made_in_a_folder_that_is_not_there_or_may_not_be_written) {
  EXPECT_EQ(refusal("file:" + path + "/x,create=1,size=1M"),
            "path: '" + path + "/x': No such file or directory; give a path in a folder that you may write");
  if (geteuid() == 0) return;  // root may write everywhere
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(refusal("file:" + path + ",create=1,size=1M"),
            "path: '" + path + "': Permission denied; give a path in a folder that you may write");
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_TRUE(is_empty());
}

TEST_F(file_drive, that_its_disk_has_no_room_for_leaves_nothing_behind) {
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "no small disk can be mounted here: " << std::strerror(errno);
  }
  EXPECT_EQ(refusal("file:" + path + ",create=1,size=1M"),
            "size: '1048576': cannot make " + path + ": No space left on device; make room, or give less");
  EXPECT_TRUE(is_empty());
  EXPECT_EQ(refusal("file:" + path + ",create=1,size=32K"), "accepted") << "what was reserved is free again";
  ::umount(folder.c_str());
}

TEST_F(file_drive, that_may_not_be_so_large_leaves_nothing_behind) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 64 << 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(drive::open("file:" + path + ",create=1,size=1M"), operation_failed);
  EXPECT_THROW(drive::create("file:" + path + ",size=1M"), operation_failed);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(is_empty());
}

TEST_F(file_drive, that_is_made_is_there_after_a_loss_of_power) {
  std::vector<fs::path> all;
  synced = &all;
  for (bool const opened : {false, true}) {
    if (opened) {
      drive::open("file:" + path + ",create=1,size=1M");
    } else {
      drive::create("file:" + path + ",size=1M");
    }
    EXPECT_EQ(all, (std::vector<fs::path>{path, folder})) << "the file, and then its name";
    all.clear();
    fs::remove(path);
  }
  fs::path const before = fs::current_path();
  fs::current_path(folder);
  drive::create("file:drive.img,size=1M");
  fs::current_path(before);
  EXPECT_EQ(all, (std::vector<fs::path>{path, folder}));
  synced = nullptr;
}

TEST_F(file_drive, that_does_not_reach_its_disk_leaves_nothing_behind) {
  sync_error = EIO;
  EXPECT_THROW(drive::create("file:" + path + ",size=1M"), operation_failed);
  EXPECT_THROW(drive::open("file:" + path + ",create=1,size=1M"), operation_failed);
  sync_error = 0;
  EXPECT_TRUE(is_empty());
}

/// The memory of a machine that has none left.
class no_memory final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::kind::host; }
  void* allocate(std::size_t, std::size_t) override { throw operation_failed("there is no memory left"); }
  void deallocate(void*) noexcept override {}
  void copy_in(void*, void const*, std::size_t) override {}
  void copy_out(void*, void const*, std::size_t) override {}
};

TEST_F(file_drive, that_cannot_be_opened_once_it_is_made_leaves_nothing_behind) {
  no_memory none;
  EXPECT_THROW(drive::open("file:" + path + ",create=1,size=1M", {.client_memory = &none}), operation_failed);
  EXPECT_TRUE(is_empty());
  // It must not remove a file that was there before.
  write(text_of(1024));
  EXPECT_THROW(drive::open("file:" + path, {.client_memory = &none}), operation_failed);
  EXPECT_EQ(contents(), text_of(1024));
}

}  // namespace
}  // namespace forebay

/// Takes the place of the C library's.
extern "C" int fsync(int fd) {
  if (forebay::synced != nullptr) {
    forebay::synced->push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)));
  }
  if (forebay::sync_error != 0) {
    errno = forebay::sync_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
