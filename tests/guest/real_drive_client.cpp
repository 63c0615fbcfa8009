// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a guest does with a real drive, and with the memory that a drive could write to:
//!   real_drive_client load URI     reads without end, with many reads under way
//!   real_drive_client verify URI   writes a part of the drive, reads it back and compares; of two drives with one more
//!                                  URI
//!   real_drive_client open URI     opens it, and says what came of that; open-to-read opens it to read only
//!   real_drive_client doorbells URI  says whether the doorbells are written directly or relayed, and the quirks
//!   real_drive_client open-twice URI  opens it, and says what comes of a second storage over it
//!   real_drive_client serve URI    is a daemon that serves it, until it is killed or told to end
//!   real_drive_client write-file FILE  writes a file of 8 MiB of a pattern, in parts of several extents
//!   real_drive_client read-file URI    reads such a file past its file system, by device code, and compares
//!   real_drive_client follow-file URI  reads it again and again, until it counts as removed
//!   real_drive_client hold FILE    opens a block device so that nothing else may have it, until it is killed
//!   real_drive_client watch MS     takes all huge pages that are free, or become so, and fails if anybody writes there
#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"

namespace {

using forebay::simt::native;

forebay::storage open(std::vector<std::string> uris, bool read_only) {
  forebay::storage_options options;
  options.drives = std::move(uris);
  options.device = "cpu";
  options.read_only = read_only;
  return forebay::storage(options);
}

[[noreturn]] void load(std::string const& uri) {
  constexpr std::size_t bytes = 128 << 10, under_way = 64;
  forebay::storage drive = open({uri}, true);
  std::puts("ready");
  std::fflush(stdout);
  std::vector<std::vector<std::byte>> buffers(under_way, std::vector<std::byte>(bytes));
  std::deque<forebay::host_transfer> reads;
  std::uint64_t const places = drive.size_bytes() / bytes;
  for (std::uint64_t n = 0;; ++n) {
    if (reads.size() == under_way) {
      reads.front().wait();
      reads.pop_front();
    }
    reads.push_back(drive.pread_async(buffers[n % under_way].data(), bytes, n % places * bytes));
  }
}

int verify(std::vector<std::string> uris) {
  forebay::storage drive = open(std::move(uris), false);
  std::vector<std::uint64_t> words((8 << 20) / sizeof(std::uint64_t)), back(words.size());
  std::mt19937_64 random(7);
  for (std::uint64_t& word : words) word = random();
  std::size_t const bytes = words.size() * sizeof(std::uint64_t);
  drive.pwrite(words.data(), bytes, 0);
  drive.flush();
  drive.pread(back.data(), bytes, 0);
  if (back != words) {
    std::puts("what was read is not what was written");
    return 1;
  }
  std::puts("verified");
  return 0;
}

int say_whether_it_opens(std::string const& uri, bool read_only) {
  forebay::storage const drive = open({uri}, read_only);
  std::printf("opened: %lu bytes\n", drive.size_bytes());
  return 0;
}

int say_how_doorbells_are_written(std::string const& uri) {
  auto const report = nlohmann::json::parse(open({uri}, true).report());
  nlohmann::json const& drive = report.at("drives").at(0);
  std::puts(drive.at("doorbells").get<std::string>().c_str());
  for (nlohmann::json const& quirk : drive.at("quirks")) std::puts(quirk.get<std::string>().c_str());
  return 0;
}

int open_twice(std::string const& uri) {
  forebay::storage const first = open({uri}, true);
  return say_whether_it_opens(uri, true);
}

int serve(std::string const& uri) {
  forebay::drive::serve_options options;
  options.socket = forebay::drive::daemon_socket();
  options.drives = {uri};
  options.ready = [] {
    std::puts("serving");
    std::fflush(stdout);
  };
  options.notice = [](std::string const& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  };
  forebay::drive::serve(options);
  std::puts("ended");
  return 0;
}

// ---- files of a file system

constexpr std::uint64_t file_bytes = 8 << 20, part_bytes = 64 << 10;

std::uint64_t word_of_file(std::uint64_t seed, std::uint64_t i) {
  std::uint64_t x = seed + i * 0x9e37'79b9'7f4a'7c15;
  x = (x ^ x >> 30) * 0xbf58'476d'1ce4'e5b9;
  return x ^ x >> 27;
}

/// The first word of each part is the seed. Every other part goes to a second file first, so that the parts of neither
/// follow each other on the drive.
int write_file(std::string const& name) {
  std::uint64_t const seed = std::random_device()();
  std::string const other = name + ".other";
  int const file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int const beside = ::open(other.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  std::vector<std::uint64_t> words(part_bytes / sizeof(std::uint64_t));
  bool good = file >= 0 && beside >= 0;
  for (std::uint64_t at = 0; good && at < file_bytes; at += part_bytes) {
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = word_of_file(seed, at / sizeof(std::uint64_t) + i);
    words[0] = seed;
    for (int const to : {file, beside}) {
      good = good && ::pwrite(to, words.data(), part_bytes, static_cast<off_t>(at)) == part_bytes && ::fsync(to) == 0;
    }
  }
  ::close(file);
  ::close(beside);
  if (!good || ::unlink(other.c_str()) != 0) {
    std::perror("write-file");
    return 1;
  }
  return 0;
}

struct any_queues : forebay::uncached {
  using queue_rules = forebay::uneven_rules<>;
};

/// Reads the whole file; the status of the first read that failed.
forebay::status read_whole(forebay::storage const& file, forebay::registered_buffer const& buffer,
                           std::vector<std::uint64_t>& words) {
  auto const ref = file.ref<native, any_queues>();
  for (std::uint64_t at = 0; at < file_bytes; at += part_bytes) {
    forebay::status const read = ref.read(buffer.ref(), at, part_bytes);
    if (!read.ok()) return read;
    std::memcpy(words.data() + at / sizeof(std::uint64_t), buffer.data(), part_bytes);
  }
  return {};
}
bool is_pattern(std::vector<std::uint64_t> const& words) {
  constexpr std::uint64_t in_part = part_bytes / sizeof(std::uint64_t);
  for (std::uint64_t i = 0; i < words.size(); ++i) {
    if (words[i] != (i % in_part == 0 ? words[0] : word_of_file(words[0], i))) return false;
  }
  return true;
}

int read_file(std::string const& uri, bool follows) {
  forebay::storage file = open({uri}, true);
  auto const buffer = file.allocate_buffer(part_bytes);
  std::vector<std::uint64_t> words(file_bytes / sizeof(std::uint64_t));
  if (file.size_bytes() != file_bytes) std::printf("the file has %lu bytes\n", file.size_bytes());
  for (bool told = false;; told = true) {
    forebay::status const read = read_whole(file, buffer, words);
    if (!read.ok()) {
      std::printf("%s\n", forebay::to_string(read).c_str());
      return 1;
    }
    if (!is_pattern(words)) {
      std::puts("what was read is not what was written");
      return 1;
    }
    if (!told) std::puts(follows ? "following" : "verified");
    std::fflush(stdout);
    if (!follows) return 0;
  }
}

int hold(char const* file) {
  while (::open(file, O_RDONLY | O_EXCL) < 0) ::usleep(10'000);
  std::puts("held");
  std::fflush(stdout);
  ::pause();
  return 0;
}

int watch(std::uint64_t milliseconds) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  constexpr std::uint64_t canary = 0xc0ff'ee5e'ed12'3456;
  std::vector<std::uint64_t*> pages;
  std::uint64_t const begin_ns = native::clock_ns(), end_ns = begin_ns + milliseconds * 1'000'000;
  constexpr std::uint64_t patience_ns = 20'000'000'000;  // for the first page, which a guard may have yet
  std::uint64_t written = 0;
  do {
    for (;;) {
      void* const taken = ::mmap(nullptr, huge_page, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB | MAP_POPULATE, -1, 0);
      if (taken == MAP_FAILED) break;
      pages.push_back(static_cast<std::uint64_t*>(taken));
      std::fill_n(pages.back(), huge_page / sizeof canary, canary);
    }
    for (std::uint64_t const* const page : pages) {
      for (std::size_t i = 0; i < huge_page / sizeof canary; ++i) {
        // Volatile, because a drive may write it.
        if (static_cast<std::uint64_t const volatile*>(page)[i] != canary) ++written;
      }
    }
  } while (written == 0 && native::clock_ns() < (pages.empty() ? begin_ns + patience_ns : end_ns));
  std::printf("%zu huge pages, %lu words written\n", pages.size(), written);
  return written == 0 && !pages.empty() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  std::string const what = count >= 3 ? arguments[1] : "";
  try {
    if (what == "verify") return verify({arguments + 2, arguments + count});
    if (what == "load") load(arguments[2]);
    if (what == "open") return say_whether_it_opens(arguments[2], false);
    if (what == "open-to-read") return say_whether_it_opens(arguments[2], true);
    if (what == "doorbells") return say_how_doorbells_are_written(arguments[2]);
    if (what == "open-twice") return open_twice(arguments[2]);
    if (what == "serve") return serve(arguments[2]);
    if (what == "write-file") return write_file(arguments[2]);
    if (what == "read-file" || what == "follow-file") return read_file(arguments[2], what == "follow-file");
    if (what == "hold") return hold(arguments[2]);
    if (what == "watch") return watch(std::strtoull(arguments[2], nullptr, 10));
  } catch (forebay::refused_input const& refused) {
    std::printf("%s\n", refused.what());
    return 2;
  } catch (std::exception const& failed) {
    std::printf("%s\n", failed.what());
    return 1;
  }
  std::puts(
      "usage: real_drive_client "
      "load|verify|open|open-to-read|doorbells|open-twice|serve|write-file|read-file|follow-file|hold|watch WHAT");
  return 2;
}
