// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a test finds the files of the project and the programs that were built with it.
#pragma once

#include <string>

namespace forebay::test {

/// The path of `file`, which is named relative to the root of the sources.
std::string source_path(std::string const& file);

/// The path of the program `name` that was built into the folder of the running test.
std::string built_program(std::string const& name);

}  // namespace forebay::test
