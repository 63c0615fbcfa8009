// SPDX-License-Identifier: Apache-2.0
#include "emulator/opened_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "forebay/error.hpp"
#include "support/hand_host.hpp"
#include "support/loop_device.hpp"

namespace forebay::emulator {
namespace {

namespace fs = std::filesystem;

class opened : public ::testing::Test {
 protected:
  fs::path folder = fs::path(::testing::TempDir()) /
                    ("forebay-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "-" +
                     std::to_string(::getpid()));
  std::string path = (folder / "drive.img").string();

  opened() { fs::create_directories(folder); }
  ~opened() override {
    std::error_code error;  // a test that failed may have left something mounted there
    fs::remove_all(folder, error);
  }

  void make(std::uint64_t bytes) {
    std::ofstream(path).close();
    fs::resize_file(path, bytes);
  }
  static std::string refusal(file_request const& request) {
    try {
      opened_file const file(request);
    } catch (refused_input const& refused) {
      return refused.what();
    }
    return "opened";
  }
  /// How both ways to open it are refused.
  void refuses(std::string const& why) {
    for (bool const read_only : {false, true}) {
      EXPECT_NE(refusal({.path = path, .read_only = read_only}).find("path: '" + path + "': " + why), std::string::npos)
          << refusal({.path = path, .read_only = read_only});
    }
  }
};

using opened_file_test = opened;

TEST_F(opened_file_test, knows_an_ordinary_file) {
  make(8192);
  opened_file const file({.path = path});
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(file.file_bytes(), 8192u);
  EXPECT_EQ(file.drive_bytes(), 8192u);
  EXPECT_FALSE(file.is_block_device());
  EXPECT_FALSE(file.read_only());
  EXPECT_EQ(::pwrite(file.fd(), "x", 1, 0), 1);
  EXPECT_EQ(::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST_F(opened_file_test, that_is_only_read_cannot_be_written) {
  make(8192);
  opened_file const file({.path = path, .read_only = true});
  EXPECT_TRUE(file.read_only());
  EXPECT_EQ(::pwrite(file.fd(), "x", 1, 0), -1);
}

TEST_F(opened_file_test, knows_the_alignment_of_direct_io) {
  make(1 << 20);
  opened_file const file({.path = path});
  direct_alignment const direct = file.direct();
  EXPECT_EQ(direct.memory_bytes == 0, direct.offset_bytes == 0);
  if (direct.offset_bytes == 0) GTEST_SKIP() << "the file system of " << path << " does not tell";
  ASSERT_EQ(::fcntl(file.fd(), F_SETFL, ::fcntl(file.fd(), F_GETFL) | O_DIRECT), 0);
  std::size_t const alignment = std::max<std::size_t>(direct.memory_bytes, 8);
  auto* const memory =
      static_cast<char*>(std::aligned_alloc(alignment, (direct.offset_bytes + alignment - 1) / alignment * alignment));
  EXPECT_EQ(::pread(file.fd(), memory, direct.offset_bytes, direct.offset_bytes), direct.offset_bytes);
  std::free(memory);
}

TEST_F(opened_file_test, may_end_within_a_block) {
  make(1000);
  for (bool const read_only : {false, true}) {
    opened_file const file({.path = path, .drive_bytes = 1024, .read_only = read_only});
    EXPECT_EQ(file.file_bytes(), 1000u);
    EXPECT_EQ(file.drive_bytes(), 1024u);
  }
  EXPECT_EQ(refusal({.path = path, .drive_bytes = 1000}),
            "size: '1000': the file has 1000 bytes; leave size out to take that");
}

TEST_F(opened_file_test, moves_its_descriptor_along) {
  make(8192);
  opened_file first({.path = path});
  int const fd = first.fd();
  {
    opened_file const second(std::move(first));
    EXPECT_EQ(second.fd(), fd);
    EXPECT_EQ(second.drive_bytes(), 8192u);
    EXPECT_NE(refusal({.path = path}), "opened");
  }
  EXPECT_EQ(refusal({.path = path}), "opened");
}

TEST_F(opened_file_test, refuses_what_holds_no_bytes) {
  refuses("no such file; make it with create=1");
  fs::create_directory(path);
  refuses("is a directory; give the path of an ordinary file or of a block device");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  refuses("is a FIFO; ");
  fs::remove(path);
  fs::create_symlink("/dev/null", path);
  refuses("is a character device; ");
  fs::remove(path);
  fs::create_symlink(path, path);
  refuses("Too many levels of symbolic links; ");
  fs::remove(path);
  make(0);
  refuses("the file is empty; ");
}

TEST_F(opened_file_test, refuses_a_socket) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  ASSERT_LT(path.size(), sizeof address.sun_path) << path;
  std::strcpy(address.sun_path, path.c_str());
  int const socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr const*>(&address), sizeof address), 0);
  refuses("is a socket; ");
  ::close(socket);
}

TEST_F(opened_file_test, refuses_what_the_permissions_forbid) {
  make(4096);
  fs::permissions(folder, fs::perms::all);
  fs::permissions(path, fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  // Root may do what permissions forbid.
  bool const root = ::geteuid() == 0;
  auto const become = [&](uid_t user) { EXPECT_EQ(root ? ::seteuid(user) : 0, 0); };
  become(65534);
  EXPECT_EQ(refusal({.path = path}), "path: '" + path +
                                         "': Permission denied; give a file that may be written, or, if it need not "
                                         "be, open the storage read-only and unserved");
  EXPECT_EQ(refusal({.path = path, .read_only = true}), "opened");
  become(0);
  fs::permissions(path, fs::perms::none);
  become(65534);
  EXPECT_EQ(refusal({.path = path, .read_only = true}),
            "path: '" + path + "': Permission denied; give a file that may be read");
  become(0);
}

TEST_F(opened_file_test, is_one_writers_or_any_number_of_readers) {
  make(4096);
  std::string const taken = "path: '" + path + "': another drive has the file open; close that one first";
  {
    opened_file const writer({.path = path});
    EXPECT_EQ(refusal({.path = path}), taken);
    EXPECT_EQ(refusal({.path = path, .read_only = true}), taken);
  }
  opened_file const reader({.path = path, .read_only = true});
  EXPECT_EQ(refusal({.path = path, .read_only = true}), "opened");
  EXPECT_EQ(refusal({.path = path}), taken);
}

TEST_F(opened_file_test, allows_to_destroy_only_block_devices) {
  make(4096);
  for (bool const read_only : {false, true}) {
    EXPECT_EQ(refusal({.path = path, .read_only = read_only, .allow_destroy = path}),
              "allow_destroy: '" + path + "': is only for a block device; leave it out");
  }
}

/// A block device of 16 MiB of zeros.
class opened_device_test : public opened {
 protected:
  std::unique_ptr<test::loop_device> device;

  void SetUp() override { attach(); }
  /// Skips the test where there can be no device.
  void attach(std::uint32_t block_bytes = 512, bool read_only = false) {
    device = nullptr;
    std::string const file = (folder / "disk").string();
    if (!fs::exists(file)) std::ofstream(file).close();
    if (fs::file_size(file) == 0) fs::resize_file(file, 16 << 20);
    device = std::make_unique<test::loop_device>(file, block_bytes, read_only);
    if (device->path().empty()) GTEST_SKIP() << device->why_not();
    path = device->path();
  }
  bool run(std::string const& command) const {
    return std::system((command + " " + path + " >/dev/null 2>&1").c_str()) == 0;
  }
};

TEST_F(opened_device_test, knows_a_block_device) {
  opened_file const file({.path = path});
  EXPECT_TRUE(file.is_block_device());
  EXPECT_EQ(file.file_bytes(), 16u << 20);
  EXPECT_EQ(file.drive_bytes(), 16u << 20);
  EXPECT_EQ(file.direct().offset_bytes, 512u);
  EXPECT_NE(file.direct().memory_bytes, 0u);
}

TEST_F(opened_device_test, refuses_blocks_that_are_no_multiple_of_the_devices) {
  attach(4096);
  for (bool const read_only : {false, true}) {
    EXPECT_EQ(refusal({.path = path, .block_bytes = 1024, .read_only = read_only}),
              "lba_bytes: '1024': a block of the device has 4096 bytes; give lba_bytes=4096");
  }
  opened_file const file({.path = path, .block_bytes = 4096});
  EXPECT_EQ(file.direct().offset_bytes, 4096u);
}

TEST_F(opened_device_test, has_a_device_that_it_writes_for_itself) {
  if (!run("mkfs.ext4 -q -F")) GTEST_SKIP() << "there is no such program here";
  // What is mounted goes with this process, however it ends.
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "there can be no mount of this process alone: " << std::strerror(errno);
  }
  std::string const place = (folder / "mounted").string();
  fs::create_directory(place);
  {
    opened_file const file({.path = path, .allow_destroy = path});
    EXPECT_EQ(::mount(path.c_str(), place.c_str(), "ext4", 0, nullptr), -1);
    EXPECT_EQ(errno, EBUSY);
    EXPECT_NE(refusal({.path = path, .allow_destroy = path}).find("another program, perhaps another drive, has"),
              std::string::npos);
    EXPECT_NE(refusal({.path = path, .read_only = true}).find("another drive has the device open"), std::string::npos);
  }
  ASSERT_EQ(::mount(path.c_str(), place.c_str(), "ext4", 0, nullptr), 0) << std::strerror(errno);
  EXPECT_EQ(refusal({.path = path, .allow_destroy = path}),
            "path: '" + path + "': it is mounted at " + place +
                "; end that first, or, if it need not be written, open the storage read-only and unserved");
  EXPECT_EQ(refusal({.path = path, .read_only = true}), "opened");
  ASSERT_EQ(::umount(place.c_str()), 0);
}

TEST_F(opened_device_test, waits_while_udev_looks_at_the_device) {
  auto const times_open = [this] {
    std::error_code error;
    return std::count_if(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator(),
                         [&](fs::path const& fd) { return fs::read_symlink(fd, error) == path; });
  };
  // As udev does it: a lock, and no exclusive use.
  int const udev = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(udev, LOCK_SH), 0);
  auto const before = times_open();
  auto opening = std::async(std::launch::async, [this] { return refusal({.path = path}); });
  EXPECT_TRUE(test::eventually([&] { return times_open() > before; }));
  ::close(udev);
  EXPECT_EQ(opening.get(), "opened");
}

TEST_F(opened_device_test, refuses_to_write_over_what_is_on_it) {
  if (!run("mkswap")) GTEST_SKIP() << "there is no such program here";
  EXPECT_EQ(refusal({.path = path}),
            "path: '" + path +
                "': there is data on the device (swap), which a drive would overwrite; to "
                "allow that, add allow_destroy=" +
                path + " to the URI, or, if it need not be written, open the storage read-only and unserved");
  EXPECT_EQ(refusal({.path = path, .read_only = true}), "opened");
  EXPECT_EQ(refusal({.path = path, .allow_destroy = path}), "opened");
  EXPECT_NE(refusal({.path = path}), "opened") << "nothing was written yet";
  for (std::string const& other : {std::string("1"), path + "0", std::string("/dev/null")}) {
    EXPECT_EQ(refusal({.path = path, .allow_destroy = other}),
              "allow_destroy: '" + other + "': does not name the device that is opened; give its path, '" + path +
                  "', its name in /dev/disk/by-id, its WWN or its serial number");
  }
}

TEST_F(opened_device_test, refuses_to_write_a_protected_device) {
  attach(512, true);
  EXPECT_EQ(refusal({.path = path}), "path: '" + path +
                                         "': the device is write protected; give a file that may be written, or, if "
                                         "it need not be, open the storage read-only and unserved");
  EXPECT_EQ(refusal({.path = path, .read_only = true}), "opened");
}

TEST_F(opened_device_test, refuses_a_device_without_a_medium) {
  device = nullptr;
  refuses("the device has no medium; ");
}

}  // namespace
}  // namespace forebay::emulator
