// SPDX-License-Identifier: Apache-2.0
//! \file
//! A thread of the host that does calls for another one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace forebay::transfer {

/// Does calls one after another. Thread-safe.
class helper_thread {
 public:
  helper_thread() : thread_([this](std::stop_token const& stopping) { work(stopping); }) {}
  helper_thread(helper_thread const&) = delete;
  helper_thread& operator=(helper_thread const&) = delete;
  /// Waits for the call that is under way. Those that have not begun are dropped.
  ~helper_thread() = default;

  /// The future has what `call` returns or throws.
  std::shared_future<double> start(std::function<double()> call) {
    std::packaged_task<double()> task(std::move(call));
    std::shared_future<double> result = task.get_future().share();
    {
      std::lock_guard const lock(mutex_);
      calls_.push_back(std::move(task));
    }
    changed_.notify_one();
    return result;
  }

 private:
  void work(std::stop_token const& stopping) {
    for (;;) {
      std::packaged_task<double()> task;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stopping, [&] { return !calls_.empty(); }) || stopping.stop_requested()) return;
        task = std::move(calls_.front());
        calls_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::packaged_task<double()>> calls_;  // guarded by `mutex_`
  std::jthread thread_;                             // last: it uses the others
};

}  // namespace forebay::transfer
