// SPDX-License-Identifier: Apache-2.0
//! \file
//! How long the tests' storages wait if a test does not say, and the watchdog that looks meanwhile.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "forebay/storage.hpp"

namespace forebay::storage_test {

/// The storages' default, or the seconds that FOREBAY_TEST_TIMEOUT_S names: a GPU under compute-sanitizer is slower by
/// orders of magnitude.
inline std::uint64_t patience_ns() {
  char const* const seconds = std::getenv("FOREBAY_TEST_TIMEOUT_S");
  return seconds != nullptr ? std::strtoull(seconds, nullptr, 10) * 1'000'000'000 : storage_options().timeout_ns;
}

/// With FOREBAY_TEST_WATCH, a watchdog: when a test gets stuck it writes to standard error what waits for what.
inline std::optional<watchdog> watched(storage const& st) {
  if (std::getenv("FOREBAY_TEST_WATCH") == nullptr) return std::nullopt;
  return st.watch(watchdog_options());
}

}  // namespace forebay::storage_test
