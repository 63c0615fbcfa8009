// SPDX-License-Identifier: Apache-2.0
// Traces by CUPTI on the first GPU: each kind of activity is in them, and they divide a run's time.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "apps/transfer/activity.hpp"
#include "apps/transfer/registry.hpp"
#include "apps/transfer/run_on_gpu.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::transfer {
namespace {

using memory::check_cuda;

constexpr std::size_t bytes = 64 << 20;

std::int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class TransferTraces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (memory::device_count() == 0) GTEST_SKIP() << "no GPU here";
    try {
      activity_recorder const recorder({}, false, 0);
    } catch (operation_failed const& why) {
      GTEST_SKIP() << why.what();
    }
  }
  /// What `act` did, and the run that it was.
  template <class Act>
  attribution traced(activity_recorder& recorder, Act&& act) {
    recorder.begin();
    std::int64_t const begin_ns = now_ns();
    act();
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::int64_t const end_ns = now_ns();
    last_ = recorder.end();
    return divide(last_.activities, {{begin_ns, end_ns}});
  }
  static std::int64_t of(attribution const& found, activity_kind kind) {
    return found.sums[static_cast<std::size_t>(kind)];
  }
  static void copy_there_and_back() {
    std::vector<std::byte> host(bytes);
    void* device = nullptr;
    check_cuda(cudaMalloc(&device, bytes), "cudaMalloc");
    check_cuda(cudaMemcpy(device, host.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaMemset(device, 1, bytes), "cudaMemset");
    check_cuda(cudaMemcpy(host.data(), device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check_cuda(cudaFree(device), "cudaFree");
    EXPECT_EQ(host[bytes - 1], std::byte{1});
  }

  activity_trace last_;
};

TEST_F(TransferTraces, HaveEachCopyAndCallOnTheSteadyClock) {
  activity_recorder recorder({}, false, 0);
  for (int run = 0; run < 3; ++run) {
    attribution const found = traced(recorder, &copy_there_and_back);
    int counts[activity_kinds] = {};
    for (activity const& a : last_.activities) ++counts[static_cast<std::size_t>(a.kind)];
    EXPECT_EQ(counts[0], 2) << "copies";
    EXPECT_EQ(counts[1], 1) << "the memset";
    EXPECT_GE(counts[4], 5) << "calls";
    // On another clock they would lie outside of the run, and have no time in it.
    EXPECT_GT(of(found, activity_kind::copy), 0);
    EXPECT_GT(of(found, activity_kind::kernel), 0);
    EXPECT_GT(of(found, activity_kind::call), 0);
    EXPECT_FALSE(last_.pages);
  }
}

TEST_F(TransferTraces, HaveNothingOfBefore) {
  activity_recorder recorder({}, false, 0);
  copy_there_and_back();
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  traced(recorder, [] {});
  for (activity const& a : last_.activities) EXPECT_EQ(a.kind, activity_kind::call);
}

TEST_F(TransferTraces, CountThePagesThatMove) {
  activity_recorder recorder({}, true, 0);
  traced(recorder, [] {
    std::byte* managed = nullptr;
    check_cuda(cudaMallocManaged(reinterpret_cast<void**>(&managed), bytes, cudaMemAttachGlobal), "cudaMallocManaged");
    for (std::size_t at = 0; at < bytes; at += 4096) managed[at] = std::byte{1};
    check_cuda(cudaMemPrefetchAsync(managed, bytes, {cudaMemLocationTypeDevice, {0}}, 0, nullptr),
               "cudaMemPrefetchAsync");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaFree(managed), "cudaFree");
  });
  if (!last_.pages) {
    EXPECT_NE(last_.note, "");
    GTEST_SKIP() << last_.note;
  }
  EXPECT_EQ(last_.note, "");
  EXPECT_EQ(last_.pages->bytes_in, bytes);
  EXPECT_EQ(last_.pages->bytes_out, 0);
}

TEST_F(TransferTraces, AreOneAtATime) {
  activity_recorder const first({}, false, 0);
  std::string message;
  std::thread([&] {
    try {
      activity_recorder const second({}, false, 0);
    } catch (operation_failed const& why) {
      message = why.what();
    }
  }).join();
  EXPECT_EQ(message, "another trace of this process is under way");
}

TEST_F(TransferTraces, DivideTheRunsOfAWorkload) {
  auto const work = make_workload("saxpy", problem_size::tiny, {});
  for (transfer_kind const how : {transfer_kind::pageable, transfer_kind::pinned, transfer_kind::pinned_chunked,
                                  transfer_kind::managed_prefetch, transfer_kind::managed_fault}) {
    SCOPED_TRACE(transfer_names[static_cast<int>(how)]);
    gpu_run result;
    try {
      result = run_on_gpu(*work, {how, allocation_kind::malloc, stage_kind::plain}, 1, {.timed = 2, .traced = 2}, 0);
    } catch (refused_input const&) {
      continue;  // this GPU moves no pages
    }
    EXPECT_EQ(result.warm.size(), 2u);
    ASSERT_TRUE(result.traced) << result.traced_reason;
    EXPECT_EQ(result.traced_reason, "");
    EXPECT_EQ(result.traced->runs, 2u);
    attribution const& time = result.traced->time;
    std::int64_t sum = time.unattributed;
    for (std::int64_t const part : time.exclusive) sum += part;
    EXPECT_EQ(sum, time.total);
    EXPECT_GT(of(time, activity_kind::kernel), 0);
    EXPECT_GT(of(time, activity_kind::allocation), 0);
    bool const host_works = how == transfer_kind::pinned_chunked || how == transfer_kind::managed_fault;
    EXPECT_EQ(of(time, activity_kind::host) > 0, host_works);
    if (!is_managed(how)) {
      EXPECT_GT(of(time, activity_kind::copy), 0);
    }
    EXPECT_EQ(result.traced->pages.has_value(), is_managed(how) && result.traced->note.empty());
  }
}

TEST_F(TransferTraces, AreNotMadeUnlessAskedFor) {
  auto const work = make_workload("saxpy", problem_size::tiny, {});
  gpu_run const result = run_on_gpu(*work, {}, 1, {.timed = 1}, 0);
  EXPECT_FALSE(result.traced);
  EXPECT_EQ(result.traced_reason, "no trace was asked for");
}

}  // namespace
}  // namespace forebay::transfer
