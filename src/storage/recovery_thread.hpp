// SPDX-License-Identifier: Apache-2.0
//! \file
//! The thread that runs a storage's recovery.
#pragma once

#include <thread>
#include <vector>

#include "forebay/detail/queue/recovery.hpp"

namespace forebay::detail {

/// Reports its actions on standard error. Its destructor stops the thread, so it must run before anything that the
/// groups name is destroyed.
class recovery_thread {
 public:
  explicit recovery_thread(std::vector<recovery::group> groups);

  /// Thread-safe.
  recovery::counters const& count() const { return steps_.count(); }

 private:
  void run(std::stop_token stop);

  std::uint64_t nap_ns_;
  recovery steps_;
  std::jthread thread_;  ///< last, so that it stops before what it uses goes
};

}  // namespace forebay::detail
