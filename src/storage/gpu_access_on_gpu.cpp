// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "forebay/cuda_driver.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "storage/gpu_access.hpp"
#include "storage/stream_gate.hpp"

namespace forebay::detail {
namespace {

using memory::beside_captures;
using memory::check_cuda;
using memory::check_driver;
using memory::current_device;
using memory::driver_function;

/// Whether `cuMemMap` mapped it: an allocator may map other memory to the next addresses, or to these, at any time.
bool is_mapped_by_pieces(void const* address) {
  static auto const retain = driver_function<decltype(&cuMemRetainAllocationHandle)>("cuMemRetainAllocationHandle");
  static auto const release = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
  CUmemGenericAllocationHandle handle = 0;
  if (retain(&handle, const_cast<void*>(address)) != CUDA_SUCCESS) return false;
  release(handle);
  return true;
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

/// Two words of page-locked memory: a stream writes one when it comes to a transfer, and then waits for the other. A
/// pair is lent out with the next value each time, and counts as written from its value on. So a stream that comes late
/// to its wait does not see that the pair was lent out again.
class stream_words {
  static auto word(std::uint32_t& of) { return simt::atomic<simt::native, simt::scope::system>(of); }

 public:
  struct pair {
    std::uint32_t reached, ended;
  };
  stream_words() = default;
  stream_words(pair* of, std::uint32_t value) : of_(of), value_(value) {}

  /// Queues the write and the wait.
  void queue(cudaStream_t stream) const {
    static auto const write = driver_function<decltype(&cuStreamWriteValue32)>("cuStreamWriteValue32");
    static auto const wait = driver_function<decltype(&cuStreamWaitValue32)>("cuStreamWaitValue32");
    check_driver(write(stream, reinterpret_cast<CUdeviceptr>(&of_->reached), value_, CU_STREAM_WRITE_VALUE_DEFAULT),
                 "cuStreamWriteValue32");
    check_driver(wait(stream, reinterpret_cast<CUdeviceptr>(&of_->ended), value_, CU_STREAM_WAIT_VALUE_GEQ),
                 "cuStreamWaitValue32");
  }
  /// Acquire: what the stream did comes before the transfer.
  bool reached() const {
    return static_cast<std::int32_t>(word(of_->reached).load(simt::order::acquire) - value_) >= 0;
  }
  /// Release: what the transfer did comes before the stream's next work.
  void end() const { word(of_->ended).store(value_, simt::order::release); }
  stream_words next() const { return {of_, value_ + 1}; }

 private:
  pair* of_ = nullptr;
  std::uint32_t value_ = 0;
};

/// Thread-safe.
class stream_words_pool {
 public:
  stream_words take() {
    std::lock_guard const lock(mutex_);
    // After a transfer that was cancelled, its stream may yet write what it was to write.
    auto found = std::find_if(free_.begin(), free_.end(), [](stream_words const& w) { return w.reached(); });
    if (found == free_.end()) {
      constexpr std::size_t bytes = 4096;
      blocks_.emplace_back(memory::pinned(), bytes, bytes);
      for (std::size_t i = 0; i < bytes / sizeof(stream_words::pair); ++i) {
        free_.emplace_back(blocks_.back().as<stream_words::pair>() + i, 0);
      }
      found = free_.end() - 1;
    }
    stream_words const taken = found->next();
    *found = free_.back();
    free_.pop_back();
    return taken;
  }
  /// Lets the stream go on.
  void give(stream_words const& words) {
    words.end();
    std::lock_guard const lock(mutex_);
    free_.push_back(words);
  }

 private:
  std::mutex mutex_;
  std::vector<memory::allocation> blocks_;
  std::vector<stream_words> free_;  ///< as they were lent out last
};

/// Has a place at the gate from the start.
class cuda_order final : public stream_order {
 public:
  cuda_order(stream_gate& gate, std::uint64_t id, event_pool& events, stream_words_pool& pool, cudaStream_t stream)
      : gate_(gate), id_(id), events_(events), pool_(pool), stream_(stream) {}
  cuda_order(cuda_order const&) = delete;
  cuda_order& operator=(cuda_order const&) = delete;
  ~cuda_order() override { cuda_order::let_go(); }
  void begin() override {
    beside_captures const allowed;
    current_device const here(events_.ordinal());  // the default streams are those of the GPU that is current
    before_.emplace(events_, stream_);
    words_ = pool_.take();
    words_->queue(stream_);
  }
  void let_go() override {
    // Relaxed: only that one of the callers does it.
    if (gone_.exchange(true, std::memory_order_relaxed)) return;
    if (words_) pool_.give(*words_);
    gate_.leave(id_);
  }
  bool reached() override {
    if (words_->reached()) return true;
    // A GPU that has failed writes nothing. To ask CUDA each time would be slow, and the answer may have to wait for a
    // `cudaFree` of this process, which waits for the stream.
    std::uint64_t const now_ns = simt::native::clock_ns();
    if (now_ns < asks_at_ns_) return false;
    asks_at_ns_ = now_ns + asks_every_ns;
    return before_->reached();
  }

 private:
  static constexpr std::uint64_t asks_every_ns = 1'000'000'000;

  stream_gate& gate_;
  std::uint64_t const id_;
  event_pool& events_;
  stream_words_pool& pool_;
  cudaStream_t const stream_;
  std::optional<recorded_event> before_;
  std::optional<stream_words> words_;
  std::atomic<bool> gone_{false};
  std::uint64_t asks_at_ns_ = simt::native::clock_ns() + asks_every_ns;
};

/// What the environment asks for. Read when the library is loaded: CUDA reads it when it starts, so what the program
/// sets later has no effect there.
std::optional<std::uint32_t> const channels_asked_for = []() -> std::optional<std::uint32_t> {
  char const* const given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (given == nullptr) return std::nullopt;
  char* end = nullptr;
  long const count = std::strtol(given, &end, 10);
  if (end == given) return std::nullopt;
  return static_cast<std::uint32_t>(std::clamp(count, 1L, 32L));
}();

/// How many channels to a GPU CUDA gives this process (CUDA programming guide, "CUDA environment variables"). What it
/// gives a client of MPS that asks for no number was measured.
std::uint32_t channels_to(int gpu) {
  constexpr std::uint32_t usual = 8, beside_others = 2;
  if (channels_asked_for) return *channels_asked_for;
  int shared = 0;
  check_cuda(cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, gpu), "cudaDeviceGetAttribute");
  return shared != 0 ? beside_others : usual;
}

class cuda final : public gpu_access {
 public:
  void allow_captures() override {
    auto mode = cudaStreamCaptureModeRelaxed;
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
  }
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
    return {.gpu = known.device,
            .managed = known.type == cudaMemoryTypeManaged,
            .by_pieces = is_mapped_by_pieces(address),
            .first = static_cast<std::uintptr_t>(first),
            .bytes = bytes,
            .id = id};
  }

  std::unique_ptr<gpu_work> copy(int gpu, void* to, void const* from, std::size_t bytes) override {
    of_gpu& mine = of(gpu);
    current_device const here(gpu);
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, mine.stream.get()), "cudaMemcpyAsync");
    return std::make_unique<cuda_copy>(mine.events, mine.stream.get());
  }

  std::unique_ptr<stream_order> order(std::uintptr_t stream, int gpu, std::function<bool()> const& gives_up) override {
    beside_captures const allowed;
    auto const handle = reinterpret_cast<cudaStream_t>(stream);
    // The default streams are those of the GPU that is current.
    bool const is_default = stream <= reinterpret_cast<std::uintptr_t>(cudaStreamPerThread);
    int device = gpu;
    if (is_default && device < 0) check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    std::optional<current_device> here;
    if (is_default) here.emplace(device);
    // First: CUDA answers no other question on such a stream, and the question would end the capture.
    cudaStreamCaptureStatus capturing{};
    cudaError_t const asked = cudaStreamIsCapturing(handle, &capturing);
    if (asked == cudaErrorStreamCaptureImplicit) std::ignore = cudaGetLastError();  // or the next call would report it
    if (asked == cudaErrorStreamCaptureImplicit || capturing != cudaStreamCaptureStatusNone) {
      throw refused_input("stream", std::to_string(stream),
                          "it is being captured into a CUDA graph: start the transfer before or after the capture");
    }
    check_cuda(asked, "cudaStreamIsCapturing");
    if (!is_default) {
      check_cuda(cudaStreamGetDevice(handle, &device), "cudaStreamGetDevice");
      if (gpu >= 0 && device != gpu) {
        throw refused_input("stream", "of cuda:" + std::to_string(device),
                            "the buffer is in memory of cuda:" + std::to_string(gpu) + ": pass a stream of that GPU");
      }
      here.emplace(device);
    }
    of_gpu& its = of(device);
    if (its.gate.most() == 0) {
      throw refused_input("stream", std::to_string(stream),
                          "while it waits, the drives need other channels to the GPU, and CUDA gives this process " +
                              std::to_string(channels_to(device)) +
                              " in all: set CUDA_DEVICE_MAX_CONNECTIONS to 8 to 32 before the program starts (unless "
                              "set, it is 2 under MPS), or leave the stream out (an array may name it itself)");
    }
    unsigned long long id = 0;  // each thread's default stream has its own
    check_cuda(cudaStreamGetId(handle, &id), "cudaStreamGetId");
    if (!its.gate.enter(id, gives_up)) return nullptr;
    try {
      return std::make_unique<cuda_order>(its.gate, id, its.events, words_, handle);
    } catch (...) {
      its.gate.leave(id);
      throw;
    }
  }

 private:
  struct of_gpu {
    explicit of_gpu(int ordinal)
        : stream(ordinal, memory::urgency::first), events(ordinal), gate(stream_gate::most_of(channels_to(ordinal))) {}
    memory::cuda_stream stream;
    event_pool events;
    stream_gate gate;
  };
  of_gpu& of(int gpu) {
    std::lock_guard const lock(mutex_);
    auto& found = gpus_[gpu];
    if (!found) found = std::make_unique<of_gpu>(gpu);
    return *found;
  }

  std::mutex mutex_;
  std::unordered_map<int, std::unique_ptr<of_gpu>> gpus_;
  stream_words_pool words_;
};

}  // namespace

gpu_access* cuda_access() {
  // Never destroyed: the CUDA runtime may shut down before static objects are destroyed.
  static gpu_access* const all = memory::device_count() > 0 ? new cuda : nullptr;
  return all;
}

}  // namespace forebay::detail
