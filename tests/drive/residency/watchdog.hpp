// SPDX-License-Identifier: Apache-2.0
//! \file
//! Ends a program that hangs, and says where.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <thread>

namespace forebay::residency {

/// Exit status of a program that was ended.
inline constexpr int hung_status = 4;

/// Ends the process if it takes longer than `limit`, or if a watched thread has reported no progress for `silence`.
/// Thread-safe.
class watchdog {
 public:
  using clock = std::chrono::steady_clock;

  watchdog(std::chrono::seconds limit, std::chrono::seconds silence);
  ~watchdog();
  watchdog(watchdog const&) = delete;
  watchdog& operator=(watchdog const&) = delete;

  /// One thread that is on watch while this lives.
  class watched {
   public:
    watched(watchdog& by, std::string name);
    ~watched();
    watched(watched const&) = delete;
    watched& operator=(watched const&) = delete;
    /// Reports that the thread got here, and does `what` next.
    void now(std::string what);

   private:
    friend class watchdog;
    watchdog& by_;
    std::string const name_;
    std::string does_ = "begins";
    clock::time_point since_ = clock::now();
  };

 private:
  void watch();
  void end_all(std::string const& why) const;

  clock::time_point const begun_ = clock::now();
  std::chrono::seconds const limit_, silence_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<watched*> all_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace forebay::residency
