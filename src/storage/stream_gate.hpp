// SPDX-License-Identifier: Apache-2.0
//! \file
//! How many streams of a GPU may wait for transfers at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

namespace forebay::detail {

/// CUDA gives a process few channels to a GPU, and streams share them. Behind a stream that waits, for whatever reason,
/// all work of its channel waits, at whatever priority: kernels, and small copies to the GPU. CUDA puts new work into
/// other channels as long as few streams wait. If many do, what the drives need may come behind them, and then the
/// transfers for which they wait never end. This keeps the streams few. Thread-safe.
class stream_gate {
 public:
  /// `most`: streams that may wait at a time. If it is 0, nobody may call `enter`.
  explicit stream_gate(std::uint32_t most) : most_(most) {}

  /// How many may wait for transfers of a process with `channels` channels. A quarter of them, because other streams
  /// may wait for those streams, and take up channels too. With few channels CUDA puts new work even behind a single
  /// stream that waits.
  static std::uint32_t most_of(std::uint32_t channels) { return channels < 8 ? 0 : channels / 4; }
  std::uint32_t most() const { return most_; }

  /// Counts a stream among those that wait, again if it is one already. Returns once there is room for it; callers have
  /// their turn in the order in which they came. Meanwhile it asks `gives_up()` now and then, with nothing locked. If
  /// that says so, it counts nothing and returns false.
  template <class GivesUp>
  bool enter(std::uint64_t stream, GivesUp&& gives_up) {
    place_in_line const mine(*this);
    std::unique_lock lock(mutex_);
    auto asks_at = std::chrono::steady_clock::now() + look;
    while (line_.front() != mine.turn || (!waits_.contains(stream) && waits_.size() >= most_)) {
      if (changed_.wait_until(lock, asks_at) == std::cv_status::no_timeout) continue;
      lock.unlock();
      if (gives_up()) return false;
      lock.lock();
      asks_at = std::chrono::steady_clock::now() + look;
    }
    ++waits_[stream];
    return true;
  }
  /// Takes one `enter` back.
  void leave(std::uint64_t stream) {
    std::lock_guard const lock(mutex_);
    auto const found = waits_.find(stream);
    if (--found->second == 0) waits_.erase(found);
    changed_.notify_all();
  }

 private:
  static constexpr std::chrono::milliseconds look{50};

  struct place_in_line {
    explicit place_in_line(stream_gate& g) : gate(g) {
      std::lock_guard const lock(gate.mutex_);
      turn = gate.turns_++;
      gate.line_.push_back(turn);
    }
    place_in_line(place_in_line const&) = delete;
    place_in_line& operator=(place_in_line const&) = delete;
    ~place_in_line() {
      std::lock_guard const lock(gate.mutex_);
      std::erase(gate.line_, turn);
      gate.changed_.notify_all();
    }
    stream_gate& gate;
    std::uint64_t turn = 0;
  };

  std::uint32_t const most_;
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::map<std::uint64_t, std::uint32_t> waits_;  ///< how often each stream was counted
  std::deque<std::uint64_t> line_;                ///< the callers of `enter`
  std::uint64_t turns_ = 0;
};

}  // namespace forebay::detail
