// SPDX-License-Identifier: Apache-2.0
//! \file
//! QEMU's drives for a machine of the storage suites, and the shapes in which the suites want them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "support/qemu_scheme.hpp"

namespace forebay::storage_test {

/// What suite_drives.hpp looks for. `Shape` has `block_bytes`, and `keys`, which are added to each URI.
template <class Shape>
struct qemu_drives {
  static constexpr std::uint32_t block_bytes = Shape::block_bytes;
  static std::string drive(std::string const& emulated) { return test::qemu_instead_of(emulated, Shape::keys); }
  static void require() { FOREBAY_NEEDS_QEMU(); }
};

struct blocks_of_4096 {
  static constexpr std::uint32_t block_bytes = 4096;
  static constexpr char const* keys = ",lba_bytes=4096";
};
/// Of 512 bytes, of which a command moves 8 KiB at most.
struct small_commands_in_the_second_namespace {
  static constexpr std::uint32_t block_bytes = 512;
  static constexpr char const* keys = ",mdts=1,nsid=2";
};
/// The same, with commands of 64 KiB: those of a cache hold a page.
struct second_namespace {
  static constexpr std::uint32_t block_bytes = 512;
  static constexpr char const* keys = ",mdts=4,nsid=2";
};

struct shape_names {
  template <class Machine>
  static std::string GetName(int) {
    return Machine::block_bytes == 4096 ? "BlocksOf4096" : "SmallCommandsInTheSecondNamespace";
  }
};

}  // namespace forebay::storage_test
