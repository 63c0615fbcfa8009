// SPDX-License-Identifier: Apache-2.0
//! \file
//! The memory that clients' commands may name, as far as it is registered with the system ahead of the commands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace forebay::emulator {

/// A list that any thread changes, and of which each ring keeps a copy. What is on the list is pinned by each ring, so
/// there is a limit to it; what is not on the list is only slower. Thread-safe.
class client_memory {
 public:
  /// As many as a ring has places for.
  static constexpr std::size_t most_ranges = 1024;

  struct range {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    /// Ascends along the list. Never used again, so memory that comes back to an address is another range.
    std::uint64_t id = 0;
    void const* owner = nullptr;
  };

  /// `most_bytes`: of all ranges together.
  explicit client_memory(std::uint64_t most_bytes) : most_bytes_(most_bytes) {}

  /// One more ring pins everything.
  void add_ring() {
    std::lock_guard const lock(mutex_);
    ++rings_;
  }

  /// Puts the range on the list and has the system find its pages, unless there is too much on the list, or a part of
  /// the range is on it. Returns whether it did.
  bool add(void const* owner, void const* address, std::size_t bytes);
  /// Undoes one `add` with the same arguments.
  void remove(void const* owner, void const* address, std::size_t bytes) noexcept;
  /// Undoes every `add` of an owner.
  void remove_all(void const* owner) noexcept;

  /// Differs after each change.
  std::uint64_t version() const {
    // Acquire: pairs with the release in `changed`. A command comes after the registration of what it names, and sees
    // its version.
    return version_.load(std::memory_order_acquire);
  }
  std::vector<range> ranges() const {
    std::lock_guard const lock(mutex_);
    return ranges_;
  }

  /// A ring could not register some range. The first reason is kept.
  void refused(std::string const& why) {
    std::lock_guard const lock(mutex_);
    note(why);
  }
  /// Empty: nothing was refused.
  std::string why_refused() const {
    std::lock_guard const lock(mutex_);
    return why_refused_;
  }

 private:
  void note(std::string const& why) {
    if (why_refused_.empty()) why_refused_ = why;
  }
  void changed() noexcept {
    version_.fetch_add(1, std::memory_order_release);  // pairs with `version`
  }

  std::uint64_t const most_bytes_;
  mutable std::mutex mutex_;
  std::vector<range> ranges_;
  std::uint64_t bytes_ = 0;  ///< of all ranges
  std::uint64_t rings_ = 0;
  std::uint64_t last_id_ = 0;
  std::string why_refused_;
  std::atomic<std::uint64_t> version_{0};
};

/// How much memory this process should register: a part of what it may lock, and of what the machine has.
std::uint64_t registered_bytes_max();

}  // namespace forebay::emulator
