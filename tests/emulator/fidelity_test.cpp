// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/fidelity.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "forebay/detail/simt/native.hpp"

namespace forebay::emulator {
namespace {

timing_parameters drive_of(std::uint64_t latency_us) {
  timing_parameters p;
  p.read.latency_min_ps = p.write.latency_min_ps = latency_us * 1'000'000;
  return p;
}

/// What a drive observed whose commands all had the same target and were `late_ns` late, but one in `one_in`, which was
/// `tail_ns` late.
std::unique_ptr<statistics> observed(std::uint64_t target_ns, std::uint64_t late_ns, std::uint64_t one_in = 0,
                                     std::uint64_t tail_ns = 0) {
  auto result = std::make_unique<statistics>();
  for (std::uint64_t command = 1; command <= 1000; ++command) {
    bool const in_tail = one_in != 0 && command % one_in == 0;
    result->target.record_one<simt::native>(target_ns);
    result->lateness.record_one<simt::native>(in_tail ? tail_ns : late_ns);
  }
  return result;
}

TEST(fidelity, bound_is_five_microseconds_or_a_tenth_of_the_latency) {
  EXPECT_EQ(lateness_bound_ns(timing_parameters{}), 5000u);
  timing_parameters p = drive_of(500);
  EXPECT_EQ(lateness_bound_ns(p), 50'000u);
  p.write.latency_min_ps = 80'000'000;
  EXPECT_EQ(lateness_bound_ns(p), 8000u);
}

TEST(fidelity, an_unused_drive_kept_its_times) {
  fidelity const verdict = judge(statistics{}, drive_of(50));
  EXPECT_TRUE(verdict.kept);
  EXPECT_FALSE(verdict.has_model);
  EXPECT_FALSE(verdict.loaded);
}

TEST(fidelity, says_how_much_later_the_mean_command_was_and_what_that_cost_at_most) {
  fidelity const verdict = judge(*observed(100'000, 25'000), drive_of(50));
  EXPECT_TRUE(verdict.has_model);
  EXPECT_DOUBLE_EQ(verdict.of_target, 0.25);
  EXPECT_DOUBLE_EQ(verdict.rate_lost_at_most, 0.2);
  EXPECT_FALSE(verdict.kept);
}

TEST(fidelity, one_in_fifty_beyond_the_bound_is_too_late_where_commands_do_not_wait) {
  EXPECT_FALSE(judge(*observed(50'000, 100, 50, 6000), drive_of(50)).loaded);
  EXPECT_FALSE(judge(*observed(50'000, 100, 50, 6000), drive_of(50)).kept);
  EXPECT_TRUE(judge(*observed(50'000, 100, 200, 6000), drive_of(50)).kept) << "one in 200 is not the p99";
}

TEST(fidelity, the_same_is_kept_where_commands_wait_for_other_commands) {
  fidelity const verdict = judge(*observed(2'000'000, 200, 50, 24'000), drive_of(50));
  EXPECT_TRUE(verdict.loaded);
  EXPECT_TRUE(verdict.kept);
}

TEST(fidelity, a_drive_is_loaded_from_twice_the_latency_of_the_slower_operation) {
  timing_parameters p = drive_of(50);
  EXPECT_FALSE(judge(*observed(99'999, 0), p).loaded);
  EXPECT_TRUE(judge(*observed(100'000, 0), p).loaded);
  p.read.latency_min_ps = 60'000'000;
  EXPECT_FALSE(judge(*observed(119'999, 0), p).loaded);
  EXPECT_TRUE(judge(*observed(120'000, 0), p).loaded);
}

TEST(fidelity, under_load_the_mean_may_be_one_percent_late) {
  EXPECT_TRUE(judge(*observed(1'000'000, 10'000), drive_of(50)).kept);
  EXPECT_FALSE(judge(*observed(1'000'000, 10'001), drive_of(50)).kept);
}

TEST(fidelity, under_load_one_in_a_hundred_may_be_a_tenth_of_the_mean_target_late) {
  // Powers of two less one end a bin, so that the percentile is exact.
  EXPECT_TRUE(judge(*observed(1'310'710, 0, 50, 131'071), drive_of(50)).kept);
  EXPECT_FALSE(judge(*observed(1'310'709, 0, 50, 131'071), drive_of(50)).kept);
}

}  // namespace
}  // namespace forebay::emulator
