// SPDX-License-Identifier: Apache-2.0
//! \file
//! An open file that has an owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace forebay::drive {

/// Closes the file when it is destroyed. Move-only.
class open_file {
 public:
  open_file() = default;
  explicit open_file(int number) : number_(number) {}
  open_file(open_file&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  open_file& operator=(open_file&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~open_file() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  /// Owns it no more, and leaves it open.
  int release() { return std::exchange(number_, -1); }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

}  // namespace forebay::drive
