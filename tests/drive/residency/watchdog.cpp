// SPDX-License-Identifier: Apache-2.0
#include "watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace forebay::residency {
namespace {

double seconds_since(watchdog::clock::time_point then) {
  return std::chrono::duration<double>(watchdog::clock::now() - then).count();
}

}  // namespace

watchdog::watchdog(std::chrono::seconds limit, std::chrono::seconds silence)
    : limit_(limit), silence_(silence), thread_([this] { watch(); }) {}

watchdog::~watchdog() {
  {
    std::lock_guard const lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::milliseconds(200), [this] { return ending_; })) {
    if (clock::now() - begun_ > limit_) end_all(fmt::format("no end after {} s", limit_.count()));
    for (watched const* w : all_) {
      if (clock::now() - w->since_ > silence_) end_all(w->name_ + " got nowhere");
    }
  }
}

/// The caller holds the mutex.
void watchdog::end_all(std::string const& why) const {
  std::string text = fmt::format("residency_soak: HUNG: {}\n", why);
  for (watched const* w : all_)
    text += fmt::format("  {}: {}, for {:.1f} s\n", w->name_, w->does_, seconds_since(w->since_));
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  ::_exit(hung_status);
}

watchdog::watched::watched(watchdog& by, std::string name) : by_(by), name_(std::move(name)) {
  std::lock_guard const lock(by_.mutex_);
  by_.all_.push_back(this);
}

watchdog::watched::~watched() {
  std::lock_guard const lock(by_.mutex_);
  by_.all_.remove(this);
}

void watchdog::watched::now(std::string what) {
  std::lock_guard const lock(by_.mutex_);
  does_ = std::move(what);
  since_ = clock::now();
}

}  // namespace forebay::residency
