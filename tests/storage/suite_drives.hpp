// SPDX-License-Identifier: Apache-2.0
//! \file
//! The drives that a suite's machine has in place of emulated ones.
#pragma once

#include <cstdint>
#include <string>

namespace forebay::storage_test {

/// What the tests of `Machine` open for `emulated`, the URI of an emulated drive: that with the machine's
/// `drive_keys()`, or what the machine's `drive()` makes of it.
template <class Machine>
std::string drive_of(std::string const& emulated) {
  if constexpr (requires { Machine::drive(emulated); }) {
    return Machine::drive(emulated);
  } else {
    return emulated + Machine::drive_keys();
  }
}

/// The size of such a drive's block.
template <class Machine>
constexpr std::uint32_t block_bytes_of() {
  if constexpr (requires { Machine::block_bytes; }) {
    return Machine::block_bytes;
  } else {
    return 512;
  }
}

/// Whether the drive reports a command for memory that nobody registered. QEMU drops the data and reports success.
template <class Machine>
constexpr bool checks_addresses() {
  return !requires { Machine::drive(std::string()); };
}

/// Skips the test if this machine's drives cannot be had.
template <class Machine>
void require_drives() {
  if constexpr (requires { Machine::require(); }) Machine::require();
}

}  // namespace forebay::storage_test
