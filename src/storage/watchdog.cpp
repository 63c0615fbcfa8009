// SPDX-License-Identifier: Apache-2.0
#include "forebay/watchdog.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "forebay/error.hpp"
#include "storage/watchdog_parts.hpp"

namespace forebay {
namespace {

void print(stuck_report const& report) {
  std::fprintf(stderr, "forebay: watchdog: %s\n%s", report.reason.c_str(), report.dump.c_str());
}

void refuse_bad(watchdog_options const& options, std::uint64_t timeout_ns) {
  if (options.interval_ns < 1'000'000) {
    throw refused_input("interval_ns", std::to_string(options.interval_ns), "give at least 1000000, a millisecond");
  }
  if (options.interval_ns >= timeout_ns) {
    throw refused_input(
        "interval_ns", std::to_string(options.interval_ns),
        "waits give up before the second look: give less than the storage's timeout_ns, " + std::to_string(timeout_ns));
  }
  if (options.stuck_after == 0) throw refused_input("stuck_after", "0", "give at least 1");
}

}  // namespace

watchdog::parts::parts(detail::inspected what, std::uint64_t (*clock_ns)(), std::uint64_t timeout_ns,
                       watchdog_options options) {
  refuse_bad(options, timeout_ns);
  if (!options.report) options.report = print;
  thread = std::jthread([looks = detail::progress_watch(std::move(what), options.interval_ns, options.stuck_after),
                         clock_ns, options = std::move(options)](std::stop_token stop) mutable {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    while (!stop.stop_requested()) {
      std::optional<stuck_report> report;
      try {
        report = looks.look(clock_ns());
      } catch (std::exception const& error) {
        options.report({false, std::string("the storage cannot be looked at any more: ") + error.what(), ""});
        return;
      }
      if (report) options.report(*report);
      changed.wait_for(lock, stop, std::chrono::nanoseconds(options.interval_ns), [] { return false; });
    }
  });
}

watchdog::watchdog(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
watchdog::watchdog(watchdog&&) noexcept = default;
watchdog& watchdog::operator=(watchdog&&) noexcept = default;
watchdog::~watchdog() = default;

}  // namespace forebay
