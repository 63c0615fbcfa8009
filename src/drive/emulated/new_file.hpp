// SPDX-License-Identifier: Apache-2.0
//! \file
//! Makes the file of a drive so that no half-made file stays behind.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::drive {

enum class file_space : std::uint8_t {
  sparse,    ///< takes room on its disk as it is written
  reserved,  ///< has its room from the start, where the file system can give it; a disk without it is refused
};

/// A zeroed new file, on its disk together with its name. Its destructor removes it unless it is kept.
class new_file {
 public:
  /// Throws `refused_input` where there is a file of that name, none can be made, or the disk has no room for it; and
  /// `operation_failed` where it cannot have the size.
  new_file(std::string path, std::uint64_t bytes, file_space space);
  ~new_file();
  new_file(new_file const&) = delete;
  new_file& operator=(new_file const&) = delete;

  void keep() { kept_ = true; }

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace forebay::drive
