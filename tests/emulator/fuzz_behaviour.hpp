// SPDX-License-Identifier: Apache-2.0
//! \file
//! The behaviour that inputs of the controller fuzzer have shown: an input that shows something new is worth keeping.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>

namespace forebay::emulator::testing {

/// Behaviour that inputs have shown: statuses of opcodes, states of controllers, magnitudes of counters.
class behaviour {
 public:
  void add(std::uint32_t kind, std::uint32_t a, std::uint32_t b) {
    std::lock_guard const lock(mutex_);
    seen_.insert(kind << 28 | (a & 0xfff) << 16 | (b & 0xffff));
  }
  std::set<std::uint32_t> const& seen() const { return seen_; }

 private:
  std::mutex mutex_;
  std::set<std::uint32_t> seen_;
};
enum : std::uint32_t { admin_status = 1, io_status, controller_state, counter_size, refusal };

}  // namespace forebay::emulator::testing
