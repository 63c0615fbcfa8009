// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>

#include "forebay/detail/simt/cuda.hpp"
#include "forebay/error.hpp"
#include "forebay/launch_report.hpp"
#include "forebay/memory.hpp"

namespace forebay {
namespace {

struct adds_one {
  std::uint32_t* words;
  FOREBAY_DEVICE void operator()() const { words[simt::cuda::thread_rank()] += 1; }
};
struct adds_one_in_small_blocks : adds_one {
  static constexpr unsigned max_threads_per_block = 128;
};
/// Indexes an array at run time, which registers do not allow.
struct shuffles {
  std::uint32_t* words;
  FOREBAY_DEVICE void operator()() const {
    std::uint32_t table[64];
    for (std::uint32_t k = 0; k < 64; ++k) table[words[k] % 64] = k;
    words[64 + simt::cuda::thread_rank()] = table[words[simt::cuda::thread_rank()] % 64];
  }
};

class LaunchReportOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(LaunchReportOnGpu, OfASmallKernelIsFullOccupancyWithoutSpills) {
  launch_report const report = report_launch<simt::cuda>({.blocks = 2, .threads_per_block = 256}, adds_one{});
  ASSERT_TRUE(report.gpu.has_value());
  EXPECT_FALSE(report.device.empty());
  EXPECT_GT(report.gpu->registers_per_thread, 0u);
  EXPECT_LE(report.gpu->registers_per_thread, 32u);
  EXPECT_EQ(report.gpu->local_bytes_per_thread, 0u);
  EXPECT_EQ(report.gpu->static_shared_bytes, 0u);
  EXPECT_EQ(report.gpu->max_threads_per_block, 1024u);
  EXPECT_GT(report.gpu->sms, 0u);
  EXPECT_EQ(report.gpu->limited_by, "threads");
  EXPECT_DOUBLE_EQ(report.occupancy(), 1.0);
}

TEST_F(LaunchReportOnGpu, IsOfTheKernelThatALaunchWouldStart) {
  launch_report const report =
      report_launch<simt::cuda>({.blocks = 2, .threads_per_block = 256}, adds_one_in_small_blocks{});
  EXPECT_EQ(report.gpu->max_threads_per_block, 128u);
  EXPECT_EQ(report.gpu->resident_blocks_per_sm, 0u);
  EXPECT_EQ(report.gpu->limited_by, "max_threads_per_block");
}

TEST_F(LaunchReportOnGpu, CountsLocalMemory) {
  launch_report const report = report_launch<simt::cuda>({.blocks = 1, .threads_per_block = 64}, shuffles{});
  EXPECT_GE(report.gpu->local_bytes_per_thread, 256u);
}

TEST_F(LaunchReportOnGpu, CountsDynamicSharedMemory) {
  launch_report const report =
      report_launch<simt::cuda>({.blocks = 1, .threads_per_block = 64, .shared_bytes = 64 * 1024}, adds_one{});
  EXPECT_GE(report.gpu->resident_blocks_per_sm, 1u);
  EXPECT_LE(report.gpu->resident_blocks_per_sm, 3u);
  EXPECT_EQ(report.gpu->limited_by, "shared_memory");
  EXPECT_THROW(report_launch<simt::cuda>({.blocks = 1, .threads_per_block = 64, .shared_bytes = 1u << 30}, adds_one{}),
               operation_failed);
}

}  // namespace
}  // namespace forebay
