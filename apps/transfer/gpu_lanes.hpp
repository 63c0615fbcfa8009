// SPDX-License-Identifier: Apache-2.0
//! \file
//! The lanes of a schedule as streams of a GPU and a thread of the host. Only where CUDA is built in.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/transfer/device_memory.hpp"
#include "apps/transfer/helper_thread.hpp"
#include "apps/transfer/job_data.hpp"
#include "apps/transfer/pipeline_schedule.hpp"
#include "forebay/cuda_stream.hpp"

namespace forebay::transfer {

/// Executes a schedule, several times. The memory of what failed is freed by the destructor.
class gpu_lanes {
 public:
  struct pass_times {
    double total = 0;
    double allocation = 0;
  };

  /// `work`, `data` and `memory` must outlive this.
  gpu_lanes(workload const& work, job_data& data, device_memory& memory, std::vector<step> steps, std::uint32_t outputs,
            int ordinal);
  gpu_lanes(gpu_lanes const&) = delete;
  gpu_lanes& operator=(gpu_lanes const&) = delete;
  ~gpu_lanes();

  /// Runs all jobs, and looks at the results of each. "" if they are right; else which job's are not.
  std::string verify();
  /// How many jobs `verify` found right.
  std::uint32_t verified() const { return verified_; }
  /// Runs all jobs.
  pass_times time();

  // For `execute`.
  void perform(std::uint32_t at);
  void order(lane later, std::uint32_t at);
  void wait(std::uint32_t at);

 private:
  cudaStream_t stream_of(lane of) const { return streams_[static_cast<std::uint32_t>(of)]->get(); }
  void run_all();
  void allocate(std::uint32_t at);
  void release(step const& s);
  double make_set(step const& s);
  double free_set(step const& s);
  void fill(step const& s);
  void fetch(step const& s);
  void deliver(step const& s);
  std::uint32_t place_of(step const& s) const { return s.job % outputs_; }
  void free_all();

  workload const& work_;
  job_data& data_;
  device_memory& memory_;
  std::vector<step> steps_;
  std::uint32_t outputs_;
  int ordinal_;
  memory::current_device const here_;
  std::array<std::optional<memory::cuda_stream>, lane_count> streams_;  ///< of the lanes that the schedule has
  std::vector<cudaEvent_t> ended_;                                      ///< by step; null if none waits for it
  std::vector<std::shared_future<double>> calls_;                       ///< by step, of the helper
  std::vector<std::vector<std::byte*>> sets_;
  bool is_verifying_ = false;
  std::string mismatch_;
  std::uint32_t verified_ = 0;
  double allocation_seconds_ = 0;  ///< of the host's own calls in this pass
  std::unique_ptr<helper_thread> helper_;
};

}  // namespace forebay::transfer
