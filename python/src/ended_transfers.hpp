// SPDX-License-Identifier: Apache-2.0
//! \file
//! The transfers of a storage that have ended, on their way to Python.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "python_lock.hpp"
#include "shared_storage.hpp"

namespace forebay::python {

/// The thread of the storage that ends transfers never waits for Python's lock: it leaves numbers here, and a thread of
/// Python's waits for them. Thread-safe.
class ended_transfers {
 public:
  /// Which class of error, and its arguments: `refused` with field, value and remedy, `failed` with a message, or
  /// `cancelled`.
  using failure = std::optional<std::tuple<std::string, std::string, std::string, std::string>>;
  using ended = std::tuple<std::uint64_t, failure>;

  ended_transfers() = default;
  ended_transfers(ended_transfers const&) = delete;
  ended_transfers& operator=(ended_transfers const&) = delete;
  ~ended_transfers() {
    // A thread of the parent may be waiting in it, and a condition that is destroyed waits for such threads.
    if (getpid() != made_by_) new std::shared_ptr<books>(std::move(books_));
  }

  /// Calls `start(ended)`, which starts a transfer that calls `ended` when it has ended.
  template <class Start>
  void start(std::uint64_t number, Start&& start) {
    std::shared_ptr<books> const to = books_;
    {
      std::lock_guard const lock(to->mutex);
      to->begun.emplace(number, std::nullopt);
    }
    try {
      host_transfer const begun = start([to, number](std::exception_ptr const& why) { to->arrive(number, why); });
      std::lock_guard const lock(to->mutex);
      if (auto const found = to->begun.find(number); found != to->begun.end()) found->second = begun;
    } catch (...) {
      std::lock_guard const lock(to->mutex);
      to->begun.erase(number);
      throw;
    }
  }
  /// Whether a transfer was started that `wait` has not returned yet.
  bool has(std::uint64_t number) const {
    std::lock_guard const lock(books_->mutex);
    return books_->begun.contains(number);
  }
  void cancel(std::uint64_t number) {
    std::lock_guard const lock(books_->mutex);
    if (auto const found = books_->begun.find(number); found != books_->begun.end() && found->second) {
      found->second->cancel();
    }
  }
  /// Waits until transfers have ended, and returns them. Returns none after `stop`, when all have been returned.
  std::vector<ended> wait() {
    std::shared_ptr<books> const from = books_;
    without_lock const unlocked;
    std::unique_lock lock(from->mutex);
    from->news.wait(lock, [&] { return !from->arrived.empty() || (from->stopped && from->begun.empty()); });
    for (ended const& e : from->arrived) from->begun.erase(std::get<0>(e));
    return std::exchange(from->arrived, {});
  }
  void stop() {
    std::lock_guard const lock(books_->mutex);
    books_->stopped = true;
    books_->news.notify_all();
  }

 private:
  struct books {
    std::mutex mutex;  ///< guards what follows
    std::condition_variable news;
    std::map<std::uint64_t, std::optional<host_transfer>> begun;  ///< until `wait` returns it
    std::vector<ended> arrived;
    bool stopped = false;

    void arrive(std::uint64_t number, std::exception_ptr const& why) {
      failure told = told_of(why);
      std::lock_guard const lock(mutex);
      arrived.emplace_back(number, std::move(told));
      news.notify_all();
    }
  };

  static failure told_of(std::exception_ptr const& why) {
    if (why == nullptr) return std::nullopt;
    try {
      std::rethrow_exception(why);
    } catch (refused_input const& e) {
      return std::tuple("refused", e.field(), e.value(), e.remedy());
    } catch (transfer_cancelled const&) {
      return std::tuple("cancelled", "", "", "");
    } catch (std::exception const& e) {
      return std::tuple("failed", e.what(), "", "");
    }
  }

  pid_t const made_by_ = getpid();
  std::shared_ptr<books> books_ = std::make_shared<books>();
};

}  // namespace forebay::python
