// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/run_on_gpu.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "apps/transfer/gpu_buffers.hpp"
#include "forebay/error.hpp"

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

/// Runs `act` and says when, on the steady clock.
template <class Act>
time_span span_of(Act&& act) {
  auto const now_ns = [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  std::int64_t const begin_ns = now_ns();
  act();
  return {begin_ns, now_ns()};
}
double seconds_of(time_span span) {
  return static_cast<double>(span.end_ns - span.begin_ns) / 1e9;
}

/// A run's parts. Filling and verifying lie between them.
struct run_parts {
  time_span allocation, moving, release;
  double kernels = 0;  // seconds

  run_times times() const {
    double const allocating = seconds_of(allocation), releasing = seconds_of(release);
    return {.total = allocating + seconds_of(moving) + releasing,
            .allocation = allocating,
            .release = releasing,
            .kernels = kernels};
  }
};

bool has(std::vector<buffer> const& buffers, buffer_use use) {
  return std::any_of(buffers.begin(), buffers.end(), [&](buffer const& b) { return b.use == use; });
}

class runs {
 public:
  runs(workload const& work, mode how, std::uint64_t seed, int ordinal)
      : work_(work),
        how_(how),
        seed_(seed),
        buffers_(work.buffers()),
        memory_(buffers_, how.transfer, how.allocation, ordinal) {}

  /// The first, with what is wrong with its results.
  run_parts verified(std::string& mismatch) {
    return one(true, [&] {
      if (has(buffers_, buffer_use::scratch)) memory_.fetch_scratch();
      mismatch = work_.mismatch(seed_, memory_.host());
    });
  }
  run_parts again() {
    return one(has(buffers_, buffer_use::in_out) || is_managed(how_.transfer), [] {});
  }
  gpu_buffers const& memory() const { return memory_; }

 private:
  template <class Check>
  run_parts one(bool fills, Check&& check) {
    run_parts parts;
    parts.allocation = span_of([&] { memory_.allocate(); });
    if (fills) work_.init(seed_, memory_.host());
    parts.moving = span_of([&] {
      memory_.to_device();
      begin_.record(memory_.stream().get());
      work_.start_on_gpu(how_.stage, memory_.device(), memory_.stream().get());
      end_.record(memory_.stream().get());
      memory_.to_host();
      memory_.finish();
    });
    parts.kernels = end_.seconds_since(begin_);
    check();
    parts.release = span_of([&] { memory_.release(); });
    return parts;
  }

  workload const& work_;
  mode const how_;
  std::uint64_t const seed_;
  std::vector<buffer> const buffers_;
  gpu_buffers memory_;
  event begin_, end_;
};

/// Traces runs. What the trace itself cannot do becomes `reason`; what a run cannot do is thrown.
class traced_runs {
 public:
  traced_runs(runs& of, mode how, run_counts const& counts, int ordinal, std::string& reason)
      : of_(of), counts_(counts), reason_(reason) {
    bool const pages_move = is_managed(how.transfer) || how.transfer == transfer_kind::system;
    attempt([&] { recorder_.emplace(counts.cupti_folders, pages_move, ordinal); });
  }
  std::optional<traced_run> median() {
    std::vector<traced_run> all;
    bool const warms_up = counts_.traced > 1;
    for (std::uint32_t run = 0; run < counts_.traced + (warms_up ? 1 : 0); ++run) {
      std::optional<traced_run> const found = one();
      if (!found) return {};
      if (run != 0 || !warms_up) all.push_back(*found);
    }
    auto const middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end(),
                     [](traced_run const& a, traced_run const& b) { return a.time.total < b.time.total; });
    middle->runs = counts_.traced;
    return *middle;
  }

 private:
  std::optional<traced_run> one() {
    if (!attempt([&] { recorder_->begin(); })) return {};
    run_parts const parts = of_.again();
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // or records would be incomplete
    traced_run result;
    bool const is_whole = attempt([&] {
      activity_trace trace = recorder_->end();
      std::vector<activity> const& on_host = of_.memory().host_work();
      trace.activities.insert(trace.activities.end(), on_host.begin(), on_host.end());
      // Timed here, as in runs that are not traced: CUPTI has these calls among many others.
      for (time_span const& span : {parts.allocation, parts.release}) {
        trace.activities.push_back({activity_kind::allocation, span});
      }
      result = {divide(trace.activities, {parts.allocation, parts.moving, parts.release}), trace.pages, trace.note};
    });
    return is_whole ? std::optional(result) : std::nullopt;
  }
  template <class Act>
  bool attempt(Act&& act) {
    if (!reason_.empty()) return false;
    try {
      act();
    } catch (operation_failed const& failure) {
      reason_ = failure.what();
    }
    return reason_.empty();
  }

  runs& of_;
  run_counts const& counts_;
  std::string& reason_;
  std::optional<activity_recorder> recorder_;
};

}  // namespace

gpu_run run_on_gpu(workload const& work, mode how, std::uint64_t seed, run_counts const& counts, int ordinal) {
  memory::current_device const here(ordinal);
  runs all(work, how, seed, ordinal);
  gpu_run result;
  result.page_locking_seconds = all.memory().page_locking_seconds();
  result.cold = all.verified(result.mismatch).times();
  if (!result.mismatch.empty()) {
    result.traced_reason = "the result is wrong";
    return result;
  }
  for (std::uint32_t run = 0; run < counts.timed; ++run) result.warm.push_back(all.again().times());
  if (counts.traced == 0) {
    result.traced_reason = "no trace was asked for";
    return result;
  }
  result.traced = traced_runs(all, how, counts, ordinal, result.traced_reason).median();
  return result;
}

gpu_identity identity_of_gpu(int ordinal) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
  std::ifstream file("/sys/module/nvidia/version");
  std::string driver;
  std::getline(file, driver);
  return {properties.name, driver.empty() ? "unknown" : driver};
}

}  // namespace forebay::transfer
