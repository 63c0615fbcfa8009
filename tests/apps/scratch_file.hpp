// SPDX-License-Identifier: Apache-2.0
//! \file
//! A file that exists as long as a test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace forebay::testing {

/// `bytes` zeros that are on the disk.
class scratch_file {
 public:
  explicit scratch_file(std::uint64_t bytes) {
    std::string name = (std::filesystem::temp_directory_path() / "forebay-test-XXXXXX").string();
    int const descriptor = ::mkstemp(name.data());
    path_ = name;
    std::vector<char> const zeros(bytes);
    EXPECT_EQ(::write(descriptor, zeros.data(), zeros.size()), static_cast<ssize_t>(bytes));
    ::close(descriptor);
  }
  scratch_file(scratch_file const&) = delete;
  scratch_file& operator=(scratch_file const&) = delete;
  ~scratch_file() { std::filesystem::remove(path_); }

  std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace forebay::testing
