// SPDX-License-Identifier: Apache-2.0
//! \file
//! The seed of a randomised test: FOREBAY_SEED, or a new one each run, shown with how to replay it when a check fails.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

namespace forebay::emulator::testing {

inline std::uint64_t test_seed() {
  if (char const* const given = std::getenv("FOREBAY_SEED"); given != nullptr) return std::strtoull(given, nullptr, 10);
  return std::random_device{}();
}

inline std::string replay(std::uint64_t seed) {
  auto const* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  return "replay with FOREBAY_SEED=" + std::to_string(seed) + " " + ::testing::internal::GetArgvs().front() +
         " --gtest_filter=" + test->test_suite_name() + "." + test->name();
}

}  // namespace forebay::emulator::testing
