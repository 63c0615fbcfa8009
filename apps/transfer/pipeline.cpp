// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/pipeline.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/transfer/device_memory.hpp"
#include "apps/transfer/gpu_lanes.hpp"
#include "apps/transfer/job_data.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/error.hpp"

namespace forebay::transfer {
namespace {

using memory::check_cuda;

std::string name_of(pipeline_arm arm) {
  return std::string(arm_names[static_cast<int>(arm)]);
}

allocation_kind allocation_of(pipeline_arm arm, allocation_kind others) {
  return facts_of(arm).is_pool ? allocation_kind::pool : others;
}

std::unique_ptr<device_memory> memory_of(pipeline_arm arm, allocation_kind others, int ordinal) {
  // Chunks are kept: what a job gives back, the next one maps again.
  return make_device_memory(allocation_of(arm, others), ordinal, arm == pipeline_arm::pool_threshold_0 ? 0 : keep_all);
}

}  // namespace

class pipeline::implementation {
 public:
  implementation(std::unique_ptr<workload> work, pipeline_options options)
      : work_(std::move(work)),
        options_(options),
        data_(*work_, options.seed, [this](std::uint64_t bytes) { return page_locked(bytes); }) {
    if (options.jobs == 0) throw refused_input("--jobs", "0", "must be at least 1");
    if (options.allocation == allocation_kind::pool) {
      throw refused_input("--allocation", "pool", "is of arms of their own: give malloc or chunked");
    }
    memory::current_device const here(options.ordinal);
    check_cuda(cudaFree(nullptr), "cudaFree");  // makes the context
  }

  pipeline_run run(pipeline_arm arm, std::uint32_t repetitions) {
    memory::current_device const here(options_.ordinal);
    refuse_what_cannot_be(arm);
    std::uint32_t const outputs = std::min(facts_of(arm).outputs, options_.jobs);
    pipeline_run result;
    double const page_locking_before = page_locking_seconds_;
    data_.prepare(outputs);
    result.page_locking_seconds = page_locking_seconds_ - page_locking_before;
    std::unique_ptr<device_memory> const memory = memory_of(arm, options_.allocation, options_.ordinal);
    gpu_lanes lanes(*work_, data_, *memory, schedule_of(arm, options_.jobs), outputs, options_.ordinal);

    std::uint32_t const compared_before = data_.compared();
    result.mismatch = lanes.verify();
    result.verified_jobs = lanes.verified();
    result.compared_jobs = data_.compared() - compared_before;
    for (std::uint32_t i = 0; i < repetitions && result.mismatch.empty(); ++i) {
      for (std::uint32_t place = 0; place < outputs; ++place) data_.forget(place);
      gpu_lanes::pass_times const times = lanes.time();
      result.seconds.push_back(times.total);
      result.allocation_seconds.push_back(times.allocation);
      result.mismatch = mismatch_of_last(outputs);
    }
    return result;
  }

 private:
  std::shared_ptr<std::byte> page_locked(std::uint64_t bytes) {
    auto const begin = std::chrono::steady_clock::now();
    void* address = nullptr;
    check_cuda(cudaHostAlloc(&address, bytes, cudaHostAllocDefault), fmt::format("cudaHostAlloc of {} bytes", bytes));
    page_locking_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return {static_cast<std::byte*>(address), [](std::byte* memory) { cudaFreeHost(memory); }};
  }

  void refuse_what_cannot_be(pipeline_arm arm) const {
    arm_facts const facts = facts_of(arm);
    if (facts.is_pool && options_.allocation != allocation_kind::malloc) {
      throw refused_input("--arm", name_of(arm), "has a pool, and takes no other memory");
    }
    allocation_kind const allocation = allocation_of(arm, options_.allocation);
    if (!has_device_memory(allocation, options_.ordinal)) {
      std::string const kind(allocation_names[static_cast<int>(allocation)]);
      throw refused_input(facts.is_pool ? "--arm" : "--allocation", facts.is_pool ? name_of(arm) : kind,
                          fmt::format("this GPU has no memory of the kind {}: take another", kind));
    }
    std::uint64_t set_bytes = 0;
    for (buffer const& b : data_.buffers()) {
      set_bytes += footprint_bytes(allocation, b.bytes);
    }
    std::uint64_t const sets = std::min(facts.sets, options_.jobs);
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    constexpr std::uint64_t kept_free = std::uint64_t{256} << 20;
    if (sets * set_bytes + kept_free > free) {
      throw refused_input(
          "--size", fmt::format("{} sets of buffers with {} bytes each", sets, set_bytes),
          fmt::format("the GPU has {} bytes free: choose a smaller size, or another arm than {}", free, name_of(arm)));
    }
  }

  /// Of a pass in which the host looked at no results: those that were not replaced by others.
  std::string mismatch_of_last(std::uint32_t outputs) {
    for (std::uint32_t job = options_.jobs - outputs; job < options_.jobs; ++job) {
      std::string const wrong = data_.mismatch(job % outputs, false);
      if (!wrong.empty()) return fmt::format("job {} of a timed pass: {}", job, wrong);
    }
    return "";
  }

  std::unique_ptr<workload> work_;
  pipeline_options options_;
  double page_locking_seconds_ = 0;
  job_data data_;
};

pipeline::pipeline(std::unique_ptr<workload> work, pipeline_options options)
    : here_(std::make_unique<implementation>(std::move(work), options)) {}
pipeline::~pipeline() = default;
pipeline_run pipeline::run(pipeline_arm arm, std::uint32_t repetitions) {
  return here_->run(arm, repetitions);
}

}  // namespace forebay::transfer
