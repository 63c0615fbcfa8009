// SPDX-License-Identifier: Apache-2.0
//! \file
//! How long the tests' storages wait where a test does not say.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "forebay/storage/storage.hpp"

namespace forebay::storage_test {

/// The storages' default, or the seconds that FOREBAY_TEST_TIMEOUT_S names: a GPU under compute-sanitizer is slower by
/// orders of magnitude.
inline std::uint64_t patience_ns() {
  char const* const seconds = std::getenv("FOREBAY_TEST_TIMEOUT_S");
  return seconds != nullptr ? std::strtoull(seconds, nullptr, 10) * 1'000'000'000 : storage_options().timeout_ns;
}

}  // namespace forebay::storage_test
