// SPDX-License-Identifier: Apache-2.0
#include "held_syncs.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace forebay::emulator::testing {
namespace {

std::atomic<held_syncs*> current{nullptr};

}  // namespace

held_syncs::held_syncs() {
  current = this;
}
held_syncs::~held_syncs() {
  current = nullptr;
  std::unique_lock lock(mutex_);
  over_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return waiting_ == 0; });
}

void held_syncs::await_begun(std::uint32_t calls) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return begun_ >= calls; });
}

void held_syncs::end(int error) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return may_end_ == 0; });
  error_ = error;
  may_end_ = 1;
  changed_.notify_all();
}

std::optional<int> held_syncs::wait() {
  std::unique_lock lock(mutex_);
  ++begun_;
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return may_end_ != 0 || over_; });
  --waiting_;
  bool const told = may_end_ != 0;
  may_end_ = 0;
  changed_.notify_all();
  return told ? std::optional(error_) : std::nullopt;
}

}  // namespace forebay::emulator::testing

/// Takes the place of the C library's.
extern "C" int msync(void* address, std::size_t bytes, int flags) {
  if (auto* const held = forebay::emulator::testing::current.load()) {
    if (auto const error = held->wait()) {
      errno = *error;
      return *error == 0 ? 0 : -1;
    }
  }
  return static_cast<int>(::syscall(SYS_msync, address, bytes, flags));
}
