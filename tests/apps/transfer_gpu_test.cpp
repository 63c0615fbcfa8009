// SPDX-License-Identifier: Apache-2.0
//! \file
//! The transfer suite on a GPU: every way of moving a small workload's bytes, and every arm of the pipeline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "apps/transfer/device_memory.hpp"
#include "apps/transfer/gpu_buffers.hpp"
#include "apps/transfer/pipeline.hpp"
#include "apps/transfer/registry.hpp"
#include "apps/transfer/run_on_gpu.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::transfer {
namespace {

constexpr transfer_kind all_transfers[] = {
    transfer_kind::pageable,      transfer_kind::pinned,           transfer_kind::pinned_chunked,
    transfer_kind::managed_fault, transfer_kind::managed_prefetch, transfer_kind::managed_prefetch_overlapped,
    transfer_kind::mapped,        transfer_kind::system,           transfer_kind::batch};
static_assert(std::size(all_transfers) == std::size(transfer_names));
constexpr allocation_kind all_allocations[] = {allocation_kind::malloc, allocation_kind::pool,
                                               allocation_kind::chunked};

std::string name_of(transfer_kind how) {
  return std::string(transfer_names[static_cast<int>(how)]);
}
std::string name_of(allocation_kind how) {
  return std::string(allocation_names[static_cast<int>(how)]);
}
std::string name_of(pipeline_arm arm) {
  return std::string(arm_names[static_cast<int>(arm)]);
}

class on_gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (memory::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

using mode_parameters = std::tuple<transfer_kind, allocation_kind>;
class TransferModes : public on_gpu, public ::testing::WithParamInterface<mode_parameters> {};

TEST_P(TransferModes, BringInputAndResultsAgainAndAgain) {
  auto const [transfer, allocation] = GetParam();
  auto const work = make_workload("saxpy", problem_size::tiny);
  try {
    gpu_buffers memory(work->buffers(), transfer, allocation, 0);
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      memory.allocate();
      work->init(seed, memory.host());
      memory.to_device();
      work->start_on_gpu(stage_kind::plain, memory.device(), memory.stream().get());
      memory.to_host();
      memory.finish();
      EXPECT_EQ(work->mismatch(seed, memory.host()), "") << "seed " << seed;
      memory.release();
    }
  } catch (refused_input const& refusal) {
    ASSERT_EQ(refusal.field(), "--mode");
    GTEST_SKIP() << refusal.what();
  }
}

TEST_P(TransferModes, AreVerifiedAndTimed) {
  auto const [transfer, allocation] = GetParam();
  // It has scratch buffers, and one that is read and written.
  auto const work = make_workload("hotspot", problem_size::tiny);
  try {
    gpu_run const result = run_on_gpu(*work, {transfer, allocation, stage_kind::bulk}, 1, {.timed = 2}, 0);
    EXPECT_EQ(result.mismatch, "");
    ASSERT_EQ(result.warm.size(), 2u);
    for (run_times const& t : result.warm) {
      EXPECT_GT(t.kernels, 0);
      EXPECT_GE(t.total, t.allocation + t.release);
    }
  } catch (refused_input const& refusal) {
    ASSERT_EQ(refusal.field(), "--mode");
    GTEST_SKIP() << refusal.what();
  }
}

INSTANTIATE_TEST_SUITE_P(All, TransferModes,
                         ::testing::Combine(::testing::ValuesIn(all_transfers), ::testing::ValuesIn(all_allocations)),
                         [](auto const& test) {
                           return name_of(std::get<0>(test.param)) + "_" + name_of(std::get<1>(test.param));
                         });

class TransferDeviceMemory : public on_gpu, public ::testing::WithParamInterface<allocation_kind> {};

TEST_P(TransferDeviceMemory, IsFreedOrKeptAsItWasAsked) {
  memory::current_device const here(0);
  memory::cuda_stream const stream(0);
  auto const free_bytes = [&] {
    memory::check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::size_t free = 0, total = 0;
    memory::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  };
  constexpr std::uint64_t bytes = std::uint64_t{512} << 20;
  for (std::uint64_t const kept : {std::uint64_t{0}, keep_all}) {
    std::size_t const before = free_bytes();
    {
      auto const from = make_device_memory(GetParam(), 0, kept);
      for (int i = 0; i < 3; ++i) {
        std::byte* const address = from->make(bytes, stream.get());
        memory::check_cuda(cudaMemsetAsync(address, i, bytes, stream.get()), "cudaMemsetAsync");
        EXPECT_LE(free_bytes() + bytes, before);
        from->free(address, stream.get());
        bool const keeps = kept == keep_all && GetParam() != allocation_kind::malloc;
        EXPECT_EQ(free_bytes() + bytes <= before, keeps);
      }
      // More than any GPU has, and less than it has addresses: chunks run out when many are mapped.
      EXPECT_THROW(from->make(std::uint64_t{1} << 40, stream.get()), operation_failed);
    }
    // Nor does what failed half way keep any.
    EXPECT_LT(before, free_bytes() + bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, TransferDeviceMemory, ::testing::ValuesIn(all_allocations),
                         [](auto const& test) { return name_of(test.param); });

using arm_parameters = std::tuple<pipeline_arm, allocation_kind>;
class TransferArms : public on_gpu, public ::testing::WithParamInterface<arm_parameters> {};

TEST_P(TransferArms, GiveRightResultsOfEachJob) {
  auto const [arm, allocation] = GetParam();
  for (char const* const name : {"saxpy", "hotspot"}) {
    SCOPED_TRACE(name);
    constexpr std::uint32_t jobs = 4;
    pipeline several(make_workload(name, problem_size::tiny), {.jobs = jobs, .allocation = allocation, .seed = 7});
    for (int run = 0; run < 2; ++run) {
      pipeline_run const result = several.run(arm, 3);
      EXPECT_EQ(result.mismatch, "");
      EXPECT_EQ(result.verified_jobs, jobs);
      EXPECT_EQ(result.compared_jobs, run == 0 ? 1u : 0u) << "others are equal to the last bit";
      ASSERT_EQ(result.seconds.size(), 3u);
      ASSERT_EQ(result.allocation_seconds.size(), 3u);
      for (double const seconds : result.seconds) EXPECT_GT(seconds, 0);
      for (double const seconds : result.allocation_seconds) EXPECT_GT(seconds, 0);
    }
  }
}

TEST_P(TransferArms, RunOneJob) {
  auto const [arm, allocation] = GetParam();
  pipeline one(make_workload("saxpy", problem_size::tiny), {.jobs = 1, .allocation = allocation});
  pipeline_run const result = one.run(arm, 1);
  EXPECT_EQ(result.mismatch, "");
  EXPECT_EQ(result.verified_jobs, 1u);
}

std::vector<arm_parameters> all_parameters() {
  std::vector<arm_parameters> all;
  for (pipeline_arm const arm : all_arms) {
    all.emplace_back(arm, allocation_kind::malloc);
    if (!facts_of(arm).is_pool) all.emplace_back(arm, allocation_kind::chunked);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, TransferArms, ::testing::ValuesIn(all_parameters()), [](auto const& test) {
  return name_of(std::get<0>(test.param)) + "_" + name_of(std::get<1>(test.param));
});

class TransferPipelineOnGpu : public on_gpu {};

TEST_F(TransferPipelineOnGpu, RefusesWhatCannotBe) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  pipeline chunked(make_workload("saxpy", problem_size::tiny), {.allocation = allocation_kind::chunked});
  EXPECT_THAT([&] { chunked.run(pipeline_arm::pool_side_stream, 1); },
              ThrowsMessage<refused_input>(HasSubstr("--arm: 'pool_side_stream': has a pool")));
  EXPECT_THROW(pipeline(make_workload("saxpy", problem_size::tiny), {.allocation = allocation_kind::pool}),
               refused_input);
  EXPECT_THROW(pipeline(make_workload("saxpy", problem_size::tiny), {.jobs = 0}), refused_input);
}

}  // namespace
}  // namespace forebay::transfer
