// SPDX-License-Identifier: Apache-2.0
//! \file
//! Queues that are older than 2^32 and 2^33 commands. Tickets are 64 bits wide, but slots, phases and the 32-bit tags
//! of published entries wrap; real commands cross every such point here.
#include <gtest/gtest.h>

#include "support/queue_schedule.hpp"

namespace forebay::test {
namespace {

/// Commands before and after the crossing: two laps and more each.
std::uint64_t before_crossing(std::uint64_t depth) {
  return 4 * depth;
}

void cross(std::uint64_t boundary, std::uint32_t depth) {
  // The counters start at a whole number of lap pairs.
  std::uint64_t const unit = 2 * depth;
  std::uint64_t const first = (boundary - before_crossing(depth)) / unit * unit;
  ASSERT_LE(first + before_crossing(depth), boundary);
  std::uint64_t const commands = boundary - first + depth + depth / 4 + 2;
  std::uint64_t const schedules = depth > 32 ? 2 : 12;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    schedule_shape shape;
    shape.sq_entries = shape.cq_entries = depth;
    shape.first_ticket = first;
    shape.lanes = {1, 4, 0};
    shape.requests_per_lane = static_cast<std::uint32_t>(commands / 4 + 1);
    shape.open_per_lane = depth > 32 ? 2 * depth : 4;
    shape.max_blocks = 1;
    shape.faults.seed = seed;
    shape.faults.delay_ppm = 300'000;
    shape.faults.delay_max_ns = 20'000;
    auto const outcome = run_schedule(shape, seed, mode_of(seed));
    ASSERT_TRUE(outcome.ok) << outcome.what << "\n  boundary " << boundary << ", depth " << depth << ", seed " << seed
                            << ", " << name_of(mode_of(seed));
    ASSERT_GT(first + outcome.commands, boundary + depth);
  }
}

class FirstTicket : public testing::TestWithParam<std::uint32_t> {};

TEST_P(FirstTicket, CommandsCrossTwoToThe32) {
  cross(std::uint64_t{1} << 32, GetParam());
}
TEST_P(FirstTicket, CommandsCrossTwoToThe33) {
  cross(std::uint64_t{1} << 33, GetParam());
}
TEST_P(FirstTicket, CommandsCrossThreeTimesTwoToThe32) {
  cross(std::uint64_t{3} << 32, GetParam());
}
/// Where the 32-bit tag of a published entry starts again from 0.
TEST_P(FirstTicket, CommandsCrossTwoToThe32Laps) {
  cross((std::uint64_t{1} << 32) * GetParam(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Depth, FirstTicket, testing::Values(2, 3, 4, 32, 1023, 1024),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace forebay::test
