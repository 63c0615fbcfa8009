// SPDX-License-Identifier: Apache-2.0
//! \file
//! docs/how-to/port-a-kernel.md: its programs run, on the CPU executor, and its diff is that of the files.
#include "storage/port_a_kernel.hpp"

#include <algorithm>
#include <sstream>

#include "forebay/storage.hpp"
#include "storage/cuda_words.hpp"
#include "support/folders.hpp"

// What nvcc lets pass; the examples are written as CUDA programs are.
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#define main before_main
#include "on_cpu/port_a_kernel_before.cu"
#undef main
#define main after_main
#include "on_cpu/port_a_kernel_after.cu"
#undef main

namespace forebay::port_a_kernel {
namespace {

std::string text_of(std::string const& path) {
  std::ifstream file(test::source_path(path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}
std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream from(text);
  for (std::string line; std::getline(from, line);) lines.push_back(line);
  return lines;
}

/// Lines that are in one of the two only, blank ones aside.
std::size_t changed_lines(std::vector<std::string> a, std::vector<std::string> b) {
  std::erase(a, std::string());
  std::erase(b, std::string());
  std::vector<std::size_t> common(b.size() + 1);
  for (std::string const& line : a) {
    std::size_t diagonal = 0;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t const above = common[j];
      common[j] = line == b[j - 1] ? diagonal + 1 : std::max(common[j], common[j - 1]);
      diagonal = above;
    }
  }
  return a.size() + b.size() - 2 * common.back();
}

TEST(PortAKernel, BothProgramsPrintTheSame) {
  expect_same_output(&before_main, &after_main);
}

TEST(PortAKernel, ThePageShowsWhatChanges) {
  std::string const before = text_of("docs/examples/port_a_kernel_before.cu");
  std::string const after = text_of("docs/examples/port_a_kernel_after.cu");
  std::string const page = text_of("docs/how-to/port-a-kernel.md");
  std::size_t const from = page.find("```diff\n");
  ASSERT_NE(from, std::string::npos);
  std::string const diff = page.substr(from + 8, page.find("```", from + 8) - from - 8);
  std::string old_part, new_part;
  std::size_t changed = 0;
  auto const end_of_hunk = [&] {
    EXPECT_NE(before.find(old_part), std::string::npos) << old_part;
    EXPECT_NE(after.find(new_part), std::string::npos) << new_part;
    old_part.clear();
    new_part.clear();
  };
  for (std::string const& line : lines_of(diff)) {
    if (line == "...") {
      end_of_hunk();
      continue;
    }
    ASSERT_FALSE(line.empty());
    if (line[0] != '+') old_part += line.substr(1) + "\n";
    if (line[0] != '-') new_part += line.substr(1) + "\n";
    changed += line[0] != ' ';
  }
  end_of_hunk();
  EXPECT_EQ(changed, changed_lines(lines_of(before), lines_of(after)));
  EXPECT_LE(changed, 10u);
}

}  // namespace
}  // namespace forebay::port_a_kernel
