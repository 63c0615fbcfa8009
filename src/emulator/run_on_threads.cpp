// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "forebay/detail/emulator/engine.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/simt/backoff.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/waiting_work.hpp"

namespace forebay::emulator {
namespace {

using simt::native;
using native_engine = engine<native>;

/// A service unit and its thread. If the waiting threads of the process serve the unit, its own thread does so only
/// while none of them waits: a client may have commands under way and compute meanwhile.
class unit final : public simt::waiting_work {
 public:
  unit(native_engine& of, std::uint32_t number, bool waiters_serve)
      : engine_(of), number_(number), thread_([this](std::stop_token const& stop) { run(stop); }) {
    if (waiters_serve) offer_.emplace(*this);
  }
  unit(unit const&) = delete;
  unit& operator=(unit const&) = delete;

  /// From now on no other thread serves the unit: none may step it after the last step of its own thread.
  void request_stop() {
    offer_.reset();
    thread_.request_stop();
  }

  result work() noexcept override {
    // Relaxed: it only tells the thread that it is not needed.
    served_ns_.store(native::clock_ns(), std::memory_order_relaxed);
    std::unique_lock const lock(step_mutex_, std::try_to_lock);
    if (!lock) return result::taken;
    return engine_.step(number_) ? result::some : result::nothing;
  }

  bool wait(std::uint64_t most_ns) noexcept override {
    {
      std::unique_lock const lock(step_mutex_, std::try_to_lock);
      if (!lock || !engine_.has_in_medium(number_)) return false;
    }
    engine_.wait_for_medium(number_, most_ns);
    return true;
  }

 private:
  /// How long the thread waits for the drive's medium without a look at the doorbells. In that time it leaves its
  /// processor to the system, which may need it to complete what the unit waits for.
  static constexpr std::uint64_t medium_wait_ns = 20'000;
  /// The thread serves the unit itself if no thread that waits has done so for this time.
  static constexpr std::uint64_t alone_ns = 300'000;
  /// While others serve the unit, the thread sleeps for an eighth of the time for which they have done so, within these
  /// bounds. On a small machine its every look takes time from the disk's own threads.
  static constexpr std::uint64_t shortest_sleep_ns = 500'000;
  static constexpr std::uint64_t longest_sleep_ns = 20'000'000;

  void run(std::stop_token const& stop) {
    simt::do_no_waiting_work();
    simt::backoff between_steps;
    std::uint64_t others_since_ns = 0;  // 0: they do not serve the unit
    while (!stop.stop_requested()) {
      std::uint64_t const now_ns = native::clock_ns();
      if (others_serve(now_ns)) {
        if (others_since_ns == 0) others_since_ns = now_ns;
        sleep(stop, std::clamp((now_ns - others_since_ns) / 8, shortest_sleep_ns, longest_sleep_ns));
        between_steps.start_over();
        continue;
      }
      others_since_ns = 0;
      if (step(between_steps)) between_steps.start_over();
    }
    std::lock_guard const lock(step_mutex_);
    engine_.finish(number_);
  }

  bool others_serve(std::uint64_t now_ns) const {
    // Relaxed: see `work`.
    std::uint64_t const served_ns = served_ns_.load(std::memory_order_relaxed);
    return served_ns != 0 && now_ns < served_ns + alone_ns;
  }

  /// One step of the thread; a rest if there was nothing to do. Returns whether there was.
  bool step(simt::backoff& between_steps) {
    std::uint64_t due_ns = 0;
    bool in_medium = false;
    {
      std::lock_guard const lock(step_mutex_);
      if (engine_.step(number_)) return true;
      due_ns = engine_.next_due_ns(number_);
      in_medium = engine_.has_in_medium(number_);
    }
    // In the first 2 ms a completion does not wait for a nap, even if it fell due during the step; later it waits for
    // `shortest_nap_ns` at most.
    std::uint64_t const now_ns = native::clock_ns();
    if (in_medium && between_steps.waited_ns(now_ns) >= simt::backoff::looking_ns) {
      engine_.wait_for_medium(number_, std::min(medium_wait_ns, due_ns > now_ns ? due_ns - now_ns : 0));
    } else {
      between_steps.pause(now_ns, due_ns);
    }
    return false;
  }

  void sleep(std::stop_token const& stop, std::uint64_t most_ns) {
    std::unique_lock lock(sleep_mutex_);
    stopped_.wait_for(lock, stop, std::chrono::nanoseconds(most_ns), [] { return false; });
  }

  native_engine& engine_;
  std::uint32_t const number_;
  std::mutex step_mutex_;                    ///< held by the thread that steps the unit
  std::atomic<std::uint64_t> served_ns_{0};  ///< when a thread that waited came last; 0: never
  std::mutex sleep_mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;
  std::optional<simt::offered_work> offer_;  ///< ends first: the last step of the thread ends the unit
};

class threads final : public engine_runner {
 public:
  threads(engine_options const& options, media const& drive, std::stop_token const& cancel)
      : engine_(options, drive, memory::host(), cancel) {
    for (std::uint32_t i = 0; i < options.units; ++i) {
      units_.push_back(std::make_unique<unit>(engine_, i, options.waiters_serve));
    }
  }
  ~threads() override {
    for (auto const& u : units_) u->request_stop();
  }
  threads(threads const&) = delete;
  threads& operator=(threads const&) = delete;

  io_engine& engine() override { return engine_; }
  void hold() override {}
  void release() noexcept override {}

 private:
  native_engine engine_;
  std::vector<std::unique_ptr<unit>> units_;
};

}  // namespace

std::unique_ptr<engine_runner> run_on_threads(engine_options options, media const& drive,
                                              std::stop_token const& cancel) {
  static std::uint64_t const epoch_ns = native::clock_ns();
  options.epoch_ns = epoch_ns;
  return std::make_unique<threads>(options, drive, cancel);
}

}  // namespace forebay::emulator
