// SPDX-License-Identifier: Apache-2.0
//! \file
//! The `main` of the benchmarks: runs `this_benchmark`.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <string>

#include "forebay/error.hpp"
#include "harness/benchmark.hpp"
#include "harness/command_line.hpp"
#include "harness/served.hpp"

int main(int argc, char** argv) {
  forebay::bench::benchmark const& program = forebay::bench::this_benchmark;
  if (std::any_of(argv + 1, argv + argc, [](char const* argument) { return std::string(argument) == "--help"; })) {
    std::cout << forebay::bench::usage(std::filesystem::path(argv[0]).filename().string(), program.with_value,
                                       program.switches);
    return std::cout.flush() ? 0 : 1;
  }
  for (auto const& [name, value] : program.environment) ::setenv(name.c_str(), value.c_str(), 0);
  try {
    forebay::bench::command_line const given(argc, argv, program.with_value, program.switches);
    if (given.has("--serve")) {
      return forebay::bench::serve_drives(given.text("--serve", ""), given.text("--socket", ""));
    }
    given.check_json();
    return program.run(given);
  } catch (forebay::refused_input const& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 2;
  } catch (std::exception const& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}
