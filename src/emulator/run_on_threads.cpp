// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/simt/backoff.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::emulator {
namespace {

using simt::native;

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
  /// How long a thread waits for the drive's medium without a look at the doorbells. In that time it leaves its
  /// processor to the system, which may need it to complete what the thread waits for.
  static constexpr std::uint64_t medium_wait_ns = 20'000;

  // Relaxed: the flag carries nothing; joining the threads orders what they did.
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }

  void stop() {
    stop_.store(true, std::memory_order_relaxed);  // relaxed: see `stopping`
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void run(std::uint32_t unit) {
    simt::backoff between_steps;
    while (!stopping()) {
      if (engine_.step(unit)) {
        between_steps.start_over();
        continue;
      }
      // In the first 2 ms a completion does not wait for a nap, even if it fell due during the step; later it waits for
      // `shortest_nap_ns` at most.
      std::uint64_t const now_ns = native::clock_ns(), due_ns = engine_.next_due_ns(unit);
      if (between_steps.waited_ns(now_ns) >= simt::backoff::looking_ns &&
          engine_.wait_for_medium(unit, std::min(medium_wait_ns, due_ns > now_ns ? due_ns - now_ns : 0))) {
        continue;
      }
      between_steps.pause(now_ns, due_ns);
    }
    engine_.finish(unit);
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
