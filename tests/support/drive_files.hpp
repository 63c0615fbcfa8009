// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace forebay::test {

/// Files of zeros for drives, which outlive the storages that open them. Named after the process, so that tests do not
/// share them.
class drive_files {
 public:
  drive_files(std::uint32_t count, std::uint64_t bytes) {
    for (std::uint32_t i = 0; i < count; ++i) {
      paths_.push_back(testing::TempDir() + "forebay-drive-" + std::to_string(getpid()) + "-" + std::to_string(i));
      std::ofstream(paths_.back(), std::ios::trunc).close();
      EXPECT_EQ(truncate(paths_.back().c_str(), static_cast<off_t>(bytes)), 0) << paths_.back();
    }
  }
  ~drive_files() {
    for (std::string const& path : paths_) unlink(path.c_str());
  }
  drive_files(drive_files const&) = delete;
  drive_files& operator=(drive_files const&) = delete;

  std::vector<std::string> const& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
};

}  // namespace forebay::test
