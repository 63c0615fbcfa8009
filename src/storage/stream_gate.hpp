// SPDX-License-Identifier: Apache-2.0
//! \file
//! How many streams of a GPU may wait for transfers at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

namespace forebay::detail {

/// CUDA gives a process few channels to a GPU. Once as many streams wait as there are channels, for whatever reason,
/// nothing that the process queues begins on that GPU, at whatever priority: neither kernels nor small copies to it. So
/// the drives would never end the transfers for which those streams wait. This keeps the streams fewer than that.
/// Thread-safe.
class stream_gate {
 public:
  /// `most`: streams that may wait at a time; at least 1.
  explicit stream_gate(std::uint32_t most) : most_(most) {}

  /// How many may wait for transfers of a process with `channels` channels. The others are for streams that wait for
  /// those streams.
  static std::uint32_t most_of(std::uint32_t channels) { return channels / 2; }

  /// Counts a stream among those that wait, again if it is one already. Returns once there is room for it; callers have
  /// their turn in the order in which they came.
  void enter(std::uint64_t stream) {
    std::unique_lock lock(mutex_);
    std::uint64_t const turn = turns_++;
    changed_.wait(lock, [&] { return turn == next_turn_ && (waits_.contains(stream) || waits_.size() < most_); });
    ++waits_[stream];
    ++next_turn_;
    changed_.notify_all();
  }
  /// Takes one `enter` back.
  void leave(std::uint64_t stream) {
    std::lock_guard const lock(mutex_);
    auto const found = waits_.find(stream);
    if (--found->second == 0) waits_.erase(found);
    changed_.notify_all();
  }

 private:
  std::uint32_t const most_;
  std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::map<std::uint64_t, std::uint32_t> waits_;  ///< how often each stream was counted
  std::uint64_t turns_ = 0, next_turn_ = 0;
};

}  // namespace forebay::detail
