// SPDX-License-Identifier: Apache-2.0
//! \file
//! Each policy makes a GPU hit as often as it makes a CPU, set by set.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "forebay/memory.hpp"
#include "policy_hits.hpp"
#include "policy_models.hpp"

namespace forebay::test {
namespace {

template <class Policy>
class PolicyOnGpu : public testing::Test {};
using policies = testing::Types<replacement::clock, replacement::s3_fifo, lru>;
struct policy_names {
  template <class Policy>
  static std::string GetName(int) {
    return Policy::name;
  }
};
TYPED_TEST_SUITE(PolicyOnGpu, policies, policy_names);

TYPED_TEST(PolicyOnGpu, HitsAsOftenAsOnTheCpu) {
  if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  constexpr std::uint32_t sets = 64;
  for (std::uint32_t const ways : {16u, 11u, 2u}) {
    std::uint64_t const frames = std::uint64_t{sets} * ways;
    trace_of_pages const trace = mixed_trace(zipf_trace(16 * frames, 0.9, 20'000, 7), loop_trace(0, frames, 20'000));
    ASSERT_EQ(hits_by_set_on_gpu<TypeParam>(trace, sets, ways), hits_by_set<TypeParam>(trace, sets, ways))
        << ways << " ways";
  }
}

}  // namespace
}  // namespace forebay::test
