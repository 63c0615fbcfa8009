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
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/common/random.hpp"
#include "client.hpp"
#include "forebay/cuda_driver.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::residency {
namespace {

using memory::check_cuda;
using memory::check_driver;
using memory::driver_function;
using simt::cuda;
using simt::native;

constexpr std::uint32_t threads_per_block = 128;
/// The time limit for a call that waits only for the GPU's own work.
constexpr std::uint64_t probe_ns = 1'000'000'000;
constexpr std::uint64_t patience_ns = 60'000'000'000;

/// A kernel for each N. Not of `simt::launch`, so that none is loaded before it is launched (CUDA_MODULE_LOADING=LAZY).
template <std::uint32_t N>
__global__ void fresh_kernel(std::uint64_t* to) {
  *to = apps::mix64(N);
}
constexpr std::uint32_t fresh_kernels = 32;

template <std::uint32_t N>
void launch_fresh(std::uint64_t* to, cudaStream_t stream) {
  fresh_kernel<N><<<1, 1, 0, stream>>>(to);
  check_cuda(cudaGetLastError(), "launching a kernel that is not loaded");
}
template <std::uint32_t... N>
constexpr auto launchers(std::integer_sequence<std::uint32_t, N...>) {
  return std::array{&launch_fresh<N>...};
}

/// The same kernel as text, which the driver compiles only at run time, with a number that no other module has.
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

/// One of those modules.
class loaded_module {
 public:
  explicit loaded_module(std::uint64_t value) {
    check_driver(
        driver_function<decltype(&cuModuleLoadData)>("cuModuleLoadData")(&module_, fresh_module(value).c_str()),
        "cuModuleLoadData");
    check_driver(driver_function<decltype(&cuModuleGetFunction)>("cuModuleGetFunction")(&entry_, module_, "fresh"),
                 "cuModuleGetFunction");
  }
  ~loaded_module() { driver_function<decltype(&cuModuleUnload)>("cuModuleUnload")(module_); }
  loaded_module(loaded_module const&) = delete;
  loaded_module& operator=(loaded_module const&) = delete;

  void launch(std::uint64_t* to, cudaStream_t stream) const {
    void* arguments[] = {&to};
    check_driver(driver_function<decltype(&cuLaunchKernel)>("cuLaunchKernel")(entry_, 1, 1, 1, 1, 1, 1, 0, stream,
                                                                              arguments, nullptr),
                 "cuLaunchKernel");
  }

 private:
  CUmodule module_{};
  CUfunction entry_{};
};

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
      auto alone = turn(frees_alone_ || loads_alone_);
      storage_lease const running = s.lease();
      simt::launch<cuda>(
          {.blocks = (what.whole.threads + threads_per_block - 1) / threads_per_block,
           .threads_per_block = threads_per_block},
          wave<cuda>{s.ref<cuda>(), what.buffer.ref(), what.whole, what.versions, what.sums, what.number, what.rounds},
          waves_.get());
      alone.reset();
      waves_.synchronize();
    }
    // An engine in this process leaves only when nobody has held a lease for a while; `cudaFree` waits for that.
    if (in_process_ && memory_thread_.joinable() && what.number != 0) {
      bool const went_on =
          native::wait_until([&] { return freed() != freed_before || failed(); }, native::clock_ns() + patience_ns);
      if (!went_on) throw operation_failed("cudaFree did not return after the lease had ended");
    }
  }

  void begin_beside(storage& s) override {
    if (in_process_) try_beside_an_engine(s);
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
            {"launches_pass_a_waiting_free", in_process_ ? nlohmann::json(launches_pass_a_free_) : nlohmann::json()},
            {"loads_pass_an_engine", in_process_ ? nlohmann::json(loads_pass_an_engine_) : nlohmann::json()}};
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
  /// Returns false once all work must end.
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

  /// A turn of its own, where there are to be turns.
  std::optional<std::unique_lock<std::mutex>> turn(bool needed) {
    if (!needed) return std::nullopt;
    return std::unique_lock(alone_);
  }

  /// Determines which calls a thread may make while an engine of this process is resident. If a call waits until the
  /// engine leaves, the holder of a lease that is taken and not yet used could wait for that call in turn, and neither
  /// would ever end. Then they take turns.
  void try_beside_an_engine(storage& s) {
    auto* const word = value_.as<std::uint64_t>();
    auto const launch = [&] {
      launch_fresh<0>(word, waves_.get());
      waves_.synchronize();
    };
    launch();
    void* block = nullptr;
    check_cuda(cudaMalloc(&block, 1 << 20), "cudaMalloc");
    launches_pass_a_free_ = ends_beside_an_engine(s, [&] { cudaFree(block); }, launch);
    loads_pass_an_engine_ = ends_beside_an_engine(s, {}, [&] {
      loaded_module const fresh(~std::uint64_t{0});
      fresh.launch(word, waves_.get());
      waves_.synchronize();
    });
    frees_alone_ = !launches_pass_a_free_;
    loads_alone_ = frees_alone_ || !loads_pass_an_engine_;
  }

  /// Whether `action` ends soon while an engine is resident, and `waits`, begun before, does not end.
  bool ends_beside_an_engine(storage& s, std::function<void()> const& waits, std::function<void()> const& action) {
    std::atomic<bool> began{waits == nullptr}, ended{false};
    std::thread first, second;
    bool passed = false;
    {
      storage_lease const running = s.lease();
      if (waits) {
        first = std::thread([&] {
          began = true;
          cudaSetDevice(gpu_);
          waits();
        });
      }
      (void)native::wait_until([&] { return began.load(); }, native::clock_ns() + probe_ns);
      // Time to get into the driver.
      (void)native::wait_until([] { return false; }, native::clock_ns() + probe_ns / 10);
      second = std::thread([&] {
        try {
          memory::current_device const here(gpu_);
          action();
          ended = true;
        } catch (operation_failed const&) {
          // The next call of this kind gets the error.
        }
      });
      passed = native::wait_until([&] { return ended.load(); }, native::clock_ns() + probe_ns);
    }
    second.join();
    if (first.joinable()) first.join();
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
        auto const alone = turn(frees_alone_);
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
    std::deque<std::unique_ptr<loaded_module>> modules;
    for (std::uint64_t k = 0; pause(std::chrono::milliseconds(50)); ++k) {
      std::uint64_t const wanted = apps::mix64(k);
      {
        me.now("waits for its turn");
        auto const alone = turn(loads_alone_);
        if (k < fresh_kernels) {
          me.now("launches a kernel never loaded before");
          known[k](word, stream.get());
        } else {
          me.now("loads a module");
          modules.push_back(std::make_unique<loaded_module>(wanted));
          me.now("launches a kernel of a module");
          modules.back()->launch(word, stream.get());
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
        auto const alone = turn(loads_alone_);
        me.now("unloads a module");
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
  bool launches_pass_a_free_ = true, loads_pass_an_engine_ = true;
  bool frees_alone_ = false, loads_alone_ = false;  ///< what takes turns with the launches of waves
  std::mutex alone_;                                ///< held to launch or to free, where the two must not meet

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
