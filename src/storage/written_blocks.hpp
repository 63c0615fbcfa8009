// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which bytes of a storage the host is writing at the moment.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace forebay::detail {

/// A write that covers a part of a block reads the block first, and then writes all of it. Another write of the host
/// to the same block in between would be lost, so a block has one writer at a time. Thread-safe.
class written_blocks {
 public:
  /// Reserves [begin, end), or returns false if another write has some of it.
  bool try_take(std::uint64_t begin, std::uint64_t end) {
    std::lock_guard const lock(mutex_);
    return take_locked(begin, end);
  }
  /// Waits until it has reserved the range.
  void take(std::uint64_t begin, std::uint64_t end) {
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return take_locked(begin, end); });
  }
  /// Ends a reservation of the same range.
  void release(std::uint64_t begin, std::uint64_t end) {
    {
      std::lock_guard const lock(mutex_);
      taken_.erase(std::find(taken_.begin(), taken_.end(), range{begin, end}));
    }
    released_.notify_all();
  }

 private:
  struct range {
    std::uint64_t begin, end;
    bool operator==(range const&) const = default;
  };
  bool take_locked(std::uint64_t begin, std::uint64_t end) {
    for (range const& r : taken_) {
      if (begin < r.end && r.begin < end) return false;
    }
    taken_.push_back({begin, end});
    return true;
  }

  std::mutex mutex_;
  std::condition_variable released_;
  std::vector<range> taken_;  ///< at most one for each request in flight
};

/// A reservation while it lives.
class written_range {
 public:
  written_range(written_blocks& of, std::uint64_t begin, std::uint64_t end) : of_(of), begin_(begin), end_(end) {
    of_.take(begin_, end_);
  }
  ~written_range() { of_.release(begin_, end_); }
  written_range(written_range const&) = delete;
  written_range& operator=(written_range const&) = delete;

 private:
  written_blocks& of_;
  std::uint64_t const begin_, end_;
};

}  // namespace forebay::detail
