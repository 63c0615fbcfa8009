// SPDX-License-Identifier: Apache-2.0
// What a run's time is divided into, against a reference that looks at each nanosecond.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "apps/transfer/attribution.hpp"
#include "forebay/error.hpp"

namespace forebay::transfer {
namespace {

constexpr auto copy = activity_kind::copy;
constexpr auto kernel = activity_kind::kernel;
constexpr auto allocation = activity_kind::allocation;
constexpr auto host = activity_kind::host;
constexpr auto call = activity_kind::call;

void expect(attribution const& found, std::vector<std::int64_t> const& exclusive, std::int64_t unattributed) {
  EXPECT_EQ(std::vector<std::int64_t>(std::begin(found.exclusive), std::end(found.exclusive)), exclusive);
  EXPECT_EQ(found.unattributed, unattributed);
  std::int64_t sum = found.unattributed;
  for (std::int64_t const part : found.exclusive) sum += part;
  EXPECT_EQ(sum, found.total);
}
std::vector<std::int64_t> sums_of(attribution const& found) {
  return {std::begin(found.sums), std::end(found.sums)};
}

TEST(Attribution, GivesTimeOfARunWithoutRecordsToNothing) {
  attribution const found = divide({}, {{100, 150}});
  expect(found, {0, 0, 0, 0, 0}, 50);
  EXPECT_EQ(found.total, 50);
  EXPECT_EQ(found.covered(), 0);
}

TEST(Attribution, CountsWhatFollowsEachOther) {
  // Not sorted, and each begins where another ends.
  attribution const found =
      divide({{kernel, {30, 70}}, {allocation, {0, 10}}, {host, {70, 90}}, {copy, {10, 30}}}, {{0, 100}});
  expect(found, {20, 40, 10, 20, 0}, 10);
  EXPECT_EQ(sums_of(found), (std::vector<std::int64_t>{20, 40, 10, 20, 0}));
  EXPECT_DOUBLE_EQ(found.covered(), 0.9);
}

TEST(Attribution, GivesWhatOverlapsToTheFirstKind) {
  // All five at once from 30 to 40; each kind that leaves gives way to the next.
  attribution const found = divide(
      {{call, {0, 130}}, {host, {10, 110}}, {allocation, {20, 90}}, {kernel, {20, 60}}, {copy, {30, 40}}}, {{0, 130}});
  expect(found, {10, 30, 30, 30, 30}, 0);
  EXPECT_EQ(sums_of(found), (std::vector<std::int64_t>{10, 40, 70, 100, 130}));
  EXPECT_DOUBLE_EQ(found.covered(), 1);
}

TEST(Attribution, CountsOverlapsOfOneKindOnce) {
  attribution const found = divide({{copy, {0, 60}}, {copy, {10, 20}}, {copy, {50, 80}}, {copy, {0, 60}}}, {{0, 100}});
  expect(found, {80, 0, 0, 0, 0}, 20);
  EXPECT_EQ(found.sums[0], 160);
}

TEST(Attribution, LeavesOutWhatLiesOutsideOfTheRun) {
  attribution const found = divide(
      {{copy, {0, 99}}, {kernel, {50, 120}}, {host, {190, 500}}, {allocation, {200, 300}}, {allocation, {0, 100}}},
      {{100, 200}});
  expect(found, {0, 20, 0, 10, 0}, 70);
  EXPECT_EQ(sums_of(found), (std::vector<std::int64_t>{0, 20, 0, 10, 0}));
}

TEST(Attribution, AddsUpThePartsOfARun) {
  // What is under way between the parts counts in neither.
  attribution const found = divide({{kernel, {10, 90}}, {copy, {20, 40}}}, {{0, 30}, {60, 100}});
  expect(found, {10, 10 + 30, 0, 0, 0}, 10 + 10);
  EXPECT_EQ(found.total, 70);
  EXPECT_EQ(sums_of(found), (std::vector<std::int64_t>{10, 50, 0, 0, 0}));
}

TEST(Attribution, GivesRecordsAndRunsWithoutLengthNoTime) {
  attribution const found = divide({{copy, {50, 50}}, {kernel, {0, 0}}}, {{0, 100}});
  expect(found, {0, 0, 0, 0, 0}, 100);
  attribution const none = divide({{copy, {0, 100}}}, {{70, 70}});
  expect(none, {0, 0, 0, 0, 0}, 0);
  EXPECT_EQ(none.covered(), 1);
}

TEST(Attribution, RefusesWhatEndsBeforeItBegins) {
  auto const message = [](std::vector<activity> const& activities, time_span run) -> std::string {
    try {
      divide(activities, {run});
    } catch (operation_failed const& failure) {
      return failure.what();
    }
    return "";
  };
  EXPECT_EQ(message({{kernel, {5, 2}}}, {0, 10}), "a record of a kernel ends 3 ns before it begins");
  EXPECT_EQ(message({{copy, {105, 102}}}, {0, 10}), "a record of a copy ends 3 ns before it begins");
  EXPECT_EQ(message({}, {10, 0}), "a part of the run ends 10 ns before it begins");
}

/// Looks at each nanosecond.
attribution reference(std::vector<activity> const& activities, std::vector<time_span> const& run) {
  attribution result;
  for (time_span const& part : run) {
    for (std::int64_t now = part.begin_ns; now < part.end_ns; ++now) {
      bool is_under_way[activity_kinds] = {};
      for (activity const& a : activities) {
        if (a.when.begin_ns > now || now >= a.when.end_ns) continue;
        is_under_way[static_cast<std::size_t>(a.kind)] = true;
        ++result.sums[static_cast<std::size_t>(a.kind)];
      }
      auto const* const first = std::find(std::begin(is_under_way), std::end(is_under_way), true);
      ++(first == std::end(is_under_way) ? result.unattributed : result.exclusive[first - is_under_way]);
      ++result.total;
    }
  }
  return result;
}

TEST(Attribution, AgreesWithTheReferenceOnRandomRecords) {
  char const* const given = std::getenv("FOREBAY_SEED");
  std::uint64_t const seed = given != nullptr ? std::stoull(given) : std::random_device()();
  SCOPED_TRACE("again: FOREBAY_SEED=" + std::to_string(seed) +
               " build/cpu/bin/apps_transfer_attribution_test --gtest_filter=*Reference*");
  std::mt19937_64 random(seed);
  auto const up_to = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
  for (int round = 0; round < 300; ++round) {
    std::vector<activity> activities(static_cast<std::size_t>(up_to(12)));
    for (activity& a : activities) {
      std::int64_t const begin = up_to(250);
      a = {static_cast<activity_kind>(up_to(activity_kinds - 1)), {begin, begin + up_to(round % 3 == 0 ? 4 : 80)}};
    }
    std::int64_t const begin = up_to(100), gap = begin + up_to(60), again = gap + up_to(30);
    std::vector<time_span> const run{{begin, gap}, {again, again + up_to(120)}};
    attribution const expected = reference(activities, run), found = divide(activities, run);
    expect(found, {std::begin(expected.exclusive), std::end(expected.exclusive)}, expected.unattributed);
    EXPECT_EQ(found.total, expected.total);
    EXPECT_EQ(sums_of(found), sums_of(expected));
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace forebay::transfer
