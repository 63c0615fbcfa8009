// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>
#include <string>
#include <vector>

#include "harness/command_line.hpp"

namespace forebay::bench {
namespace {

command_line parse(std::initializer_list<char const*> arguments) {
  std::vector<char const*> all{"/some/where/program"};
  all.insert(all.end(), arguments);
  return {static_cast<int>(all.size()), all.data(), {"--size", "--ratio", "--list"}, {"--quick"}};
}

TEST(command_line, values_switches_and_what_stands_for_those_not_given) {
  command_line const given = parse({"--size", "12", "--quick", "--list", "1,2.5,3"});
  EXPECT_EQ(given.number("--size", 1u), 12u);
  EXPECT_EQ(given.number("--ratio", 0.5), 0.5);
  EXPECT_EQ(given.numbers<double>("--list", {}), (std::vector<double>{1, 2.5, 3}));
  EXPECT_EQ(given.numbers<int>("--ratio", {7}), std::vector<int>{7});
  EXPECT_TRUE(given.has("--quick"));
  EXPECT_FALSE(parse({}).has("--quick"));
}

TEST(command_line, has_all_arguments_for_another_run) {
  std::vector<std::string> const typed{"--size", "3", "--json", "/a/b/c.json", "--quick"};
  EXPECT_EQ(parse({"--size", "3", "--json", "/a/b/c.json", "--quick"}).arguments(), typed);
}

TEST(command_line, explains_each_option_on_a_line) {
  EXPECT_EQ(usage("program", {{"--size", "of it; default: 1"}}, {{"--quick", "less"}, "--bare"}),
            "usage: program [OPTION...]\n"
            "  --size VALUE  of it; default: 1\n"
            "  --quick       less\n"
            "  --bare\n"
            "  --json FILE   where the JSON document goes; - is standard output, the default\n"
            "  --help        print this text and end\n");
}

TEST(command_line, says_what_was_typed_without_folders) {
  EXPECT_EQ(parse({"--size", "3", "--json", "/a/b/c.json", "--quick"}).as_typed(),
            "program --size 3 --json c.json --quick");
}

TEST(command_line, refuses_what_it_does_not_know) {
  EXPECT_THROW(parse({"--other"}), refused_input);
  EXPECT_THROW(parse({"--size"}), refused_input);
  EXPECT_THROW(parse({"--size", "x"}).number("--size", 1u), refused_input);
  EXPECT_THROW(parse({"--size", "12x"}).number("--size", 1u), refused_input);
  EXPECT_THROW(parse({"--size", "-1"}).number("--size", 1u), refused_input);
  EXPECT_THROW(parse({"--list", "1,,2"}).numbers<int>("--list", {}), refused_input);
}

TEST(command_line, refuses_numbers_that_no_option_can_use) {
  for (char const* const value : {"nan", "inf", "-1", "1e999"}) {
    EXPECT_THROW(parse({"--ratio", value}).number("--ratio", 1.0), refused_input) << value;
    EXPECT_THROW(parse({"--list", value}).numbers<double>("--list", {}), refused_input) << value;
  }
  EXPECT_EQ(parse({"--ratio", "0"}).number("--ratio", 1.0), 0.0);
}

TEST(command_line, a_file_that_cannot_be_written_is_refused_before_the_work_and_leaves_nothing) {
  EXPECT_THROW(parse({"--json", "/no/such/folder/x.json"}).check_json(), refused_input);
  EXPECT_THROW(parse({"--json", ""}).check_json(), refused_input);
  parse({"--json", "-"}).check_json();
  std::string const path = testing::TempDir() + "/forebay_command_line_test.json";
  std::filesystem::remove(path);
  parse({"--json", path.c_str()}).check_json();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(command_line, a_program_may_explain_its_own_json) {
  std::string const text = usage("program", {{"--json", "required"}}, {});
  EXPECT_NE(text.find("--json FILE  required"), std::string::npos);
  EXPECT_EQ(text.find("the default"), std::string::npos);
}

TEST(command_line, standard_output_that_is_full_is_told) {
  std::ofstream full("/dev/full");
  std::streambuf* const before = std::cout.rdbuf(full.rdbuf());
  EXPECT_THROW(parse({}).write(std::string(1 << 20, 'x')), operation_failed);
  std::cout.rdbuf(before);
  std::cout.clear();
}

TEST(command_line, a_file_that_cannot_be_written_is_told) {
  EXPECT_THROW(parse({"--json", "/no/such/folder/x.json"}).write("{}"), operation_failed);
}

}  // namespace
}  // namespace forebay::bench
