// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "storage/gpu_access.hpp"

namespace forebay::detail {
namespace {

using memory::check_cuda;
using memory::current_device;

/// A function of the driver, looked up at run time: nothing links against the driver's library, because machines
/// without a GPU lack it.
template <class Function>
Function driver_function(char const* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult outcome{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &outcome), name);
  if (found == nullptr) throw operation_failed(std::string(name) + ": the NVIDIA driver is too old and lacks it");
  return reinterpret_cast<Function>(found);
}

void check_driver(CUresult result, char const* what) {
  if (result == CUDA_SUCCESS) return;
  throw operation_failed(std::string(what) + ": CUDA driver error " + std::to_string(static_cast<int>(result)));
}

/// Events of one GPU, used again and again. Thread-safe.
class event_pool {
 public:
  explicit event_pool(int ordinal) : ordinal_(ordinal) {}
  cudaEvent_t take() {
    {
      std::lock_guard const lock(mutex_);
      if (!free_.empty()) {
        cudaEvent_t const event = free_.back();
        free_.pop_back();
        return event;
      }
    }
    current_device const here(ordinal_);
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    return event;
  }
  void give(cudaEvent_t event) {
    std::lock_guard const lock(mutex_);
    free_.push_back(event);
  }
  int ordinal() const { return ordinal_; }

 private:
  int const ordinal_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

/// An event of a pool that was recorded in a stream.
class recorded_event {
 public:
  recorded_event(event_pool& pool, cudaStream_t stream) : pool_(pool), event_(pool.take()) {
    cudaError_t const result = cudaEventRecord(event_, stream);
    if (result == cudaSuccess) return;
    pool_.give(event_);
    check_cuda(result, "cudaEventRecord");
  }
  ~recorded_event() { pool_.give(event_); }
  recorded_event(recorded_event const&) = delete;
  recorded_event& operator=(recorded_event const&) = delete;

  bool reached() const {
    cudaError_t const result = cudaEventQuery(event_);
    if (result == cudaErrorNotReady) {
      std::ignore = cudaGetLastError();  // or the next call would report it
      return false;
    }
    check_cuda(result, "work of the GPU before or in a transfer");
    return true;
  }

 private:
  event_pool& pool_;
  cudaEvent_t event_;
};

class cuda_copy final : public gpu_work {
 public:
  cuda_copy(event_pool& pool, cudaStream_t stream) : done_(pool, stream) {}
  bool ended() override { return done_.reached(); }

 private:
  recorded_event done_;
};

/// Words of page-locked memory for which streams wait. A word is lent out with the next value each time, and a stream
/// waits until the word has at least its value. So a stream that comes late to its wait does not see that the word was
/// lent out again. Thread-safe.
class flag_pool {
 public:
  struct flag {
    std::uint32_t* word;
    std::uint32_t value;
  };
  flag take() {
    std::lock_guard const lock(mutex_);
    if (free_.empty()) {
      constexpr std::size_t bytes = 4096;
      blocks_.emplace_back(memory::pinned(), bytes, bytes);
      for (std::size_t i = 0; i < bytes / sizeof(std::uint32_t); ++i) {
        free_.push_back({blocks_.back().as<std::uint32_t>() + i, 0});
      }
    }
    flag const taken{free_.back().word, free_.back().value + 1};
    free_.pop_back();
    return taken;
  }
  /// Sets it, unless it was never waited for.
  void give(flag of) {
    // Release: what the transfer did comes before the stream's next work.
    simt::atomic<simt::native, simt::scope::system>(*of.word).store(of.value, simt::order::release);
    std::lock_guard const lock(mutex_);
    free_.push_back(of);
  }

 private:
  std::mutex mutex_;
  std::vector<memory::allocation> blocks_;
  std::vector<flag> free_;
};

class cuda_order final : public stream_order {
 public:
  cuda_order(event_pool& events, flag_pool& flags, cudaStream_t stream)
      : before_(events, stream), flags_(flags), flag_(flags.take()) {
    static auto const wait = driver_function<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32");
    CUresult const result =
        wait(stream, reinterpret_cast<CUdeviceptr>(flag_.word), flag_.value, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS) return;
    flags_.give(flag_);
    check_driver(result, "cuStreamWaitValue32");
  }
  ~cuda_order() override { flags_.give(flag_); }
  bool reached() override { return before_.reached(); }

 private:
  recorded_event before_;
  flag_pool& flags_;
  flag_pool::flag const flag_;
};

class cuda final : public gpu_access {
 public:
  memory::resource& locked_memory() override { return memory::pinned(); }
  memory_place place_of(void const* address) override {
    cudaPointerAttributes known{};
    if (cudaPointerGetAttributes(&known, address) != cudaSuccess) {
      std::ignore = cudaGetLastError();
      return {};
    }
    if (known.type != cudaMemoryTypeDevice && known.type != cudaMemoryTypeManaged) return {};
    static auto const ask = driver_function<decltype(&cuPointerGetAttributes)>("cuPointerGetAttributes");
    CUdeviceptr first = 0;
    std::size_t bytes = 0;
    std::uint64_t id = 0;
    std::array attributes{CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                          CU_POINTER_ATTRIBUTE_BUFFER_ID};
    std::array<void*, 3> answers{&first, &bytes, &id};
    check_driver(ask(attributes.size(), attributes.data(), answers.data(), reinterpret_cast<CUdeviceptr>(address)),
                 "cuPointerGetAttributes");
    return {known.device, known.type == cudaMemoryTypeManaged, static_cast<std::uintptr_t>(first), bytes, id};
  }

  std::unique_ptr<gpu_work> copy(int gpu, void* to, void const* from, std::size_t bytes) override {
    of_gpu& mine = of(gpu);
    current_device const here(gpu);
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, mine.stream.get()), "cudaMemcpyAsync");
    return std::make_unique<cuda_copy>(mine.events, mine.stream.get());
  }

  std::unique_ptr<stream_order> order(std::uintptr_t stream, int gpu) override {
    auto const handle = reinterpret_cast<cudaStream_t>(stream);
    int device = gpu;
    // The default streams are those of the GPU that is current.
    if (stream > reinterpret_cast<std::uintptr_t>(cudaStreamPerThread)) {
      check_cuda(cudaStreamGetDevice(handle, &device), "cudaStreamGetDevice");
      if (gpu >= 0 && device != gpu) {
        throw refused_input("stream", "of cuda:" + std::to_string(device),
                            "the buffer is in memory of cuda:" + std::to_string(gpu) + ": pass a stream of that GPU");
      }
    } else if (device < 0) {
      check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    }
    current_device const here(device);
    cudaStreamCaptureStatus capturing{};
    check_cuda(cudaStreamIsCapturing(handle, &capturing), "cudaStreamIsCapturing");
    if (capturing != cudaStreamCaptureStatusNone) {
      throw refused_input("stream", std::to_string(stream),
                          "it is being captured into a CUDA graph: start the transfer before or after the capture");
    }
    return std::make_unique<cuda_order>(of(device).events, flags_, handle);
  }

 private:
  struct of_gpu {
    explicit of_gpu(int ordinal) : stream(ordinal, memory::urgency::first), events(ordinal) {}
    memory::cuda_stream stream;
    event_pool events;
  };
  of_gpu& of(int gpu) {
    std::lock_guard const lock(mutex_);
    auto& found = gpus_[gpu];
    if (!found) found = std::make_unique<of_gpu>(gpu);
    return *found;
  }

  std::mutex mutex_;
  std::unordered_map<int, std::unique_ptr<of_gpu>> gpus_;
  flag_pool flags_;
};

}  // namespace

gpu_access* cuda_access() {
  // Never destroyed: the CUDA runtime may shut down before static objects are destroyed.
  static gpu_access* const all = memory::device_count() > 0 ? new cuda : nullptr;
  return all;
}

}  // namespace forebay::detail
