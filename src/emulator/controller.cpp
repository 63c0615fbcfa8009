// SPDX-License-Identifier: Apache-2.0
#include "forebay/emulator/controller.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "forebay/emulator/admin.hpp"
#include "forebay/emulator/engine_runner.hpp"
#include "forebay/emulator/spaces.hpp"
#include "forebay/error.hpp"
#include "forebay/simt/native.hpp"

namespace forebay::emulator {
namespace {

using simt::native;

constexpr std::uint64_t stay_awake_ns = 2'000'000;  // after the last work, before the first sleep
constexpr auto relay_nap = std::chrono::microseconds(50);
constexpr std::uint64_t relay_linger_ns = 1'000'000'000;  // commands of a host thread may take as long

controller_options checked(controller_options options) {
  auto const refuse_unless = [](bool good, char const* field, auto value, std::string const& remedy) {
    if (!good) throw refused_input(field, std::to_string(value), remedy);
  };
  timing_parameters const& timing = options.timing;
  refuse_unless(options.units >= 1 && options.units <= 1024, "threads", options.units, "give 1 to 1024");
  refuse_unless(options.max_queues >= 1 && options.max_queues <= 65534, "queues", options.max_queues,
                "give 1 to 65534");
  refuse_unless(options.max_queue_entries >= 2 && options.max_queue_entries <= 65536, "queue entries",
                options.max_queue_entries, "give 2 to 65536");
  refuse_unless(options.mdts >= 1 && options.mdts <= 16, "mdts", options.mdts, "give 1 to 16");
  refuse_unless(timing.channels >= 1 && timing.channels <= timing_parameters::max_channels, "channels", timing.channels,
                "give 1 to 64");
  refuse_unless(timing.channel_stride_bytes >= 512, "channel_stride_bytes", timing.channel_stride_bytes,
                "give at least 512");
  for (operation_cost const* cost : {&timing.read, &timing.write, &timing.other}) {
    refuse_unless(cost->granule_bytes >= 1, "granule_bytes", cost->granule_bytes, "give at least 1");
  }
  if (options.serial.size() > 20) throw refused_input("serial", options.serial, "give at most 20 characters");
  if (options.model.size() > 40) throw refused_input("model", options.model, "give at most 40 characters");
  return options;
}

engine_options engine_options_of(controller_options const& options) {
  engine_options out;
  out.units = options.units;
  out.queue_slots = options.max_queues;
  out.max_transfer_bytes = std::uint64_t{4096} << options.mdts;
  out.timing = options.timing;
  out.faults = options.faults;
  return out;
}

}  // namespace

class controller::implementation {
 public:
  implementation(controller_options const& options, std::unique_ptr<backing_store> store,
                 memory::resource& client_memory)
      : options_(checked(options)),
        store_(std::move(store)),
        media_(store_->view()),
        gpu_memory_(options_.gpu ? &memory::device(options_.gpu->ordinal) : nullptr),
        regions_(gpu_memory_ != nullptr ? *gpu_memory_ : memory::host()),
        dma_(regions_, client_memory, gpu_memory_),
        registers_(
            options_.max_queues, client_memory, [this] { wake(); }, gpu_memory_),
        runner_(options_.gpu ? run_on_gpu(engine_options_of(options_), media_, regions_.table(), *options_.gpu)
                             : run_on_threads(engine_options_of(options_), media_, regions_.table())),
        admin_(options_, registers_, regions_.host_table(), media_, runner_->engine(), 0) {
    try {
      threads_.emplace_back([this] { run_admin(); });
      if (options_.gpu) threads_.emplace_back([this] { run_relay(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~implementation() {
    stop();
    // What was written reaches the file even if the client never flushed.
    if (media_.sync != nullptr) store_->sync();
  }
  implementation(implementation const&) = delete;
  implementation& operator=(implementation const&) = delete;

  driver::register_space& registers() { return registers_; }
  driver::dma_space& dma() { return dma_; }
  dma_regions& regions() { return regions_; }
  controller_options const& options() const { return options_; }
  engine_runner& runner() { return *runner_; }
  void collect(statistics& sum) { runner_->engine().collect(sum); }

 private:
  /// Keeps the engine running while its owner has something for it, and a while longer.
  class hold_while_busy {
   public:
    hold_while_busy(engine_runner& runner, std::uint64_t linger_ns) : runner_(runner), linger_ns_(linger_ns) {}
    ~hold_while_busy() { let_go(); }
    hold_while_busy(hold_while_busy const&) = delete;
    hold_while_busy& operator=(hold_while_busy const&) = delete;

    void busy() {
      last_ns_ = native::clock_ns();
      if (holding_) return;
      try {
        runner_.hold();
        holding_ = true;
      } catch (operation_failed const&) {
        // The next busy moment tries again; who waits for an answer has a deadline.
      }
    }
    void idle() {
      if (native::clock_ns() - last_ns_ > linger_ns_) let_go();
    }

   private:
    void let_go() {
      if (holding_) runner_.release();
      holding_ = false;
    }
    engine_runner& runner_;
    std::uint64_t const linger_ns_;
    std::uint64_t last_ns_ = 0;
    bool holding_ = false;
  };

  // Relaxed: the flag carries nothing; joining the threads orders what they did.
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }

  void stop() {
    stop_.store(true, std::memory_order_relaxed);  // relaxed: see `stopping`
    wake();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void wake() {
    {
      std::lock_guard const lock(mutex_);
      awake_ = true;
    }
    wake_.notify_one();
  }

  void run_admin() {
    // Nothing but register writes, which wake it, and a file's flushes and invalid doorbells, which it must look for.
    auto const nap = std::chrono::microseconds(media_.sync != nullptr ? 200 : 5000);
    hold_while_busy engine(*runner_, stay_awake_ns);
    std::uint64_t awake_until_ns = 0;
    while (!stopping()) {
      bool const worked = native::wait_until(
          [this] {
            bool const synced = write_back();
            return admin_.step() || synced || stopping();
          },
          awake_until_ns);
      if (worked) {
        engine.busy();
        awake_until_ns = native::clock_ns() + stay_awake_ns;
        continue;
      }
      engine.idle();
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, nap, [this] { return awake_; });
      awake_ = false;
    }
  }

  /// Brings the doorbells of host threads to a GPU.
  void run_relay() {
    hold_while_busy engine(*runner_, relay_linger_ns);
    std::uint64_t awake_until_ns = 0;
    while (!stopping()) {
      if (native::wait_until([this] { return registers_.relay() || stopping(); }, awake_until_ns)) {
        engine.busy();
        awake_until_ns = native::clock_ns() + stay_awake_ns;
        continue;
      }
      engine.idle();
      std::this_thread::sleep_for(relay_nap);
    }
  }

  /// Serves the Flush commands that wait for the file. Whether there were any.
  bool write_back() {
    if (media_.sync == nullptr) return false;
    // Acquire: pairs with the units' release when they raise it; the writes before the Flush are in the mapping.
    std::uint32_t const wanted =
        simt::atomic<native, simt::scope::system>(media_.sync->requested).load(simt::order::acquire);
    auto const completed = simt::atomic<native, simt::scope::system>(media_.sync->completed);
    if (wanted == completed.load(simt::order::relaxed)) return false;  // relaxed: only this thread writes it
    if (!store_->sync()) {
      // Relaxed: the release below publishes it.
      simt::atomic<native, simt::scope::system>(media_.sync->failed).store(1, simt::order::relaxed);
    }
    // Release: pairs with the units' acquire before they complete a Flush.
    completed.store(wanted, simt::order::release);
    return true;
  }

  controller_options const options_;
  std::unique_ptr<backing_store> store_;
  media media_;
  memory::resource* gpu_memory_;  ///< null for an engine on CPU threads
  dma_regions regions_;
  emulator::dma_space dma_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool awake_ = false;
  register_file registers_;
  std::unique_ptr<engine_runner> runner_;
  admin admin_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

controller::controller(controller_options const& options, std::unique_ptr<backing_store> store,
                       memory::resource& client_memory)
    : implementation_(std::make_unique<implementation>(options, std::move(store), client_memory)) {}
controller::~controller() = default;

driver::register_space& controller::registers() {
  return implementation_->registers();
}
driver::dma_space& controller::dma() {
  return implementation_->dma();
}
dma_regions& controller::regions() {
  return implementation_->regions();
}
controller_options const& controller::options() const {
  return implementation_->options();
}

void controller::hold() {
  implementation_->runner().hold();
}
void controller::release() noexcept {
  implementation_->runner().release();
}

std::unique_ptr<statistics> controller::collect() {
  auto sum = std::make_unique<statistics>();
  implementation_->collect(*sum);
  return sum;
}

}  // namespace forebay::emulator
