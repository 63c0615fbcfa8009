// SPDX-License-Identifier: Apache-2.0
#include "support/folders.hpp"

#include <filesystem>

namespace forebay::test {

std::string source_path(std::string const& file) {
  return FOREBAY_SOURCE_DIR "/" + file;
}

std::string built_program(std::string const& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

}  // namespace forebay::test
