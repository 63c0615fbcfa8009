// SPDX-License-Identifier: Apache-2.0
#include "forebay/launch_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/error.hpp"
#include "storage/launch_report_on_gpu.hpp"

namespace forebay {
namespace {

using testing::HasSubstr;
using testing::Not;

struct nothing {
  void operator()() const {}
};

launch_report::gpu_use some_use() {
  return {.registers_per_thread = 40,
          .local_bytes_per_thread = 0,
          .static_shared_bytes = 16,
          .max_threads_per_block = 1024,
          .resident_blocks_per_sm = 12,
          .max_threads_per_sm = 2048,
          .sms = 132,
          .limited_by = "registers"};
}

TEST(LaunchReport, OnTheCpuSaysSo) {
  launch_report const report = report_launch<simt::fiber>({.blocks = 4, .threads_per_block = 64}, nothing{});
  EXPECT_FALSE(report.gpu.has_value());
  EXPECT_EQ(report.device, "cpu");
  EXPECT_EQ(report.occupancy(), 0);
  EXPECT_THAT(report.text(), HasSubstr("cpu: 4 blocks of 64 threads"));
  EXPECT_THAT(report.text(), HasSubstr("fibers"));
  EXPECT_EQ(report.json(), R"({"device":"cpu","blocks":4,"threads_per_block":64,"dynamic_shared_bytes":0,"gpu":null})");
}

TEST(LaunchReport, RefusesAnEmptyShape) {
  EXPECT_THROW(report_launch<simt::fiber>({.blocks = 0, .threads_per_block = 64}, nothing{}), refused_input);
  EXPECT_THROW(report_launch<simt::fiber>({.blocks = 1, .threads_per_block = 0}, nothing{}), refused_input);
}

TEST(LaunchReport, OfAGpuSaysWhatAThreadTakesAndHowManyBlocksRunAtATime) {
  launch_report const report{"some GPU", {.blocks = 1585, .threads_per_block = 128, .shared_bytes = 1}, some_use()};
  EXPECT_DOUBLE_EQ(report.occupancy(), 0.75);
  EXPECT_EQ(report.text(),
            "some GPU: 1585 blocks of 128 threads, 1 byte of dynamic shared memory each\n"
            "  registers a thread       40\n"
            "  local memory a thread    0 bytes: nothing is spilled\n"
            "  static shared memory     16 bytes\n"
            "  threads a block, at most 1024\n"
            "  resident blocks an SM    12, limited by registers\n"
            "  occupancy                75 % (1536 of 2048 threads an SM)\n"
            "  places on an idle GPU    1584 blocks, 132 SMs: blocks wait for others to end\n");
  auto const gpu = nlohmann::json::parse(report.json()).at("gpu");
  EXPECT_EQ(gpu.at("registers_per_thread"), 40);
  EXPECT_EQ(gpu.at("local_bytes_per_thread"), 0);
  EXPECT_EQ(gpu.at("static_shared_bytes"), 16);
  EXPECT_EQ(gpu.at("max_threads_per_block"), 1024);
  EXPECT_EQ(gpu.at("resident_blocks_per_sm"), 12);
  EXPECT_EQ(gpu.at("max_threads_per_sm"), 2048);
  EXPECT_EQ(gpu.at("sms"), 132);
  EXPECT_EQ(gpu.at("limited_by"), "registers");
  EXPECT_DOUBLE_EQ(gpu.at("occupancy"), 0.75);
}

TEST(LaunchReport, TellsOfSpillsAndOfShapesThatCannotBeLaunched) {
  launch_report report{"some GPU", {.blocks = 1584, .threads_per_block = 128}, some_use()};
  EXPECT_THAT(report.text(), HasSubstr("all blocks run at once"));
  report.gpu->local_bytes_per_thread = 1;
  EXPECT_THAT(report.text(), HasSubstr("local memory a thread    1 byte\n"));
  report.gpu->resident_blocks_per_sm = 0;
  report.gpu->limited_by = "max_threads_per_block";
  EXPECT_THAT(report.text(), HasSubstr("none: it cannot be launched like this (max_threads_per_block)"));
  EXPECT_THAT(report.text(), Not(HasSubstr("places")));
}

TEST(LaunchReport, NamesWhatKeepsMoreBlocksFromBeingResident) {
  detail::sm_limits const sm{.max_blocks = 32, .shared_bytes = 228 * 1024, .reserved_shared_bytes_per_block = 1024};
  auto const limit = [&](std::uint32_t resident, simt::grid const& shape, std::uint64_t static_shared_bytes = 0) {
    launch_report::gpu_use use = some_use();
    use.resident_blocks_per_sm = resident;
    use.static_shared_bytes = static_shared_bytes;
    return detail::what_limits(use, shape, sm);
  };
  EXPECT_EQ(limit(12, {1, 128, 0}), "registers");
  EXPECT_EQ(limit(16, {1, 128, 0}), "threads");
  EXPECT_EQ(limit(16, {1, 97, 0}), "threads") << "a block takes whole warps";
  EXPECT_EQ(limit(32, {1, 32, 0}), "blocks");
  EXPECT_EQ(limit(4, {1, 128, 48 * 1024}), "shared_memory");
  EXPECT_EQ(limit(4, {1, 128, 16 * 1024}, 32 * 1024), "shared_memory");
  EXPECT_EQ(limit(3, {1, 128, 48 * 1024}), "registers");
  EXPECT_EQ(limit(0, {1, 1025, 0}), "max_threads_per_block");
}

}  // namespace
}  // namespace forebay
