// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/run_on_gpu.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>

#include "apps/transfer/gpu_buffers.hpp"

namespace forebay::transfer {
namespace {

using memory::check_cuda;

/// A moment in a stream.
class event {
 public:
  event() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  event(event const&) = delete;
  event& operator=(event const&) = delete;
  ~event() { cudaEventDestroy(event_); }
  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  double seconds_since(event const& earlier) const {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, earlier.event_, event_), "cudaEventElapsedTime");
    return ms / 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(clock::now() - begin_).count(); }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point const begin_ = clock::now();
};

}  // namespace

gpu_run run_on_gpu(workload const& work, mode how, std::uint64_t seed, std::uint32_t repetitions, int ordinal) {
  memory::current_device const here(ordinal);
  std::vector<buffer> const buffers = work.buffers();
  bool const is_overwritten =
      std::any_of(buffers.begin(), buffers.end(), [](buffer const& b) { return b.use == buffer_use::in_out; });
  bool const has_scratch =
      std::any_of(buffers.begin(), buffers.end(), [](buffer const& b) { return b.use == buffer_use::scratch; });
  gpu_buffers memory(buffers, how.transfer, how.allocation, ordinal);
  event begin, end;
  gpu_run result;
  result.page_locking_seconds = memory.page_locking_seconds();
  for (std::uint32_t run = 0; run <= repetitions; ++run) {
    run_times times;
    stopwatch const allocating;
    memory.allocate();
    times.allocation = allocating.seconds();
    if (run == 0 || is_overwritten || is_managed(how.transfer)) work.init(seed, memory.host());

    stopwatch const moving;
    memory.to_device();
    begin.record(memory.stream().get());
    work.start_on_gpu(how.stage, memory.device(), memory.stream().get());
    end.record(memory.stream().get());
    memory.to_host();
    memory.finish();
    double const moved = moving.seconds();
    times.kernels = end.seconds_since(begin);

    if (run == 0) {
      if (has_scratch) memory.fetch_scratch();
      result.mismatch = work.mismatch(seed, memory.host());
    }
    stopwatch const releasing;
    memory.release();
    times.release = releasing.seconds();
    times.total = times.allocation + moved + times.release;
    if (run == 0) {
      result.cold = times;
      if (!result.mismatch.empty()) return result;
    } else {
      result.warm.push_back(times);
    }
  }
  return result;
}

}  // namespace forebay::transfer
