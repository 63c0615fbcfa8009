// SPDX-License-Identifier: Apache-2.0
//! \file
//! A storage imports extents while its drive loses power at any point. An extent that then has a name has all its
//! bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/drive/scheme.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"
#include "support/seed.hpp"
#include "support/store_drive.hpp"

namespace forebay {
namespace {

using emulator::testing::replay;
using emulator::testing::test_seed;
using image = std::vector<char>;

constexpr std::uint64_t drive_bytes = 4 << 20;
constexpr std::uint64_t block_bytes = 512;

/// What a drive held each time that it had flushed. Between two of them it may have kept any of the blocks that differ.
struct recording {
  bool flushes_the_catalogue_only = false;  ///< a deliberate bug
  std::vector<image> flushed = {image(drive_bytes)};

  void add(image now) {
    bool const same_table = std::memcmp(now.data(), flushed.back().data(), catalogue::reserved_bytes) == 0;
    if (!flushes_the_catalogue_only || !same_table) flushed.push_back(std::move(now));
  }
};

/// Memory that takes a copy of itself at each Flush. No command may be in flight then.
class recorded_store final : public emulator::backing_store {
 public:
  explicit recorded_store(recording& to) : data_(memory::host(), drive_bytes, 4096), to_(to) {
    std::memcpy(data_.data(), to.flushed.back().data(), drive_bytes);
  }
  emulator::media view() override { return {data_.as<std::byte>(), drive_bytes, block_bytes, &words_}; }
  bool sync() override {
    to_.add(image(data_.as<char>(), data_.as<char>() + drive_bytes));
    return true;
  }

 private:
  memory::allocation data_;
  recording& to_;
  emulator::sync_words words_;
};

/// The bytes of an extent follow from its name and size.
image bytes_of(std::string const& name, std::uint64_t size) {
  std::mt19937_64 random(std::hash<std::string>{}(name) + size);
  image bytes(size);
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

std::string table_of(std::vector<extent> const& extents) {
  std::string text;
  for (extent const& e : extents) text += e.name + " of " + std::to_string(e.size_bytes) + " bytes\n";
  return text;
}

/// What is wrong with what is left of a drive, where `before` and `after` are the tables that it may have.
std::string fault_of(image const& left, std::string const& before, std::string const& after) {
  try {
    auto const found = catalogue::load(
        drive_bytes, [&](void* to, std::uint64_t n, std::uint64_t at) { std::memcpy(to, left.data() + at, n); });
    std::vector<extent> const extents = found ? found->extents() : std::vector<extent>();
    std::string const table = table_of(extents);
    if (table != before && table != after) return "a table of\n" + table;
    for (extent const& e : extents) {
      image const wanted = bytes_of(e.name, e.size_bytes);
      if (!std::equal(wanted.begin(), wanted.end(), left.begin() + static_cast<std::ptrdiff_t>(e.first_byte))) {
        return "an extent without its bytes: " + e.name + "\n";
      }
    }
  } catch (operation_failed const& failed) {
    return failed.what();
  }
  return {};
}

/// Runs changes, each of which may be cut short wherever the drive may lose power. Returns the first fault.
std::string explore(recording& drive, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  static recording* current;
  [[maybe_unused]] static bool const added = [] {
    drive::add_scheme("recorded", [](auto const&, auto const&) {
      return std::make_unique<test::store_drive>(std::make_unique<recorded_store>(*current));
    });
    return true;
  }();
  current = &drive;
  std::string before, fault;
  std::size_t first = 0;
  std::uint64_t judged = 0;
  auto const change = [&](std::string const& what, std::function<void(storage&)> const& make) {
    if (!fault.empty()) return;
    std::string after;
    {
      storage s({.drives = {"recorded:"}, .device = "cpu"});
      make(s);
      after = table_of(s.extents());
      if (fault_of(drive.flushed.back(), after, after) != "") fault = what + ": not durable once it is made";
    }
    for (; first + 1 < drive.flushed.size() && fault.empty(); ++first) {
      image left = drive.flushed[first];
      image const& then = drive.flushed[first + 1];
      std::vector<std::uint64_t> blocks;
      for (std::uint64_t at = 0; at < drive_bytes; at += block_bytes) {
        if (std::memcmp(&left[at], &then[at], block_bytes) != 0) blocks.push_back(at);
      }
      for (std::uint64_t n = 0; n < 100 && fault.empty(); ++n, ++judged) {
        for (std::uint64_t const at : blocks) {
          bool const kept = n == 0 || (n != 1 && random() % 2 != 0);
          std::memcpy(&left[at], kept ? &then[at] : &drive.flushed[first][at], block_bytes);
        }
        std::string const found = fault_of(left, before, after);
        if (!found.empty()) fault = what + ": after flush " + std::to_string(first) + " found " + found;
      }
    }
    before = after;
  };
  auto const import = [&](std::string const& name, std::uint64_t size, bool replace) {
    change("import of " + name, [&](storage& s) {
      extent const staged = s.stage_extent(name, size);
      image const bytes = bytes_of(name, size);
      s.pwrite(bytes.data(), size, 0, &staged);
      s.publish_extent(staged, replace);
    });
  };
  import("a", 3000, false);
  import("a", 5000, true);
  import(std::string(255, '"'), 2000, false);
  change("removal of a", [](storage& s) { s.remove_extent("a"); });
  import("in the place of a", 6000, false);
  std::printf("  judged %llu images\n", static_cast<unsigned long long>(judged));
  return fault;
}

TEST(import_cuts, leave_the_old_extent_or_the_new_one_whole) {
  std::uint64_t const seed = test_seed();
  recording drive;
  EXPECT_EQ(explore(drive, seed), "") << replay(seed);
}

TEST(import_cuts, find_a_name_that_is_durable_before_its_bytes) {
  std::uint64_t const seed = test_seed();
  recording drive{.flushes_the_catalogue_only = true};
  EXPECT_NE(explore(drive, seed).find("an extent without its bytes"), std::string::npos) << replay(seed);
}

}  // namespace
}  // namespace forebay
