// SPDX-License-Identifier: Apache-2.0
//! \file
//! The `main` of the benchmarks: runs `this_benchmark`.
#include <cstdlib>
#include <exception>
#include <iostream>

#include "forebay/error.hpp"
#include "harness/benchmark.hpp"
#include "harness/command_line.hpp"

int main(int argc, char** argv) {
  forebay::bench::benchmark const& program = forebay::bench::this_benchmark;
  for (auto const& [name, value] : program.environment) ::setenv(name.c_str(), value.c_str(), 0);
  try {
    return program.run({argc, argv, program.with_value, program.switches});
  } catch (forebay::refused_input const& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 2;
  } catch (std::exception const& error) {
    std::cerr << argv[0] << ": " << error.what() << '\n';
    return 1;
  }
}
