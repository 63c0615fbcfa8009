// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::emulator {
namespace {

using simt::native;

constexpr std::uint64_t stay_awake_ns = 2'000'000;  // after the last work, before the first sleep
constexpr std::uint64_t first_sleep_ns = 50'000;
constexpr std::uint64_t deep_idle_ns = 1'000'000'000;  // after this long, sleeps are as long as they get

class threads final : public engine_runner {
 public:
  threads(engine_options const& options, media const& drive, std::stop_token const& cancel)
      : engine_(options, drive, memory::host(), cancel) {
    try {
      for (std::uint32_t unit = 0; unit < options.units; ++unit) {
        threads_.emplace_back([this, unit] { run(unit); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~threads() override { stop(); }
  threads(threads const&) = delete;
  threads& operator=(threads const&) = delete;

  io_engine& engine() override { return engine_; }
  void hold() override {}
  void release() noexcept override {}

 private:
  // Relaxed: the flag carries nothing; joining the threads orders what they did.
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }

  void stop() {
    stop_.store(true, std::memory_order_relaxed);  // relaxed: see `stopping`
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void run(std::uint32_t unit) {
    prctl(PR_SET_TIMERSLACK, 1000);  // a sleep of 50 us shall not take 100
    std::uint64_t last_work_ns = native::clock_ns();
    std::uint64_t awake_until_ns = last_work_ns + stay_awake_ns;
    while (!stopping()) {
      bool const worked = native::wait_until([this, unit] { return engine_.step(unit) || stopping(); }, awake_until_ns);
      std::uint64_t const now_ns = native::clock_ns();
      if (worked) {
        last_work_ns = now_ns;
        awake_until_ns = now_ns + stay_awake_ns;
        continue;
      }
      // A completion that is due must not wait for a sleep to end.
      std::uint64_t const due_ns = engine_.next_due_ns(unit);
      if (due_ns != simt::no_deadline) {
        awake_until_ns = std::max(due_ns, now_ns) + stay_awake_ns;
        continue;
      }
      std::this_thread::sleep_for(
          std::chrono::nanoseconds(now_ns - last_work_ns > deep_idle_ns ? longest_sleep_ns : first_sleep_ns));
    }
  }

  emulator::engine<native> engine_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<engine_runner> run_on_threads(engine_options options, media const& drive,
                                              std::stop_token const& cancel) {
  static std::uint64_t const epoch_ns = native::clock_ns();
  options.epoch_ns = epoch_ns;
  return std::make_unique<threads>(options, drive, cancel);
}

}  // namespace forebay::emulator
