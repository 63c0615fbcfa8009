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
#include <thread>
#include <utility>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"
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

TEST_F(file_drive, that_is_written_may_have_any_length_and_keeps_it) {
  for (std::uint64_t const block : {std::uint64_t{512}, std::uint64_t{4096}}) {
    for (std::uint64_t const length : {std::uint64_t{1}, block - 1, block + 1, std::uint64_t{4095}, 3 * block + 7}) {
      SCOPED_TRACE(std::to_string(length) + " bytes in blocks of " + std::to_string(block));
      write(std::string(length, '-'));
      std::string const text = text_of(length);
      std::uint64_t const rounded = (length + block - 1) / block * block;
      {
        storage drives({.drives = {"file:" + path + ",lba_bytes=" + std::to_string(block)}, .device = "cpu"});
        EXPECT_EQ(drives.size_bytes(), rounded);
        EXPECT_EQ(nlohmann::json::parse(drives.report())["drives"][0]["file_bytes"], length);
        // In two pieces, which meet within a block.
        drives.pwrite(text.data(), length / 2, 0);
        drives.pwrite(text.data() + length / 2, length - length / 2, length / 2);
        std::string all(rounded, '?');
        drives.pread(all.data(), all.size(), 0);
        EXPECT_EQ(all, text + std::string(rounded - length, '\0'));
        drives.flush();
        if (rounded != length) {
          EXPECT_THROW(drives.pwrite("x", 1, length), operation_failed);
          EXPECT_THROW(drives.pwrite("x", 1, rounded - 1), operation_failed);
          EXPECT_NO_THROW(drives.pwrite("", 1, rounded - 1)) << "zero";
        }
        drives.flush();
      }
      EXPECT_EQ(contents(), text);
    }
  }
}

TEST_F(file_drive, is_served_by_threads_that_wait_unless_it_has_times_to_keep) {
  auto const served_by = [this](std::string const& keys, bool waiters_serve) {
    std::string const uri = "emulated:backing=file,path=" + path + keys;
    return drive::open(uri, {.waiters_serve = waiters_serve})->report()["served_by"];
  };
  write(std::string(1 << 16, '-'));
  EXPECT_EQ(served_by(",io=mmap", true), "service units");
  if (std::string const refused = refusal("file:" + path + ",io=uring"); refused != "accepted") {
    GTEST_SKIP() << refused;
  }
  EXPECT_EQ(served_by(",io=uring", true), "waiting threads");
  EXPECT_EQ(served_by(",io=uring", false), "service units");
  EXPECT_EQ(served_by(",io=uring,latency_us=10", true), "service units");
  EXPECT_EQ(served_by(",io=uring,iops=1000000", true), "service units");
}

TEST_F(file_drive, serves_many_threads_that_wait_for_it) {
  constexpr std::size_t piece_bytes = 3000, pieces = 40;
  write(std::string(4 * piece_bytes * pieces, '-'));
  if (std::string const refused = refusal("file:" + path + ",io=uring"); refused != "accepted") {
    GTEST_SKIP() << refused;
  }
  storage drives({.drives = {"file:" + path + ",io=uring,threads=2"}, .device = "cpu"});
  EXPECT_EQ(nlohmann::json::parse(drives.report())["drives"][0]["served_by"], "waiting threads");
  std::vector<std::jthread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&drives, t] {
      for (std::size_t i = 0; i < pieces; ++i) {
        std::uint64_t const at = (t * pieces + i) * piece_bytes;
        std::string const text(piece_bytes, static_cast<char>('a' + (t * pieces + i) % 26));
        drives.pwrite(text.data(), text.size(), at);
        if (i % 8 == 0) drives.flush();
        std::string found(piece_bytes, '?');
        drives.pread(found.data(), found.size(), at);
        ASSERT_EQ(found, text);
      }
    });
  }
}

TEST_F(file_drive, that_is_empty_is_refused) {
  write("");
  for (bool const read_only : {false, true}) {
    EXPECT_EQ(refusal("file:" + path, read_only),
              "path: '" + path +
                  "': the file is empty; remove it, and make it with create=1 and size= in a file: URI, or with "
                  "`forebay drive create` of the Python package");
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

/// The first and the last word of each array.
struct take_ends {
  using words = decltype(std::declval<storage>().drive_arrays<simt::fiber, std::uint64_t const>());
  words values;
  std::uint64_t* out;

  void operator()() const {
    for (std::uint32_t d = simt::fiber::thread_rank(); d < values.size(); d += simt::fiber::thread_count()) {
      simt::fiber::st(out + 2 * d, static_cast<std::uint64_t>(values[d][0]));
      simt::fiber::st(out + 2 * d + 1, static_cast<std::uint64_t>(values[d][values[d].size() - 1]));
    }
  }
};

TEST_F(file_drive, is_an_array_beside_others_as_long_as_the_shortest_of_them) {
  // The shortest has 192 KiB, and more that is no multiple of 64 KiB.
  std::uint64_t const sizes[] = {(300 << 10) + 8, 200'001, 1 << 20};
  std::vector<std::string> uris, paths;
  for (std::uint64_t const size : sizes) {
    paths.push_back((folder / std::to_string(size)).string());
    uris.push_back("file:" + paths.back());
    std::vector<std::uint64_t> words(size / 8 + 1);
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = size * 1000 + i;
    std::ofstream(paths.back(), std::ios::binary)
        .write(reinterpret_cast<char const*>(words.data()), static_cast<std::streamsize>(size));
  }
  storage drives({.drives = uris, .device = "cpu", .stripe_bytes = 0, .cache = {.size_bytes = 1 << 20}});
  auto const values = drives.drive_arrays<simt::fiber, std::uint64_t const>();
  ASSERT_EQ(values.size(), 3u);
  std::uint64_t const last = (192 << 10) / 8 - 1;
  EXPECT_EQ(values[0].size(), last + 1);
  std::uint64_t ends[6] = {};
  simt::launch<simt::fiber>({.blocks = 1, .threads_per_block = 4}, take_ends{values, ends});
  for (int d = 0; d < 3; ++d) {
    EXPECT_EQ(ends[2 * d], sizes[d] * 1000);
    EXPECT_EQ(ends[2 * d + 1], sizes[d] * 1000 + last);
  }
}

class growing_file_drive : public file_drive {
 protected:
  static std::string refusal_to_grow(std::string const& uri) {
    try {
      drive::grow(uri);
    } catch (refused_input const& refused) {
      return refused.what();
    }
    return "accepted";
  }
  void make(std::uint64_t bytes) {
    write("");
    fs::resize_file(path, bytes);
  }
};

TEST_F(growing_file_drive, keeps_its_bytes_and_its_extents_and_has_room_for_more) {
  std::string const uri = "file:" + path;
  drive::create(uri + ",size=4M");
  std::string const text = text_of(3 << 20), more = text_of(11 << 20);
  {
    storage drives({.drives = {uri}, .device = "cpu"});
    extent const edges = drives.create_extent("edges", text.size());
    drives.pwrite(text.data(), text.size(), 0, &edges);
    EXPECT_THROW(drives.create_extent("more", more.size()), refused_input);
  }
  drive::grow(uri + ",size=16M");
  EXPECT_EQ(fs::file_size(path), 16u << 20);
  {
    storage drives({.drives = {uri}, .device = "cpu"});
    EXPECT_EQ(drives.size_bytes(), 16u << 20);
    extent const edges = drives.find_extent("edges");
    std::string back(text.size(), '?');
    drives.pread(back.data(), back.size(), 0, &edges);
    EXPECT_EQ(back, text);
    extent const made = drives.create_extent("more", more.size());
    EXPECT_EQ(made.first_byte, 4u << 20);
    back.assign(more.size(), '?');
    drives.pread(back.data(), back.size(), 0, &made);
    EXPECT_EQ(back, std::string(more.size(), '\0'));
    drives.pwrite(more.data(), more.size(), 0, &made);
    drives.pread(back.data(), back.size(), 0, &made);
    EXPECT_EQ(back, more);
  }
  EXPECT_EQ(contents().substr(4 << 20, more.size()), more);
}

TEST_F(growing_file_drive, that_ended_within_a_block_has_zeros_from_there_on) {
  write(text_of(700));
  EXPECT_EQ(refusal_to_grow("file:" + path + ",size=512"),
            "size: '512': " + path + " has 700 bytes, and no drive is made shorter; give at least as many");
  drive::grow("file:" + path + ",size=4096");
  EXPECT_EQ(contents(), text_of(700) + std::string(4096 - 700, '\0'));
  drive::grow("file:" + path + ",size=4096");
  EXPECT_EQ(fs::file_size(path), 4096u) << "nothing is left to do";
}

TEST_F(growing_file_drive, is_refused_where_it_cannot_be_meant) {
  std::string const uri = "file:" + path;
  EXPECT_NE(refusal_to_grow(uri + ",size=1M").find("no such file"), std::string::npos);
  EXPECT_FALSE(fs::exists(path));
  make(8192);
  EXPECT_EQ(refusal_to_grow(uri), "size: '': give the size of the file to make, as in size=1G");
  EXPECT_EQ(refusal_to_grow(uri + ",size=8193"), "size: '8193': give a multiple of lba_bytes, which is 512");
  EXPECT_EQ(refusal_to_grow(uri + ",size=1M,create=1"),
            "create: '1': a file that grows exists already; leave create out");
  EXPECT_NE(refusal_to_grow("emulated:size=1M").find("backing=file"), std::string::npos);
  EXPECT_NE(refusal_to_grow("file:/dev/null,size=1M").find("is a character device"), std::string::npos);
  for (bool const read_only : {false, true}) {
    auto const open = drive::open(uri, {.read_only = read_only});
    EXPECT_EQ(refusal_to_grow(uri + ",size=1M"),
              "path: '" + path + "': another drive has the file open; close that one first");
  }
  EXPECT_EQ(fs::file_size(path), 8192u);
}

TEST_F(growing_file_drive, of_a_stripe_gives_room_once_all_have_grown) {
  std::string const other = (folder / "other.img").string();
  std::vector<std::string> const uris = {"file:" + path, "file:" + other};
  std::string const text = text_of(2 << 20);
  for (std::string const& uri : uris) drive::create(uri + ",size=2M");
  {
    storage drives({.drives = uris, .device = "cpu"});
    extent const edges = drives.create_extent("edges", text.size());
    drives.pwrite(text.data(), text.size(), 0, &edges);
  }
  for (std::uint64_t const expected : {4u << 20, 16u << 20}) {
    drive::grow(uris[expected == 4u << 20 ? 0 : 1] + ",size=8M");
    storage drives({.drives = uris, .device = "cpu"});
    EXPECT_EQ(drives.size_bytes(), expected);
    extent const edges = drives.find_extent("edges");
    std::string back(text.size(), '?');
    drives.pread(back.data(), back.size(), 0, &edges);
    EXPECT_EQ(back, text);
  }
}

TEST_F(growing_file_drive, of_drives_one_after_the_other_is_opened_as_stripes_of_their_former_size) {
  std::string const other = (folder / "other.img").string();
  std::vector<std::string> const uris = {"file:" + path, "file:" + other};
  std::string const text = text_of(3 << 20);  // on both
  for (std::string const& uri : uris) drive::create(uri + ",size=3M");
  {
    storage drives({.drives = uris, .device = "cpu", .stripe_bytes = 0});
    extent const edges = drives.create_extent("edges", text.size());
    drives.pwrite(text.data(), text.size(), 0, &edges);
  }
  for (std::string const& uri : uris) drive::grow(uri + ",size=6M");
  try {
    storage const drives({.drives = uris, .device = "cpu", .stripe_bytes = 0});
    FAIL() << "everything would lie elsewhere";
  } catch (operation_failed const& failed) {
    EXPECT_NE(std::string(failed.what()).find("made on 2 drives with stripes of 3145728 bytes"), std::string::npos)
        << failed.what();
  }
  storage drives({.drives = uris, .device = "cpu", .stripe_bytes = 3 << 20});
  EXPECT_EQ(drives.size_bytes(), 12u << 20);
  extent const edges = drives.find_extent("edges");
  std::string back(text.size(), '?');
  drives.pread(back.data(), back.size(), 0, &edges);
  EXPECT_EQ(back, text);
  EXPECT_EQ(drives.create_extent("more", 8 << 20).first_byte, 4u << 20);
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
