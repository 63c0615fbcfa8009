// SPDX-License-Identifier: Apache-2.0
//! \file
//! A file or block device as the store of a drive, accessed by io_uring.
#pragma once

#include <cstdint>
#include <memory>

#include "forebay/detail/emulator/backing_store.hpp"
#include "opened_file.hpp"

namespace forebay::emulator {

/// The way that suits a file, for a drive that leaves the choice to us, and why.
struct file_choice {
  file_io io = file_io::mmap;
  std::string why;
};
file_choice choose_io(opened_file const& file);

/// Its `view` has a medium and no address. Throws `operation_failed`.
std::unique_ptr<backing_store> uring_store(opened_file file, std::uint32_t block_bytes, std::string const& why);

}  // namespace forebay::emulator
