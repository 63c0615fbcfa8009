// SPDX-License-Identifier: Apache-2.0
#include "harness/child_process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace forebay::bench {
namespace {

std::vector<std::string> arguments(std::string const& test) {
  return {"--gtest_also_run_disabled_tests", "--gtest_filter=child_process.DISABLED_" + test};
}

TEST(child_process, DISABLED_says_what_it_was_told) {
  char const* const word = std::getenv("FOREBAY_TEST_WORD");
  std::printf("word %s\n", word != nullptr ? word : "");
  std::fflush(stdout);
  std::_Exit(7);
}
TEST(child_process, DISABLED_stays) {
  std::printf("stays\n");
  std::fflush(stdout);
  for (;;) ::pause();
}

/// Skips what the test program prints of itself.
std::string first_line(child_process& child, std::string const& begin) {
  for (;;) {
    std::string const line = child.line();
    if (line.empty() || line.starts_with(begin)) return line;
  }
}

TEST(child_process, has_variables_of_its_own) {
  ::setenv("FOREBAY_TEST_WORD", "another", 1);
  child_process child(arguments("says_what_it_was_told"), {{"FOREBAY_TEST_WORD", "mine"}}, true);
  EXPECT_EQ(first_line(child, "word"), "word mine");
  EXPECT_EQ(child.wait(), 7);
}

TEST(child_process, has_the_variables_of_the_caller) {
  ::setenv("FOREBAY_TEST_WORD", "another", 1);
  child_process child(arguments("says_what_it_was_told"), {}, true);
  EXPECT_EQ(first_line(child, "word"), "word another");
}

TEST(child_process, ends_when_it_is_told_to) {
  child_process child(arguments("stays"), {}, true);
  EXPECT_EQ(first_line(child, "stays"), "stays");
  child.terminate();
  EXPECT_EQ(child.wait(), 128 + SIGTERM);
  EXPECT_EQ(child.line(), "");
}

}  // namespace
}  // namespace forebay::bench
