// SPDX-License-Identifier: Apache-2.0
//! \file
//! The settings of a test from the environment: how much of it runs, and which seed.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace forebay::test {

/// The variable `name`, in decimal or with 0x, or `otherwise` where it is not set.
inline std::uint64_t number_from_environment(char const* name, std::uint64_t otherwise) {
  char const* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 0);
}

}  // namespace forebay::test
