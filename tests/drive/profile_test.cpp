// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "forebay/error.hpp"
#include "support/folders.hpp"

namespace forebay::drive {
namespace {

namespace fs = std::filesystem;

std::string const source_folder = test::source_path("profiles");

std::string read_file(std::string const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(profile_folders, of_a_program_of_the_build_tree_are_those_of_its_sources_alone) {
  unsetenv("FOREBAY_PROFILE_DIR");
  EXPECT_EQ(profile_folders(), std::vector<std::string>{source_folder})
      << "what was once installed from this tree may be older, and must not hide what it has now";
}

/// A folder of its own, first in the search.
class profile_test : public ::testing::Test {
 protected:
  profile_test() {
    fs::create_directories(folder);
    setenv("FOREBAY_PROFILE_DIR", folder.c_str(), 1);
  }
  ~profile_test() override {
    unsetenv("FOREBAY_PROFILE_DIR");
    fs::remove_all(folder);
  }
  std::string write(std::string const& name, std::string const& text) {
    std::string const path = (folder / name).string();
    std::ofstream(path) << text;
    return path;
  }
  static std::string refusal(std::string const& path) {
    try {
      load_profile(path);
    } catch (refused_input const& refused) {
      return refused.what();
    }
    return "accepted";
  }
  /// A shipped profile with `from` replaced by `to`.
  std::string changed(std::string const& from, std::string const& to, std::string const& shipped = "p5800x") {
    std::string text = read_file(source_folder + "/" + shipped + ".toml");
    std::size_t const at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return write("changed.toml", text.replace(at, from.size(), to));
  }

  fs::path folder = fs::path(::testing::TempDir()) / ("forebay-profiles-" + std::to_string(getpid()));
};

TEST_F(profile_test, every_profile_loads_and_has_a_source_for_every_number) {
  int found = 0;
  for (auto const& entry : fs::directory_iterator(source_folder)) {
    if (entry.path().extension() != ".toml") continue;
    ++found;
    profile const p = find_profile(entry.path().stem().string());
    EXPECT_EQ(p.name, entry.path().stem().string());
    EXPECT_FALSE(p.description.empty());
    EXPECT_GE(p.sources.size(), 13u) << p.name;
    for (auto const& [key, source] : p.sources) EXPECT_GE(source.size(), 8u) << p.name << " " << key;
  }
  EXPECT_GE(found, 16);
}

TEST_F(profile_test, ideal_is_what_a_drive_without_a_profile_is) {
  EXPECT_TRUE(find_profile("ideal").timing.immediate());
  EXPECT_TRUE(profile{}.timing.immediate());
  EXPECT_EQ(find_profile("ideal").lba_bytes, profile{}.lba_bytes);
}

TEST_F(profile_test, the_environments_folder_comes_first_and_a_path_is_taken_as_it_is) {
  std::string const path = changed("\"p5800x\"", "\"mine\"");
  fs::copy_file(path, folder / "p5800x.toml");
  EXPECT_EQ(find_profile("p5800x").name, "mine");
  EXPECT_EQ(find_profile(path).name, "mine");
}

TEST_F(profile_test, an_unknown_name_is_refused_with_what_there_is) {
  try {
    find_profile("d7-ps1011");
    FAIL();
  } catch (refused_input const& refused) {
    EXPECT_EQ(std::string(refused.what()).substr(0, 32), "profile: 'd7-ps1011': there are ");
    EXPECT_NE(std::string(refused.what()).find("d7-ps1010"), std::string::npos);
    EXPECT_NE(std::string(refused.what()).find("p5800x"), std::string::npos);
  }
  EXPECT_THROW(find_profile("/no/such.toml"), refused_input);
  EXPECT_THROW(find_profile(""), refused_input);
}

TEST_F(profile_test, a_profile_cut_off_anywhere_is_refused_with_its_line) {
  std::string const whole = read_file(source_folder + "/p5800x.toml");
  int refused = 0;
  std::size_t const last = whole.find_last_not_of("\n");
  for (std::size_t length = 0; length < last; length += 7) {
    std::string const path = write("cut.toml", whole.substr(0, length));
    std::string const message = refusal(path);
    std::size_t const at = message.find(path + ":");
    ASSERT_NE(at, std::string::npos) << length << ": " << message;
    EXPECT_TRUE(std::isdigit(static_cast<unsigned char>(message[at + path.size() + 1]))) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    ++refused;
  }
  EXPECT_GT(refused, 200);
}

TEST_F(profile_test, refusals_name_line_and_remedy) {
  auto const expect = [&](std::string const& from, std::string const& to, std::string const& line,
                          std::string const& remedy) {
    std::string const path = changed(from, to);
    EXPECT_EQ(refusal(path), "profile: '" + path + ":" + line + "': " + remedy);
  };
  expect("value = 133.0", "value = -1", "7", "per_command_ns must lie between 0 and 1000000000");
  expect("value = 133.0", "value = 9223372036854775807", "7", "per_command_ns must lie between 0 and 1000000000");
  expect("value = 133.0", "value = \"x\"", "7", "per_command_ns needs a value that is a number");
  expect("value = 512, source = \"the drive", "value = 512.5, source = \"the drive", "9",
         "granule_bytes must be a whole number");
  expect("channels = { value = 1,", "channels = { value = 65,", "23", "channels must lie between 1 and 64");
  expect("lba_bytes = { value = 512,", "lba_bytes = { value = 520,", "25", "lba_bytes must be a power of two");
  expect("latency_min_us = { value = 6.0, source = \"read", "latency_min = { value = 6.0, source = \"read", "10",
         "unknown key latency_min; did you mean latency_min_us?");
  expect("value = 133.0, source", "value = 133.0, sauce", "7", "unknown key sauce; did you mean source?");
  expect("[other]", "[others]", "18", "unknown key others; did you mean other?");
  expect("description = \"Intel Optane SSD DC P5800X\"", "description = 5", "4",
         "description must be a string that is not empty");
}

TEST_F(profile_test, what_would_overflow_a_stack_or_fill_the_memory_is_refused_before_it_is_parsed) {
  std::string deep = "a";
  for (int i = 0; i < 20'000; ++i) deep += ".a";
  auto const refused = [this](std::string const& text) { return refusal(write("deep.toml", text)); };
  EXPECT_THAT(refused(deep + " = 1\n"), ::testing::HasSubstr("has 20000 dots"));
  // The deepest nesting that is accepted.
  std::string allowed = "a";
  for (int i = 0; i < 1000; ++i) allowed += ".a";
  EXPECT_THAT(refused(allowed + " = 1\n"), ::testing::HasSubstr("unknown key a"));
  for (char const open : {'[', '{'}) {
    EXPECT_THAT(refused("a = " + std::string(60'000, open)), ::testing::HasSubstr("not valid TOML")) << open;
  }
  EXPECT_THAT(refused(std::string(100'000, '#')), ::testing::HasSubstr("is larger than 65536 bytes"));
}

TEST_F(profile_test, a_flash_table_is_optional_and_read_in_full) {
  EXPECT_EQ(find_profile("p5800x").timing.flash.channels, 0u);
  profile const p = find_profile("970-pro");
  emulator::flash_parameters const& flash = p.timing.flash;
  EXPECT_EQ(flash.channels, 8u);
  EXPECT_EQ(flash.dies_per_channel, 2u);
  EXPECT_EQ(flash.page_bytes, 4096u);
  EXPECT_EQ(flash.read_bytes, 32768u);
  EXPECT_EQ(flash.program_bytes, 32768u);
  EXPECT_EQ(flash.block_bytes, 4u << 20);
  EXPECT_EQ(flash.read_ps, 35'760'000u);
  EXPECT_EQ(flash.program_ps, 185'000'000u);
  EXPECT_EQ(flash.erase_ps, 0u);
  EXPECT_EQ(flash.channel_byte_fs, 1'250'000u);
  EXPECT_EQ(flash.buffer_bytes, 1u << 20);
  EXPECT_EQ(flash.spare_ppm, 70'000u);
  EXPECT_EQ(flash.start, emulator::preconditioning::fresh);
  int said = 0;
  for (auto const& [key, source] : p.sources) said += key.starts_with("flash.") ? 1 : 0;
  EXPECT_EQ(said, 12);
}

TEST_F(profile_test, refusals_of_a_flash_table_name_line_and_remedy) {
  auto const expect = [&](std::string const& from, std::string const& to, std::string const& line,
                          std::string const& remedy) {
    std::string const path = changed(from, to, "970-pro");
    EXPECT_EQ(refusal(path), "profile: '" + path + ":" + line + "': " + remedy);
  };
  expect("channels = { value = 8", "channels = { value = 0", "28", "channels must lie between 1 and 64");
  expect("page_bytes = { value = 4096", "page_bytes = { value = 4096.5", "30", "page_bytes must be a whole number");
  expect("read_bytes = { value = 32768", "read_bytes = { value = 30000", "31",
         "read_bytes must be a multiple of page_bytes");
  expect("program_bytes = { value = 32768", "program_bytes = { value = 40960", "32",
         "program_bytes must be a multiple of read_bytes");
  expect("block_bytes = { value = 4194304", "block_bytes = { value = 4194303", "33",
         "block_bytes must be a multiple of program_bytes");
  expect("block_bytes = { value = 4194304", "block_bytes = { value = 32768", "33",
         "block_bytes must be at least twice program_bytes");
  expect("buffer_bytes = { value = 1048576", "buffer_bytes = { value = 524287", "38",
         "buffer_bytes must hold a program of each die, which takes 524288");
  expect("spare_percent = { value = 7", "spare_percent = { value = 0", "39",
         "spare_percent must lie between 1 and 400");
  expect("erase_us = { value = 0, source", "erase_us = { value = 0, sauce", "36",
         "unknown key sauce; did you mean source?");
  expect("spare_percent", "spare_percents", "39", "unknown key spare_percents; did you mean spare_percent?");
  expect("[flash]", "[flesh]", "27", "unknown key flesh; did you mean flash?");
}

}  // namespace
}  // namespace forebay::drive
