// SPDX-License-Identifier: Apache-2.0
//! \file
//! The host's part in invariant Q7: what becomes of a command that does not complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "forebay/driver/controller.hpp"
#include "forebay/queue/io_queues.hpp"

namespace forebay {

/// Answers the requests that waiters leave in the mailbox when their deadline passes. The first request for a command
/// makes the controller abort it; when its waiter comes back with the command still in flight, the queue is deleted;
/// when that fails, the controller is reset. A deleted queue, or every queue of a reset controller, is declared dead:
/// its commands end as `cancelled`, and their memory is free.
class recovery {
 public:
  /// Which controller and which queue stand behind a pair.
  struct member {
    driver::controller* controller = nullptr;
    driver::io_queue* queue = nullptr;
  };
  /// Queues with a mailbox of their own, and their members in the order of the pairs.
  struct group {
    io_queues* queues = nullptr;
    std::vector<member> members;
  };
  /// Thread-safe statistics.
  struct counters {
    std::atomic<std::uint64_t> aborts = 0;  ///< Abort commands that the controller carried out
    std::atomic<std::uint64_t> queues_deleted = 0;
    std::atomic<std::uint64_t> controller_resets = 0;
  };

  /// Every group that has queues of the same controllers, since a reset ends them all. All must outlive the recovery.
  explicit recovery(std::vector<group> groups);

  /// Answers one request of each group, if there is one; whether there was any. For one thread at a time.
  bool step();
  counters const& count() const { return count_; }

 private:
  struct watched {
    group members;
    std::vector<recovery_request> asked_before;
  };
  void answer(watched& of, recovery_request const& request);
  void delete_queue(group const& of, std::uint32_t pair_index);
  void reset_controller(driver::controller& controller);

  std::vector<watched> groups_;
  counters count_;
};

}  // namespace forebay
