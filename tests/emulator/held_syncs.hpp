// SPDX-License-Identifier: Apache-2.0
//! \file
//! The `msync` of a test program: the test says when each call returns, and what.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

namespace forebay::emulator::testing {

/// While one lives, each call of `msync` in this process waits until `end` lets it return. Without one, calls go to the
/// system at once. There is one at a time.
class held_syncs {
 public:
  held_syncs();
  /// Calls that still wait go to the system.
  ~held_syncs();
  held_syncs(held_syncs const&) = delete;
  held_syncs& operator=(held_syncs const&) = delete;

  /// Returns once `calls` calls have begun since this object was made.
  void await_begun(std::uint32_t calls);
  /// Lets the call return that has waited longest, or the next one: 0, or -1 with this error.
  void end(int error = 0);

  /// What `msync` does. Returns 0 or an error of the system; none: ask the system.
  std::optional<int> wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t begun_ = 0;
  std::uint32_t waiting_ = 0;
  std::uint32_t may_end_ = 0;
  int error_ = 0;
  bool over_ = false;
};

}  // namespace forebay::emulator::testing
