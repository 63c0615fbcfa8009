// SPDX-License-Identifier: Apache-2.0
//! \file
//! Replays the corpora of the fuzz targets. Each input once broke something, or reaches code that no other one reaches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "support/folders.hpp"

extern "C" {
int fuzz_catalogue(std::uint8_t const*, std::size_t);
int fuzz_dlrm(std::uint8_t const*, std::size_t);
int fuzz_driver(std::uint8_t const*, std::size_t);
int fuzz_messages(std::uint8_t const*, std::size_t);
int fuzz_profile(std::uint8_t const*, std::size_t);
int fuzz_prps(std::uint8_t const*, std::size_t);
int fuzz_queue(std::uint8_t const*, std::size_t);
int fuzz_uri(std::uint8_t const*, std::size_t);
}

namespace forebay::fuzz {
namespace {

struct target {
  char const* name;
  int (*play)(std::uint8_t const*, std::size_t);
};
std::ostream& operator<<(std::ostream& to, target const& of) {
  return to << of.name;
}

constexpr target targets[] = {{"catalogue", fuzz_catalogue}, {"dlrm", fuzz_dlrm},       {"driver", fuzz_driver},
                              {"messages", fuzz_messages},   {"profile", fuzz_profile}, {"prps", fuzz_prps},
                              {"queue", fuzz_queue},         {"uri", fuzz_uri}};

std::vector<std::filesystem::path> inputs_of(char const* name) {
  std::vector<std::filesystem::path> paths;
  for (auto const& entry : std::filesystem::directory_iterator(test::source_path("tests/fuzz/corpus") + "/" + name)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class fuzz_corpus : public ::testing::TestWithParam<target> {};
INSTANTIATE_TEST_SUITE_P(of, fuzz_corpus, ::testing::ValuesIn(targets),
                         [](auto const& instance) { return instance.param.name; });

TEST_P(fuzz_corpus, is_played_without_a_finding) {
  auto const paths = inputs_of(GetParam().name);
  ASSERT_FALSE(paths.empty());
  for (auto const& path : paths) {
    std::cout << path.filename().string() << std::endl;  // the last one printed is the one that caused a crash
    std::ifstream file(path, std::ios::binary);
    std::vector<char> const bytes{std::istreambuf_iterator<char>(file), {}};
    // In a block of exactly its size, so that a sanitizer sees a read past its end.
    std::vector<std::uint8_t> const input(bytes.begin(), bytes.end());
    try {
      GetParam().play(input.data(), input.size());
    } catch (std::exception const& found) {
      ADD_FAILURE() << path.filename() << ": " << found.what();
    }
  }
}

}  // namespace
}  // namespace forebay::fuzz
