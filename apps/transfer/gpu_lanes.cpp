// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/gpu_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/transfer/modes.hpp"
#include "forebay/error.hpp"

namespace forebay::transfer {
namespace {

using memory::check_cuda;

template <class Call>
double seconds_of(Call&& call) {
  auto const begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

gpu_lanes::gpu_lanes(workload const& work, job_data& data, device_memory& memory, std::vector<step> steps,
                     std::uint32_t outputs, int ordinal)
    : work_(work),
      data_(data),
      memory_(memory),
      steps_(std::move(steps)),
      outputs_(outputs),
      ordinal_(ordinal),
      here_(ordinal),
      ended_(steps_.size(), nullptr),
      calls_(steps_.size()) {
  std::vector<bool> const awaited = awaited_steps(steps_);
  try {
    for (std::size_t at = 0; at < steps_.size(); ++at) {
      step const& s = steps_[at];
      if (sets_.size() <= s.set) sets_.resize(s.set + 1, std::vector<std::byte*>(data_.buffers().size(), nullptr));
      if (s.at == lane::helper && !helper_) helper_ = std::make_unique<helper_thread>();
      if (!is_stream(s.at)) continue;
      std::optional<memory::cuda_stream>& stream = streams_[static_cast<std::uint32_t>(s.at)];
      if (!stream) stream.emplace(ordinal);
      if (awaited[at]) {
        check_cuda(cudaEventCreateWithFlags(&ended_[at], cudaEventDisableTiming), "cudaEventCreate");
      }
    }
  } catch (...) {
    free_all();
    throw;
  }
}

gpu_lanes::~gpu_lanes() {
  free_all();
}

void gpu_lanes::free_all() {
  helper_.reset();  // first: it may be about to make memory
  cudaDeviceSynchronize();
  for (step const& s : steps_) {
    if (s.what != step_kind::release || s.set >= sets_.size()) continue;
    try {
      free_set(s);
    } catch (operation_failed const&) {
      // The GPU has failed, and its memory goes with the process.
    }
  }
  cudaDeviceSynchronize();
  for (cudaEvent_t const event : ended_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

std::string gpu_lanes::verify() {
  is_verifying_ = true;
  mismatch_.clear();
  verified_ = 0;
  for (std::uint32_t place = 0; place < outputs_; ++place) data_.forget(place);
  run_all();
  is_verifying_ = false;
  return mismatch_;
}

gpu_lanes::pass_times gpu_lanes::time() {
  pass_times times;
  times.total = seconds_of([&] { run_all(); });
  times.allocation = allocation_seconds_;
  for (std::size_t at = 0; at < steps_.size(); ++at) {
    if (steps_[at].at == lane::helper) times.allocation += calls_[at].get();
  }
  return times;
}

void gpu_lanes::run_all() {
  allocation_seconds_ = 0;
  execute(steps_, *this);
  for (auto const& stream : streams_) {
    if (stream) stream->synchronize();
  }
}

void gpu_lanes::perform(std::uint32_t at) {
  step const& s = steps_[at];
  switch (s.what) {
    case step_kind::allocate:
      allocate(at);
      break;
    case step_kind::fill:
      fill(s);
      break;
    case step_kind::run:
      work_.start_on_gpu(stage_kind::plain, views(sets_[s.set]), stream_of(s.at));
      break;
    case step_kind::fetch:
      fetch(s);
      break;
    case step_kind::deliver:
      deliver(s);
      break;
    case step_kind::release:
      allocation_seconds_ += free_set(s);
      break;
  }
  if (ended_[at] != nullptr) check_cuda(cudaEventRecord(ended_[at], stream_of(s.at)), "cudaEventRecord");
}

void gpu_lanes::order(lane later, std::uint32_t at) {
  check_cuda(cudaStreamWaitEvent(stream_of(later), ended_[at], 0), "cudaStreamWaitEvent");
}

void gpu_lanes::wait(std::uint32_t at) {
  if (steps_[at].at == lane::helper) {
    calls_[at].get();
  } else {
    check_cuda(cudaEventSynchronize(ended_[at]), "cudaEventSynchronize");
  }
}

void gpu_lanes::allocate(std::uint32_t at) {
  step const& s = steps_[at];
  if (s.at == lane::helper) {
    calls_[at] = helper_->start([this, &s] {
      memory::current_device const here(ordinal_);
      return make_set(s);
    });
  } else {
    allocation_seconds_ += make_set(s);
  }
}

double gpu_lanes::make_set(step const& s) {
  return seconds_of([&] {
    cudaStream_t const stream = is_stream(s.at) ? stream_of(s.at) : nullptr;
    for (std::size_t i = 0; i < sets_[s.set].size(); ++i) {
      sets_[s.set][i] = memory_.make(data_.buffers()[i].bytes, stream);
    }
  });
}

double gpu_lanes::free_set(step const& s) {
  return seconds_of([&] {
    for (std::byte*& address : sets_[s.set]) {
      if (address == nullptr) continue;
      memory_.free(std::exchange(address, nullptr), is_stream(s.at) ? stream_of(s.at) : nullptr);
    }
  });
}

void gpu_lanes::fill(step const& s) {
  cudaStream_t const stream = stream_of(s.at);
  for (std::size_t i = 0; i < data_.buffers().size(); ++i) {
    buffer const& b = data_.buffers()[i];
    std::byte* const to = sets_[s.set][i];
    // The last job may have left the same input there. As floats these bytes are no numbers.
    if (is_verifying_) check_cuda(cudaMemsetAsync(to, 0xff, b.bytes, stream), "cudaMemsetAsync");
    if (!goes_in(b)) continue;
    check_cuda(cudaMemcpyAsync(to, data_.input(i), b.bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  }
}

void gpu_lanes::fetch(step const& s) {
  for (std::size_t i = 0; i < data_.buffers().size(); ++i) {
    buffer const& b = data_.buffers()[i];
    if (!goes_out(b) && !(is_verifying_ && b.use == buffer_use::scratch)) continue;
    check_cuda(cudaMemcpyAsync(data_.output(place_of(s), i), sets_[s.set][i], b.bytes, cudaMemcpyDeviceToHost,
                               stream_of(s.at)),
               "cudaMemcpyAsync");
  }
}

void gpu_lanes::deliver(step const& s) {
  if (!is_verifying_) return;
  std::string const wrong = data_.mismatch(place_of(s), true);
  data_.forget(place_of(s));
  if (wrong.empty()) {
    ++verified_;
  } else if (mismatch_.empty()) {
    mismatch_ = fmt::format("job {}: {}", s.job, wrong);
  }
}

}  // namespace forebay::transfer
