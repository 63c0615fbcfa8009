// SPDX-License-Identifier: Apache-2.0
#include "storage/recovery_thread.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

namespace forebay::detail {
namespace {

/// Writes recovery's actions to standard error. Of many actions at a time it writes the first lines, and how many more
/// there were.
class recovery_notices {
 public:
  void operator()(std::string const& event) {
    auto const now = std::chrono::steady_clock::now();
    if (now - first_ > interval) {
      if (told_ > most) std::fprintf(stderr, "forebay: recovery: %u more of the kind before\n", told_ - most);
      first_ = now;
      told_ = 0;
    }
    if (++told_ <= most) std::fprintf(stderr, "forebay: recovery: %s\n", event.c_str());
  }

 private:
  static constexpr std::uint32_t most = 10;
  static constexpr std::chrono::seconds interval{10};
  std::chrono::steady_clock::time_point first_{};
  std::uint32_t told_ = 0;
};

/// How long to sleep between two looks: little beside the time after which a command is looked at, and not less than a
/// small machine can spare.
std::uint64_t nap_ns(std::vector<recovery::group> const& groups) {
  std::uint64_t least_ns = ~std::uint64_t{0};
  for (recovery::group const& g : groups) least_ns = std::min(least_ns, g.queues->limits().timeout_ns);
  return std::clamp<std::uint64_t>(least_ns / 500, 5'000'000, 20'000'000);
}

}  // namespace

recovery_thread::recovery_thread(std::vector<recovery::group> groups)
    : nap_ns_(nap_ns(groups)),
      steps_(std::move(groups), recovery::options{.tell = recovery_notices()}),
      thread_([this](std::stop_token stop) { run(std::move(stop)); }) {}

void recovery_thread::run(std::stop_token stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    try {
      while (steps_.step() && !stop.stop_requested()) {
      }
    } catch (std::exception const&) {
      // This can be the group of a GPU that failed, whose queue state is out of reach. Waiters of other drives may
      // still ask.
    }
    changed.wait_for(lock, stop, std::chrono::nanoseconds(nap_ns_), [] { return false; });
  }
}

}  // namespace forebay::detail
