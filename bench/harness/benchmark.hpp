// SPDX-License-Identifier: Apache-2.0
//! \file
//! The interface of a program of `bench/`, for the `main` that all of them share (main.cpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/command_line.hpp"

namespace forebay::bench {

struct benchmark {
  /// Options that take a value, beside `--json`, and those that take none, beside `--help`.
  std::vector<option> with_value;
  std::vector<option> switches;
  /// Variables that CUDA reads when it is first used: set before that, unless the environment has them.
  std::vector<std::pair<std::string, std::string>> environment;
  /// Measures, writes the document and returns the exit status: 0 if all that was measured was also verified. Throws
  /// `refused_input` (exit status 2) or another exception (1).
  int (*run)(command_line const& given);
};

/// So that code is not loaded while a drive's engine runs: loading would wait for the engine.
inline std::pair<std::string, std::string> const load_all_code{"CUDA_MODULE_LOADING", "EAGER"};

/// Each program defines its own.
extern benchmark const this_benchmark;

}  // namespace forebay::bench
