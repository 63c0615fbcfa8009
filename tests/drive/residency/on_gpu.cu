// SPDX-License-Identifier: Apache-2.0
//! \file
//! Waves on a GPU, and what a program does there beside them: it allocates, frees, synchronises, and launches kernels
//! never loaded before.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/common/random.hpp"
#include "client.hpp"
#include "forebay/error.hpp"
#include "forebay/memory/cuda_stream.hpp"
#include "forebay/simt/cuda.hpp"
#include "forebay/simt/native.hpp"

namespace forebay::residency {
namespace {

using memory::check_cuda;
using simt::cuda;
using simt::native;

constexpr std::uint32_t threads_per_block = 128;
/// How long something may wait that waits for nothing but the GPU's own work.
constexpr std::uint64_t probe_ns = 1'000'000'000;
constexpr std::uint64_t patience_ns = 60'000'000'000;

/// A kernel for each N, none of which is loaded before it is launched (CUDA_MODULE_LOADING=LAZY).
template <std::uint32_t N>
struct fresh_kernel {
  std::uint64_t* to;
  FOREBAY_DEVICE void operator()() const { *to = apps::mix64(N); }
};
constexpr std::uint32_t fresh_kernels = 32;

template <std::uint32_t N>
void launch_fresh(std::uint64_t* to, cudaStream_t stream) {
  simt::launch<cuda>({.blocks = 1, .threads_per_block = 1}, fresh_kernel<N>{to}, stream);
}
template <std::uint32_t... N>
constexpr auto launchers(std::integer_sequence<std::uint32_t, N...>) {
  return std::array{&launch_fresh<N>...};
}

/// The same as text that only the driver knows to compile, with a number that no other module has.
std::string fresh_module(std::uint64_t value) {
  return ".version 7.0\n.target sm_80\n.address_size 64\n"
         ".visible .entry fresh(.param .u64 to) {\n"
         "  .reg .u64 %at, %value;\n"
         "  ld.param.u64 %at, [to];\n"
         "  cvta.to.global.u64 %at, %at;\n"
         "  mov.u64 %value, " +
         std::to_string(value) +
         "U;\n"
         "  st.global.u64 [%at], %value;\n"
         "  ret;\n}\n";
}

template <class Function>
Function driver_function(char const* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult outcome{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &outcome), name);
  if (found == nullptr) throw operation_failed(std::string(name) + ": the NVIDIA driver lacks it");
  return reinterpret_cast<Function>(found);
}
void check_driver(CUresult result, char const* what) {
  if (result != CUDA_SUCCESS)
    throw operation_failed(std::string(what) + ": CUDA driver error " + std::to_string(static_cast<int>(result)));
}

class gpu_runner final : public wave_runner {
 public:
  gpu_runner(int gpu, bool in_process, watchdog& dog)
      : gpu_(gpu),
        in_process_(in_process),
        dog_(dog),
        waves_(gpu),
        value_(memory::pinned(), 2 * sizeof(std::uint64_t), 128) {}
  ~gpu_runner() override { stop(); }

  std::uint32_t usual_threads() const override {
    int multiprocessors = 0, threads = 0;
    check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, gpu_),
               "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, gpu_),
               "cudaDeviceGetAttribute");
    return static_cast<std::uint32_t>(2 * multiprocessors * threads);
  }

  void run(storage& s, work const& what) override {
    std::uint64_t const freed_before = freed();
    {
      memory::current_device const here(gpu_);
      std::optional<std::unique_lock<std::mutex>> alone(lock_if_needed());
      storage_lease const running = s.lease();
      simt::launch<cuda>(
          {.blocks = (what.whole.threads + threads_per_block - 1) / threads_per_block,
           .threads_per_block = threads_per_block},
          wave<cuda>{s.ref<cuda>(), what.buffer.ref(), what.whole, what.versions, what.sums, what.number, what.rounds},
          waves_.get());
      alone.reset();
      waves_.synchronize();
    }
    // An engine in this process leaves only where nobody holds a lease for a while; who frees waits for that.
    if (in_process_ && memory_thread_.joinable() && what.number != 0) {
      bool const went_on =
          native::wait_until([&] { return freed() != freed_before || failed(); }, native::clock_ns() + patience_ns);
      if (!went_on) throw operation_failed("cudaFree did not return after the lease had ended");
    }
  }

  void begin_beside(storage& s) override {
    if (in_process_) serialised_ = !launches_pass_a_waiting_free(s);
    memory_thread_ = std::thread([this] { watch("thread that frees", [this](auto& me) { allocate_and_free(me); }); });
    loader_thread_ = std::thread([this] { watch("thread that loads", [this](auto& me) { load_and_launch(me); }); });
  }

  nlohmann::json end_beside() override {
    stop();
    std::lock_guard const lock(mutex_);
    if (!failure_.empty()) throw operation_failed(failure_);
    return {{"frees", frees_},
            {"device_synchronizes", synchronizes_},
            {"fresh_kernels", std::min<std::uint64_t>(loads_, fresh_kernels)},
            {"fresh_modules", loads_ > fresh_kernels ? loads_ - fresh_kernels : 0},
            {"launches_pass_a_waiting_free", in_process_ ? nlohmann::json(!serialised_) : nlohmann::json()}};
  }

 private:
  std::uint64_t freed() {
    std::lock_guard const lock(mutex_);
    return frees_;
  }
  bool failed() {
    std::lock_guard const lock(mutex_);
    return !failure_.empty();
  }
  bool stopping() {
    std::lock_guard const lock(mutex_);
    return stopping_;
  }
  /// False once all is to end.
  bool pause(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, time, [this] { return stopping_; });
  }
  void stop() {
    {
      std::lock_guard const lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread* t : {&memory_thread_, &loader_thread_}) {
      if (t->joinable()) t->join();
    }
  }

  template <class Body>
  void watch(char const* name, Body&& body) {
    try {
      memory::current_device const here(gpu_);
      watchdog::watched me(dog_, name);
      body(me);
    } catch (std::exception const& e) {
      std::lock_guard const lock(mutex_);
      if (failure_.empty()) failure_ = std::string(name) + ": " + e.what();
    }
  }

  std::optional<std::unique_lock<std::mutex>> lock_if_needed() {
    if (!serialised_) return std::nullopt;
    return std::unique_lock(alone_);
  }

  /// Whether this driver lets a thread launch while `cudaFree` of another waits for a kernel. Where it does not, a
  /// lease that is taken and not yet used would never end: launches and frees then take turns.
  bool launches_pass_a_waiting_free(storage& s) {
    memory::current_device const here(gpu_);
    void* block = nullptr;
    check_cuda(cudaMalloc(&block, 1 << 20), "cudaMalloc");
    launch_fresh<0>(value_.as<std::uint64_t>(), waves_.get());
    waves_.synchronize();
    std::atomic<bool> freeing{false}, launched{false};
    std::thread free, launch;
    bool passed = false;
    {
      storage_lease const running = s.lease();
      free = std::thread([&] {
        freeing = true;
        cudaSetDevice(gpu_);
        cudaFree(block);
      });
      (void)native::wait_until([&] { return freeing.load(); }, native::clock_ns() + probe_ns);
      (void)native::wait_until([] { return false; }, native::clock_ns() + probe_ns / 10);  // until it is in the driver
      launch = std::thread([&] {
        try {
          memory::current_device const here(gpu_);
          launch_fresh<0>(value_.as<std::uint64_t>(), waves_.get());
          waves_.synchronize();
          launched = true;
        } catch (operation_failed const&) {
          // Whoever launches next is told.
        }
      });
      passed = native::wait_until([&] { return launched.load(); }, native::clock_ns() + probe_ns);
    }
    launch.join();
    free.join();
    return passed;
  }

  void allocate_and_free(watchdog::watched& me) {
    memory::cuda_stream const stream(gpu_);
    apps::splitmix64 random(1, 2);
    for (std::uint64_t round = 1; !stopping(); ++round) {
      std::array<void*, 4> blocks{};
      me.now("cudaMalloc");
      for (void*& b : blocks) {
        std::size_t const bytes = 4096 + random.below(32 << 20);
        check_cuda(cudaMalloc(&b, bytes), "cudaMalloc");
        check_cuda(cudaMemsetAsync(b, 0xa5, bytes, stream.get()), "cudaMemset");
      }
      me.now("cudaStreamSynchronize");
      stream.synchronize();
      {
        me.now("waits for its turn");
        auto const alone = lock_if_needed();
        me.now("cudaFree");
        for (void* b : blocks) check_cuda(cudaFree(b), "cudaFree");
        if (round % 4 == 0) {
          me.now("cudaDeviceSynchronize");
          check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        }
      }
      me.now("is between two rounds");
      std::lock_guard const lock(mutex_);
      frees_ += blocks.size();
      if (round % 4 == 0) ++synchronizes_;
    }
  }

  void load_and_launch(watchdog::watched& me) {
    static constexpr auto known = launchers(std::make_integer_sequence<std::uint32_t, fresh_kernels>());
    memory::cuda_stream const stream(gpu_);
    auto* const word = value_.as<std::uint64_t>() + 1;
    std::deque<CUmodule> modules;
    for (std::uint64_t k = 0; pause(std::chrono::milliseconds(50)); ++k) {
      std::uint64_t const wanted = apps::mix64(k);
      {
        me.now("waits for its turn");
        auto const alone = lock_if_needed();
        if (k < fresh_kernels) {
          me.now("launches a kernel never loaded before");
          known[k](word, stream.get());
        } else {
          me.now("loads a module");
          CUmodule loaded{};
          check_driver(
              driver_function<decltype(&cuModuleLoadData)>("cuModuleLoadData")(&loaded, fresh_module(wanted).c_str()),
              "cuModuleLoadData");
          modules.push_back(loaded);
          CUfunction entry{};
          check_driver(driver_function<decltype(&cuModuleGetFunction)>("cuModuleGetFunction")(&entry, loaded, "fresh"),
                       "cuModuleGetFunction");
          std::uint64_t* at = word;
          void* arguments[] = {&at};
          me.now("launches a kernel of a module");
          check_driver(driver_function<decltype(&cuLaunchKernel)>("cuLaunchKernel")(entry, 1, 1, 1, 1, 1, 1, 0,
                                                                                    stream.get(), arguments, nullptr),
                       "cuLaunchKernel");
        }
      }
      me.now("waits for its kernel");
      stream.synchronize();
      std::uint64_t found = 0;
      std::memcpy(&found, word, sizeof found);
      if (found != wanted)
        throw operation_failed("a fresh kernel left " + std::to_string(found) + ", not " + std::to_string(wanted));
      if (modules.size() > 16) {
        me.now("waits for its turn");
        auto const alone = lock_if_needed();
        me.now("unloads a module");
        check_driver(driver_function<decltype(&cuModuleUnload)>("cuModuleUnload")(modules.front()), "cuModuleUnload");
        modules.pop_front();
      }
      me.now("is between two kernels");
      std::lock_guard const lock(mutex_);
      ++loads_;
    }
  }

  int const gpu_;
  bool const in_process_;
  watchdog& dog_;
  memory::cuda_stream waves_;
  memory::allocation value_;
  bool serialised_ = false;
  std::mutex alone_;  ///< held by whoever launches or frees, where the two must not meet

  std::mutex mutex_;  ///< of all below
  std::condition_variable changed_;
  bool stopping_ = false;
  std::uint64_t frees_ = 0, synchronizes_ = 0, loads_ = 0;
  std::string failure_;
  std::thread memory_thread_, loader_thread_;
};

}  // namespace

std::unique_ptr<wave_runner> on_gpu(storage const& s, watchdog& dog) {
  auto const report = nlohmann::json::parse(s.report());
  bool const in_process = report["drives"][0].value("residency", "") == "in_process";
  return std::make_unique<gpu_runner>(s.gpu_ordinal(), in_process, dog);
}

}  // namespace forebay::residency
