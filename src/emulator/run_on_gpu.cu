// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "forebay/cuda_stream.hpp"
#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/emulator/resident_units.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/detail/simt/cuda.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {
namespace {

using simt::cuda;
using simt::native;

constexpr std::uint64_t orphan_timeout_ns = 5'000'000'000;
constexpr auto beat = std::chrono::milliseconds(200);
constexpr auto linger = std::chrono::milliseconds(20);  // after the last release
constexpr std::uint64_t start_timeout_ns = 10'000'000'000;

struct read_clock {
  std::uint64_t* to;
  FOREBAY_DEVICE void operator()() const { *to = cuda::clock_ns(); }
};

class resident_engine;

/// The engines of this process that are on a GPU. Thread-safe.
class all_resident_engines {
 public:
  /// Adds one and makes it arrive, if that is what `arrive` does. A pause that begins meanwhile waits for it before it
  /// makes any engine leave. If `arrive` throws, nothing is added.
  void add(resident_engine* one, std::function<void()> const& arrive) {
    std::lock_guard const lock(mutex_);
    engines_.reserve(engines_.size() + 1);  // so that nothing fails once it has arrived
    arrive();
    engines_.push_back(one);
  }
  void remove(resident_engine* one) {
    std::lock_guard const lock(mutex_);
    std::erase(engines_, one);
  }
  /// Those of one GPU, or of all: then `ordinal` is none.
  void pause_for(std::optional<int> ordinal, std::function<void()> const& act);

 private:
  std::mutex mutex_;  ///< taken before that of an engine
  std::vector<resident_engine*> engines_;
};

all_resident_engines& resident_engines() {
  // Never destroyed: an engine that is destroyed late is among them until then.
  static auto* const all = new all_resident_engines;
  return *all;
}

/// Streams for the engines of a GPU. CUDA makes some streams at once; for others it allocates memory first, and waits
/// until no kernel runs, so for ever beside an engine. Therefore this makes many at a time, while no engine is there.
/// Thread-safe.
class launch_streams {
 public:
  using one = std::unique_ptr<memory::cuda_stream>;

  one take(int ordinal) {
    std::lock_guard const lock(mutex_);
    auto& spare = spare_[ordinal];
    if (spare.empty()) {
      resident_engines().pause_for(ordinal, [&] {
        for (int i = 0; i < at_a_time; ++i) spare.push_back(std::make_unique<memory::cuda_stream>(ordinal));
        memory::prepare_to_clear_device(ordinal);  // which makes a stream too
      });
    }
    one taken = std::move(spare.back());
    spare.pop_back();
    return taken;
  }
  void give_back(int ordinal, one stream) {
    std::lock_guard const lock(mutex_);
    spare_[ordinal].push_back(std::move(stream));
  }

 private:
  static constexpr int at_a_time = 8;
  std::mutex mutex_;
  std::map<int, std::vector<one>> spare_;
};

launch_streams& streams() {
  // Never destroyed: the CUDA runtime may shut down before static objects are destroyed.
  static auto* const all = new launch_streams;
  return *all;
}

/// A stream that its owner has for a while.
class launch_stream {
 public:
  explicit launch_stream(int ordinal) : ordinal_(ordinal), stream_(streams().take(ordinal)) {}
  ~launch_stream() {
    if (stream_) streams().give_back(ordinal_, std::move(stream_));
  }
  launch_stream(launch_stream const&) = delete;
  launch_stream& operator=(launch_stream const&) = delete;
  /// Nobody gets it again.
  void abandon() noexcept { (void)stream_.release(); }
  memory::cuda_stream const* operator->() const { return stream_.get(); }

 private:
  int const ordinal_;
  launch_streams::one stream_;
};

class resident_engine final : public engine_runner {
 public:
  resident_engine(engine_options const& options, media const& drive, gpu_residency const& where,
                  std::stop_token const& cancel)
      : where_(where),
        memory_(memory::device(where.ordinal)),
        launches_(where.ordinal),
        words_(memory_, sizeof(residency_words), 128),
        orders_(memory::pinned(), sizeof(residency_orders), 128),
        engine_(std::make_unique<emulator::engine<cuda>>(with_epoch(options), drive, memory_, cancel)) {
    resident_engines().add(this, [this] {
      try {
        if (where_.stays) hold();
      } catch (...) {
        abandon();
        throw;
      }
    });
    try {
      keeper_ = std::thread([this] { keep(); });
    } catch (...) {
      resident_engines().remove(this);
      abandon();
      throw;
    }
  }
  ~resident_engine() override {
    resident_engines().remove(this);
    {
      std::lock_guard const lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    keeper_.join();
    std::lock_guard const lock(mutex_);
    leave();
  }
  resident_engine(resident_engine const&) = delete;
  resident_engine& operator=(resident_engine const&) = delete;

  io_engine& engine() override { return *engine_; }
  int ordinal() const { return where_.ordinal; }

  void hold() override {
    memory::beside_captures const allowed;
    // Before the mutex is taken: the query may wait for a `cudaFree` of this process, and that `cudaFree` for a
    // release.
    cudaError_t const state = cudaStreamQuery(launches_->get());
    if (state != cudaSuccess) std::ignore = cudaGetLastError();  // or the next call might report it
    std::lock_guard const lock(mutex_);
    // A kernel that failed does not say that it ended; launching it again reports why.
    if (state != cudaSuccess && state != cudaErrorNotReady) running_ = false;
    ++holds_;
    try {
      arrive();
    } catch (...) {
      --holds_;
      throw;
    }
    changed_.notify_all();
  }
  /// A pause begins with the lock that this returns, and with the order to leave. `leave_now` comes next.
  std::unique_lock<std::mutex> begin_pause() {
    std::unique_lock lock(mutex_);
    paused_ = running_;
    if (running_) ask_to_leave();
    return lock;
  }
  void leave_now(std::unique_lock<std::mutex> const&) { leave(); }
  /// Does not wait until the kernel has arrived: if others took its place meanwhile, it comes when there is room again.
  void end_pause(std::unique_lock<std::mutex> const&) noexcept {
    if (!std::exchange(paused_, false)) return;
    try {
      launch();
    } catch (std::exception const&) {
      // The GPU has failed, and waits of the clients end by their deadlines; or the keeper launches it again.
    }
    changed_.notify_all();
  }
  void release() noexcept override {
    {
      std::lock_guard const lock(mutex_);
      --holds_;
      released_at_ = std::chrono::steady_clock::now();
    }
    changed_.notify_all();
  }

 private:
  residency_words& words() const { return *words_.as<residency_words>(); }
  /// A word that the units and the host reach.
  static auto shared(std::uint32_t& word) { return native::atomic_ref<std::uint32_t, simt::scope::system>{word}; }
  residency_orders& orders() const { return *orders_.as<residency_orders>(); }

  engine_options with_epoch(engine_options options) const {
    static std::mutex mutex;
    static std::map<int, std::uint64_t> epochs_ns;
    std::lock_guard const lock(mutex);
    std::uint64_t& epoch_ns = epochs_ns[where_.ordinal];
    if (epoch_ns == 0) {
      memory::current_device const here(where_.ordinal);
      memory::allocation const now(memory_, sizeof(std::uint64_t), 128);
      simt::launch<cuda>({.blocks = 1, .threads_per_block = 1}, read_clock{now.as<std::uint64_t>()}, launches_->get());
      launches_->synchronize();
      memory_.copy_out(&epoch_ns, now.data(), sizeof epoch_ns);
      // Batches that come at once must not be due before the epoch.
      epoch_ns -= 1'000'000'000;
    }
    options.epoch_ns = epoch_ns;
    return options;
  }

  /// Makes the kernel resident. The caller holds the mutex.
  void arrive() {
    if (running_ && !ended()) return;
    launch();
    std::uint32_t const all = engine_->options().dispatchers();
    bool const arrived = native::wait_until(
        [&] {
          std::uint32_t here = 0;
          memory_.copy_out(&here, &words().arrived, sizeof here);
          return here == all;
        },
        native::clock_ns() + start_timeout_ns);
    if (arrived) return;
    throw operation_failed("the engine of an emulated drive cannot become resident on GPU " +
                           std::to_string(where_.ordinal) +
                           ": other kernels fill it; take a lease before they start, or give the drive fewer sms");
  }

  /// The caller holds the mutex.
  void launch() {
    running_ = false;
    memory_.copy_in(words_.data(), &fresh_, sizeof fresh_);
    orders() = {};
    resident_units<cuda> const units{engine_->view(), &words(), orphan_timeout_ns, &orders()};
    memory::current_device const here(where_.ordinal);
    simt::launch<cuda>(units.shape(), units, launches_->get());
    running_ = true;
  }

  /// Makes the kernel leave. The caller holds the mutex.
  void leave() {
    if (!running_) return;
    ask_to_leave();
    try {
      launches_->synchronize();
    } catch (operation_failed const&) {
      // The GPU has failed; the next call that uses it gets the error.
    }
    running_ = false;
  }

  /// No call to CUDA: it would wait for a `cudaFree` of this process, which waits for the kernel.
  void ask_to_leave() const {
    // Relaxed: the order carries nothing.
    shared(orders().stop).store(1, simt::order::relaxed);
  }

  /// Gives up a kernel of which only some blocks were placed. The other blocks may start at any time, see that they are
  /// to leave, and touch the kernel's memory. So nobody else may ever get that memory.
  void abandon() noexcept {
    ask_to_leave();
    (void)engine_.release();
    launches_.abandon();  // the next kernel in it would come after this one
    (void)new memory::allocation(std::move(words_));
    (void)new memory::allocation(std::move(orders_));
  }

  /// Whether the kernel has ended by itself, because the host gave no sign of life.
  bool ended() const {
    // Acquire: pairs with the release of the last block that leaves.
    return shared(orders().left).load(simt::order::acquire) != 0;
  }

  /// Shows the kernel that the host is alive, and ends the kernel when nobody needs it.
  void keep() {
    memory::beside_captures const allowed;
    std::unique_lock lock(mutex_);
    for (std::uint32_t beats = 1; !ending_; ++beats) {
      if (running_ && holds_ == 0) {
        auto const leave_at = released_at_ + linger;
        if (std::chrono::steady_clock::now() >= leave_at) {
          leave();
        } else {
          changed_.wait_until(lock, leave_at);
        }
        continue;
      }
      if (running_) {
        // Relaxed: a beat carries nothing.
        shared(orders().beat).store(beats, simt::order::relaxed);
        try {
          if (ended()) arrive();  // the host gave no sign of life for long
        } catch (operation_failed const&) {
          // The GPU has failed, or is full: waits of the clients end by their deadlines.
        }
        changed_.wait_for(lock, beat);
      } else if (holds_ != 0) {
        // A launch failed after a pause.
        try {
          launch();
        } catch (std::exception const&) {
          changed_.wait_for(lock, beat);
        }
      } else {
        changed_.wait(lock, [this] { return ending_ || running_; });
      }
    }
  }

  gpu_residency const where_;
  memory::resource& memory_;
  launch_stream launches_;
  residency_words const fresh_{};
  memory::allocation words_;
  memory::allocation orders_;
  std::unique_ptr<emulator::engine<cuda>> engine_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t holds_ = 0;
  bool running_ = false;
  bool paused_ = false;
  bool ending_ = false;
  std::chrono::steady_clock::time_point released_at_;
  std::thread keeper_;
};

void all_resident_engines::pause_for(std::optional<int> ordinal, std::function<void()> const& act) {
  std::lock_guard const lock(mutex_);
  std::vector<std::pair<resident_engine*, std::unique_lock<std::mutex>>> paused;
  auto const resume = [&] {
    for (auto& [engine, its_lock] : paused) engine->end_pause(its_lock);
  };
  paused.reserve(engines_.size());
  for (resident_engine* const one : engines_) {
    if (!ordinal || one->ordinal() == *ordinal) paused.emplace_back(one, one->begin_pause());
  }
  try {
    for (auto& [engine, its_lock] : paused) engine->leave_now(its_lock);
    act();
  } catch (...) {
    resume();
    throw;
  }
  resume();
}

/// What dispatchers know of their queues is in the shared memory of their unit.
void refuse_too_many_queues(engine_options const& options, int ordinal) {
  int most_bytes = 0;
  memory::check_cuda(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal),
                     "cudaDeviceGetAttribute");
  auto const fits = [&](std::uint32_t queue_slots) {
    engine_view<cuda> view;
    view.options = options;
    view.options.queue_slots = queue_slots;
    return resident_units<cuda>{view}.shape().shared_bytes <= static_cast<std::uint32_t>(most_bytes);
  };
  if (fits(options.queue_slots)) return;
  std::uint32_t most = options.dispatchers();
  while (fits(most + options.dispatchers())) most += options.dispatchers();
  throw refused_input("queues", std::to_string(options.queue_slots),
                      "an engine on " + std::to_string(options.units) + " multiprocessors serves at most " +
                          std::to_string(most) + "; give fewer queues, or more sms");
}

}  // namespace

void without_resident_engines(std::function<void()> const& act) {
  resident_engines().pause_for(std::nullopt, act);
}

std::uint32_t multiprocessors(int ordinal) {
  int count = 0;
  memory::check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, ordinal), "cudaDeviceGetAttribute");
  return static_cast<std::uint32_t>(count);
}

std::unique_ptr<engine_runner> run_on_gpu(engine_options options, media const& drive, gpu_residency const& where,
                                          std::stop_token const& cancel) {
  std::uint32_t const most = multiprocessors(where.ordinal);
  if (options.units >= most) {
    throw refused_input("sms", std::to_string(options.units),
                        "GPU " + std::to_string(where.ordinal) + " has " + std::to_string(most) +
                            " multiprocessors, and a client needs some of them; give less");
  }
  choose_for_gpu(options);
  refuse_too_many_queues(options, where.ordinal);
  return std::make_unique<resident_engine>(options, drive, where, cancel);
}

}  // namespace forebay::emulator
