// SPDX-License-Identifier: Apache-2.0
//! \file
//! Another machine's /sys, in files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "drive/pci/function.hpp"

namespace forebay::drive::pci {

/// Files as the system has them below its root, in a temporary folder.
class system_files {
 public:
  system_files() : top_(std::filesystem::path(testing::TempDir()) / ("forebay_pci_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(top_);
  }
  ~system_files() { std::filesystem::remove_all(top_); }
  system_files(system_files const&) = delete;
  system_files& operator=(system_files const&) = delete;

  void write(std::string const& file, std::string const& text) const {
    std::filesystem::create_directories((top_ / file).parent_path());
    std::ofstream(top_ / file) << text << '\n';
  }
  void link(std::string const& from, std::string const& to) const {
    std::filesystem::create_directories((top_ / from).parent_path());
    std::filesystem::create_symlink(to, top_ / from);
  }
  std::string read(std::string const& file) const {
    std::ifstream from(top_ / file);
    return {std::istreambuf_iterator<char>(from), {}};
  }
  std::filesystem::path const& top() const { return top_; }
  places where() const { return places::below(top_); }

 private:
  std::filesystem::path const top_;
};

}  // namespace forebay::drive::pci
