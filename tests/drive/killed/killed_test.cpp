// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a drive in a file promises when the process that has it open is killed: `killed_writer` is, at 200 points.
//!
//! This can show which writes the operating system had when the client heard that they were complete, what a write that
//! was under way leaves, and whether the file can be opened at once. It cannot show that anything was on the medium:
//! the system keeps all that it has when a process is killed, flushed or not. So a `file:` drive whose Flush does
//! nothing passes; tests/emulator/flush_test.cpp shows what a Flush waits for.
//!
//! A drive that completes a write before the system has it (`io=uring` could, if a completion were posted when the
//! write is queued) loses completed writes here. A drive that keeps writes in memory of its process until a Flush, as
//! one in a GPU's memory does, may lose those; it must keep what was flushed.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "drive/killed/stream.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "support/child_process.hpp"
#include "support/seed.hpp"

namespace forebay::test::killed {
namespace {

using emulator::testing::replay;
using emulator::testing::test_seed;

/// The writes that a killed process has not lost.
enum class kept : std::uint8_t { completed, flushed };

struct mode {
  std::string name;
  std::string scheme;  ///< the URI is SCHEME:PATH followed by `options`
  std::string options;
  kept keeps = kept::completed;
  /// A block that was being written may hold bytes of before and of the write: the processor copies it piece by piece.
  bool mixes = true;
};

std::ostream& operator<<(std::ostream& to, mode const& m) {
  return to << m.name;
}

using content = std::array<char, block_bytes>;

content content_of(std::uint64_t block, std::uint64_t generation) {
  content bytes;
  fill(bytes.data(), block, generation);
  return bytes;
}

/// The file of a drive, and what each of its blocks may hold after a kill.
class judged_file {
 public:
  explicit judged_file(mode const& m) : mode_(m), may_be_(drive_blocks, {0}) {
    std::ofstream(path_).close();
    std::filesystem::resize_file(path_, drive_blocks * block_bytes);
  }
  ~judged_file() { std::filesystem::remove(path_); }
  judged_file(judged_file const&) = delete;
  judged_file& operator=(judged_file const&) = delete;

  std::string const& path() const { return path_; }
  std::string uri() const { return mode_.scheme + ":" + path_ + mode_.options; }

  void begun(operation const& writes, std::uint64_t generation) {
    in_flight_ = writes;
    generation_ = generation;
  }
  void written(std::size_t which) {
    piece& p = in_flight_.at(which);
    for (std::uint64_t b = p.first_block; b < p.first_block + p.blocks; ++b) {
      if (mode_.keeps == kept::completed) may_be_[b].clear();
      may_be_[b].push_back(generation_);
    }
    p.blocks = 0;
  }
  void flushed() {
    for (auto& generations : may_be_) generations = {generations.back()};
  }

  /// Returns the first fault. What is there is what must be there from now on.
  std::string judge() {
    for (piece const& p : in_flight_) {
      for (std::uint64_t b = p.first_block; b < p.first_block + p.blocks; ++b) may_be_[b].push_back(generation_);
    }
    in_flight_.clear();
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    for (std::uint64_t b = 0; b < drive_blocks; ++b) {
      content found;
      file.seekg(static_cast<std::streamoff>(b * block_bytes)).read(found.data(), block_bytes);
      auto& generations = may_be_[b];
      auto const whole = std::find_if(generations.begin(), generations.end(),
                                      [&](std::uint64_t g) { return content_of(b, g) == found; });
      if (whole != generations.end()) {
        generations = {*whole};
        continue;
      }
      if (!mode_.mixes || generations.size() < 2 || !is_mix_of(found, b, generations)) {
        return "block " + std::to_string(b) + " holds " + describe(found, b) + ", and should hold generation " +
               std::to_string(generations.front()) + (generations.size() > 1 ? " or a later one" : "");
      }
      ++mixed;
      // No generation is there any more; the test begins anew with this block.
      content const zeros{};
      file.seekp(static_cast<std::streamoff>(b * block_bytes)).write(zeros.data(), block_bytes);
      generations = {0};
    }
    return {};
  }

  std::uint64_t mixed = 0;  ///< blocks, at all kills together

 private:
  static bool is_mix_of(content const& found, std::uint64_t b, std::vector<std::uint64_t> const& generations) {
    std::vector<content> all;
    for (std::uint64_t const g : generations) all.push_back(content_of(b, g));
    for (std::size_t i = 0; i < block_bytes; ++i) {
      if (std::none_of(all.begin(), all.end(), [&](content const& c) { return c[i] == found[i]; })) return false;
    }
    return true;
  }
  static std::string describe(content const& found, std::uint64_t b) {
    std::uint64_t words[2];
    std::memcpy(words, found.data(), sizeof words);
    if (found == content_of(words[0], words[1])) {
      return "generation " + std::to_string(words[1]) + (words[0] == b ? "" : " of block " + std::to_string(words[0]));
    }
    return found == content{} ? "generation 0" : "a mix of several";
  }

  mode mode_;
  std::string path_ =
      (std::filesystem::path(::testing::TempDir()) / ("forebay-killed-" + std::to_string(::getpid()))).string();
  std::vector<std::vector<std::uint64_t>> may_be_;  ///< of each block, the generations, the oldest first
  operation in_flight_;
  std::uint64_t generation_ = 0;
};

/// Is the file's lock free?
/// Opens the drive as the next program would, which waits until the system has ended what the killed one had begun.
std::string open_again(std::string const& uri) {
  try {
    drive::open(uri);
  } catch (refused_input const& refused) {
    return refused.what();
  }
  return {};
}

/// Starts a writer on the same file again and again, and kills it: at `kills` points, half of them between two of its
/// steps, the others at any moment soon after one. Returns the first fault.
std::string explore(mode const& m, std::uint64_t seed, std::uint64_t kills, std::string const& bug = "none") {
  judged_file file(m);
  std::mt19937_64 random(seed);
  std::uint64_t generation = 0, said = 0, flushes = 0;
  for (std::uint64_t kill = 0; kill < kills; ++kill) {
    std::string const when = "kill " + std::to_string(kill) + ": ";
    std::uint64_t const step = 1 + kill / 2 % 50;
    bool const between_steps = kill % 2 == 0;
    child_process writer("killed_writer", {file.uri(), std::to_string(seed), std::to_string(generation + 1),
                                           std::to_string(between_steps ? step : 0), bug});
    auto const hear = [&] {
      std::istringstream line(writer.line());
      std::string what;
      std::size_t which = 0;
      if (!(line >> what) || what == "failed:") return line.str();
      line >> generation;
      if (what == "begun") file.begun(operation_of(seed, generation), generation);
      if (what == "written" && line >> which) file.written(which);
      if (what == "flushed") file.flushed();
      flushes += what == "flushed";
      ++said;
      return std::string("it goes on");
    };
    for (std::uint64_t n = 0; n < step; ++n) {
      if (std::string const heard = hear(); heard != "it goes on") {
        return when + "the writer has ended by itself. " + heard;
      }
    }
    if (!between_steps) {
      std::uint64_t volatile steps = random() % 20'000;
      while (steps != 0) steps = steps - 1;
    }
    writer.kill_and_wait(SIGKILL);
    while (hear() == "it goes on") {
    }
    if (std::string const refusal = open_again("file:" + file.path()); !refusal.empty()) return when + refusal;
    if (std::string const fault = file.judge(); !fault.empty()) return when + fault;
  }
  {
    storage drive({.drives = {"file:" + file.path()}, .device = "cpu"});
    content const wanted = content_of(7, generation + 1);
    content found{};
    drive.pwrite(wanted.data(), block_bytes, 7 * block_bytes);
    drive.flush();
    drive.pread(found.data(), block_bytes, 7 * block_bytes);
    if (found != wanted) return "the drive does not hold what is written to it after the last kill";
  }
  std::printf("  %llu kills, %llu steps, %llu flushes, %llu blocks that were being written are mixed\n",
              static_cast<unsigned long long>(kills), static_cast<unsigned long long>(said),
              static_cast<unsigned long long>(flushes), static_cast<unsigned long long>(file.mixed));
  return {};
}

mode const mapped{.name = "mapped", .scheme = "file", .options = ",io=mmap"};
mode const uring{.name = "uring", .scheme = "file", .options = ",io=uring", .mixes = false};
mode const copied{.name = "copied", .scheme = "copied", .options = "", .keeps = kept::flushed};

/// Further ways to open a file belong into the list below.
class killed_writer : public ::testing::TestWithParam<mode> {};

TEST_P(killed_writer, leaves_what_it_was_told_is_there) {
  std::uint64_t const seed = test_seed();
  EXPECT_EQ(explore(GetParam(), seed, 200), "") << replay(seed);
}

INSTANTIATE_TEST_SUITE_P(drives, killed_writer, ::testing::Values(mapped, uring),
                         [](auto const& about) { return about.param.name; });

TEST(killed_writer_of_a_copy, leaves_what_was_flushed) {
  std::uint64_t const seed = test_seed();
  EXPECT_EQ(explore(copied, seed, 40), "") << replay(seed);
}

/// Each of these is a bug that the tests above must find.
TEST(killed_writer_bugs, a_write_is_told_before_it_is_made) {
  std::uint64_t const seed = test_seed();
  EXPECT_NE(explore(mapped, seed, 40, "says_too_early").find("and should hold"), std::string::npos) << replay(seed);
}
TEST(killed_writer_bugs, a_write_completes_before_the_system_has_it) {
  std::uint64_t const seed = test_seed();
  mode early = copied;
  early.keeps = kept::completed;
  EXPECT_NE(explore(early, seed, 40).find("and should hold"), std::string::npos) << replay(seed);
}
TEST(killed_writer_bugs, a_flush_does_nothing) {
  std::uint64_t const seed = test_seed();
  mode lying = copied;
  lying.scheme = "lying";
  EXPECT_NE(explore(lying, seed, 80).find("and should hold"), std::string::npos) << replay(seed);
}

}  // namespace
}  // namespace forebay::test::killed
