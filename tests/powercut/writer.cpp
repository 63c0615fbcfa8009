// SPDX-License-Identifier: Apache-2.0
//! \file
//! The program whose drive loses power. It writes random blocks of a drive and flushes at random. Its journal says
//! what it has seen complete, so that a crash image of the disk can be checked against that (power_cuts.py).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/random.hpp"
#include "forebay/error.hpp"
#include "forebay/machine.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "harness/command_line.hpp"

namespace forebay::powercut {
namespace {

using M = simt::fiber;
using nlohmann::json;

constexpr std::uint32_t sector_bytes = 512;
constexpr std::uint32_t sector_words = sector_bytes / sizeof(std::uint64_t);
constexpr std::uint32_t write_sectors_max = 64;
constexpr std::uint32_t writes_in_flight = 8;
/// The number of a mark's sector, which no sector of a drive has.
constexpr std::uint64_t mark_number = ~std::uint64_t{0};

/// Fills a sector so that no mixture of two of its generations looks like one of them: four words that say what it is,
/// and 60 that follow from those. sectors.py knows the same rule.
void fill_sector(std::uint64_t* words, std::uint64_t number, std::uint64_t generation, std::uint64_t seed) {
  constexpr std::uint64_t magic = 0x726f746365734246u;  // "FBsector"
  std::uint64_t const key = apps::mix64(apps::mix64(apps::mix64(seed) ^ number) ^ generation);
  words[0] = magic;
  words[1] = number;
  words[2] = generation;
  words[3] = seed;
  for (std::uint32_t i = 4; i < sector_words; ++i) words[i] = key + i * 0x9e3779b97f4a7c15u;
}

/// A file on the disk whose writes are recorded, beside the drive. A mark in the record lies behind all that the disk
/// had done when the mark was written.
class mark_file {
 public:
  mark_file(std::string const& path, std::uint64_t seed) : seed_(seed) {
    // Direct, so that the disk has the mark when `write` returns. No Flush goes with it.
    fd_ = open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
    if (fd_ < 0) {
      throw refused_input("--marks", path, std::string(std::strerror(errno)) + "; give a disk or a file that exists");
    }
  }
  ~mark_file() { close(fd_); }
  mark_file(mark_file const&) = delete;
  mark_file& operator=(mark_file const&) = delete;

  void write(std::uint64_t mark) {
    fill_sector(sector_.words, mark_number, mark, seed_);
    if (pwrite(fd_, sector_.words, sector_bytes, 0) != sector_bytes) {
      throw operation_failed("cannot write mark " + std::to_string(mark) + ": " + std::strerror(errno));
    }
  }

 private:
  struct alignas(4096) aligned_sector {
    std::uint64_t words[sector_words];
  };
  std::uint64_t seed_;
  int fd_ = -1;
  aligned_sector sector_;
};

struct workload {
  std::uint64_t seed = 1;
  std::uint64_t writes = 1000;
  /// The fault that the check must find: a Flush is not submitted, and reported as completed.
  bool drop_flushes = false;
};

/// One thread keeps some writes and a Flush in flight. Sectors have the number of the write as their generation. No two
/// writes in flight share a sector, so the generation of a sector only grows.
class writer {
 public:
  writer(storage& drives, workload const& work, mark_file* marks)
      : drive_(drives.ref<M>()),
        sectors_(drives.size_bytes() / sector_bytes),
        block_sectors_(drives.block_bytes() / sector_bytes),
        work_(work),
        marks_(marks),
        random_(work.seed, 0),
        buffer_(drives.allocate_buffer(std::size_t{writes_in_flight} * write_sectors_max * sector_bytes)) {}

  void run() {
    mark(0);
    while (begun_ < work_.writes) {
      collect();
      if (!begin_write()) continue;
      if (!flush_ && random_.below(24) == 0) begin_flush();
      // A Flush takes far longer than a write.
      if (flush_ && begun_ >= flush_outlives_) end_flush();
      // Now and then nothing is in flight.
      if (random_.below(100) == 0) finish();
    }
    finish();
    begin_flush();
    finish();
  }

  json journal() const { return {{"seed", work_.seed}, {"sectors", sectors_}, {"events", events_}}; }
  std::uint64_t flushes() const { return flushes_; }

 private:
  struct write_in_flight {
    std::uint64_t generation, first, sectors;
    token<M> request;
    bool touches(std::uint64_t other_first, std::uint64_t other_sectors) const {
      return first < other_first + other_sectors && other_first < first + sectors;
    }
  };

  /// Starts a write. False: there is no room for one, or another one in flight touches its sectors.
  bool begin_write() {
    auto const free = std::find(in_flight_.begin(), in_flight_.end(), std::nullopt);
    if (free == in_flight_.end()) return false;
    auto const [first, sectors] = choose();
    for (auto const& other : in_flight_) {
      if (other && other->touches(first, sectors)) return false;
    }
    std::uint64_t const generation = ++begun_;
    auto const slot = static_cast<std::uint64_t>(free - in_flight_.begin());
    buffer_ref const bytes = buffer_.ref().subspan(slot * write_sectors_max * sector_bytes, sectors * sector_bytes);
    for (std::uint64_t i = 0; i < sectors; ++i) {
      fill_sector(reinterpret_cast<std::uint64_t*>(bytes.data() + i * sector_bytes), first + i, generation, work_.seed);
    }
    events_.push_back({"write", generation, first, sectors});
    free->emplace(write_in_flight{generation, first, sectors,
                                  drive_.write_async(bytes, first * sector_bytes, sectors * sector_bytes)});
    return true;
  }

  struct place {
    std::uint64_t first, sectors;
  };
  /// Single blocks, whole pages, and longer pieces that begin anywhere. Half of them lie in a part of the drive that is
  /// small enough to be written again and again between two Flushes.
  place choose() {
    std::uint64_t const kind = random_.below(3);
    std::uint64_t const unit = kind == 1 ? std::max<std::uint64_t>(8, block_sectors_) : block_sectors_;
    std::uint64_t const units = kind == 2 ? 1 + random_.below(write_sectors_max / unit) : 1;
    std::uint64_t const within = random_.below(2) == 0 ? sectors_ : std::min<std::uint64_t>(sectors_, 256);
    return {random_.below(within / unit - units + 1) * unit, units * unit};
  }

  void begin_flush() {
    events_.push_back({"flush", ++flushes_});
    flush_outlives_ = begun_ + random_.below(32);
    flush_ = work_.drop_flushes ? token<M>(status()) : drive_.flush_async();
  }

  /// Takes what has completed.
  void collect() {
    for (auto& write : in_flight_) {
      if (write && write->request.ready()) end(write);
    }
    if (flush_ && flush_->ready()) end_flush();
  }
  /// Waits for everything in flight.
  void finish() {
    for (auto& write : in_flight_) {
      if (write) end(write);
    }
    if (flush_) end_flush();
  }
  void end(std::optional<write_in_flight>& write) {
    require(write->request.wait(), "write");
    events_.push_back({"written", write->generation});
    write.reset();
  }
  void end_flush() {
    require(flush_->wait(), "flush");
    flush_.reset();
    events_.push_back({"flushed", flushes_});
    mark(flushes_);
  }
  void mark(std::uint64_t number) {
    if (marks_ != nullptr) marks_->write(number);
  }
  static void require(status outcome, char const* what) {
    if (!outcome) throw operation_failed(std::string(what) + ": " + to_string(outcome));
  }

  storage_ref<M> drive_;
  std::uint64_t sectors_;
  std::uint64_t block_sectors_;
  workload work_;
  mark_file* marks_;
  apps::splitmix64 random_;
  registered_buffer buffer_;
  std::array<std::optional<write_in_flight>, writes_in_flight> in_flight_;
  std::optional<token<M>> flush_;
  std::uint64_t begun_ = 0, flushes_ = 0;
  std::uint64_t flush_outlives_ = 0;  ///< how many writes may have begun before the Flush is waited for
  json events_ = json::array();
};

struct kernel {
  writer* one;
  FOREBAY_DEVICE void operator()() const { one->run(); }
};

std::vector<bench::option> const values = {
    {"--drive", "the drive that is written"},
    {"--marks", "a disk or file that gets a mark at the start and after each Flush; default: none"},
    {"--seed", "seed of everything that is random; default: 1"},
    {"--writes", "how many writes; default: 1000"}};
std::vector<bench::option> const switches = {
    {"--drop-flushes", "submit no Flush and say that it has completed: the fault that the check must find"}};

void run(bench::command_line const& given) {
  if (!given.has("--drive")) throw refused_input("--drive", "", "name the drive");
  workload const work{.seed = given.number<std::uint64_t>("--seed", 1),
                      .writes = given.number<std::uint64_t>("--writes", 1000),
                      .drop_flushes = given.has("--drop-flushes")};
  given.check_json();
  std::unique_ptr<mark_file> marks;
  if (given.has("--marks")) marks = std::make_unique<mark_file>(given.text("--marks", ""), work.seed);
  // An emulated processor is slow: no wait of this program is meant to end before the drive answers.
  constexpr std::uint64_t patience_ns = 300'000'000'000;
  storage drives({.drives = {given.text("--drive", "")},
                  .device = "cpu",
                  .timeout_ns = patience_ns,
                  .flush_timeout_ns = patience_ns});
  if (drives.size_bytes() < 256 * sector_bytes) {
    throw refused_input("--drive", given.text("--drive", ""), "give a drive of 128 KiB or more");
  }
  writer one(drives, work, marks.get());
  simt::launch<M>({.blocks = 1, .threads_per_block = 1}, kernel{&one});
  json journal = one.journal();
  journal["file"] = json::parse(drives.report()).at("drives").at(0).at("file");
  given.write(journal.dump());
  std::fprintf(stderr, "powercut_writer: %llu writes, %llu flushes\n", static_cast<unsigned long long>(work.writes),
               static_cast<unsigned long long>(one.flushes()));
}

}  // namespace
}  // namespace forebay::powercut

int main(int argc, char** argv) try {
  using namespace forebay;
  if (argc == 2 && std::string(argv[1]) == "--help") {
    std::fputs(bench::usage("powercut_writer", powercut::values, powercut::switches).c_str(), stdout);
    return 0;
  }
  powercut::run(bench::command_line(argc, argv, powercut::values, powercut::switches));
  return 0;
} catch (forebay::refused_input const& refused) {
  std::fprintf(stderr, "powercut_writer: %s\n", refused.what());
  return 2;
} catch (std::exception const& failed) {
  std::fprintf(stderr, "powercut_writer: %s\n", failed.what());
  return 1;
}
