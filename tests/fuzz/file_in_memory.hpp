// SPDX-License-Identifier: Apache-2.0
//! \file
//! A file for code that takes a path, without a disk.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "support/demand.hpp"

namespace forebay::fuzz {

/// Holds bytes under a path until it is destroyed.
class file_in_memory {
 public:
  file_in_memory(std::uint8_t const* data, std::size_t bytes) : number_(memfd_create("forebay-fuzz", MFD_CLOEXEC)) {
    test::demand(number_ >= 0 && ::write(number_, data, bytes) == static_cast<ssize_t>(bytes), "a file in memory");
  }
  ~file_in_memory() { ::close(number_); }
  file_in_memory(file_in_memory const&) = delete;
  file_in_memory& operator=(file_in_memory const&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(number_); }

 private:
  int number_;
};

}  // namespace forebay::fuzz
