// SPDX-License-Identifier: Apache-2.0
//! \file
//! The host's part in invariant Q7: what happens to a command that does not complete.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/queue/completion_relay.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay {

/// Answers the requests that waiters leave in the mailbox when their deadline passes. A command's age decides what is
/// done to it, never a waiter's deadline. Once it has been in flight for the limit of its queues (`command_limits`), it
/// is aborted. If it is still in flight `timeout_ns` later, and a waiter that has looked for its completion has asked
/// again since, its queue is deleted. If the controller does not delete the queue, the controller is reset. A deleted
/// queue, or every queue of a reset controller, is declared dead: its commands end as `cancelled`, and their memory is
/// free. Every `look_interval_ns` the recovery also looks for controllers that have left their bus, and declares their
/// queues dead without being asked.
class recovery {
 public:
  static constexpr std::uint64_t look_interval_ns = 1'000'000'000;
  /// How long a relay of completions may take for those that a deleted queue has left.
  static constexpr std::uint64_t relay_limit_ns = 1'000'000'000;

  /// The controller and the queue behind a pair.
  struct member {
    driver::controller* controller = nullptr;
    driver::io_queue* queue = nullptr;
    std::string drive;                  ///< the drive's name, for messages
    completion_relay* relay = nullptr;  ///< through which its completions come; null: through none
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
  struct options {
    std::uint64_t (*clock_ns)() = &simt::native::clock_ns;
    /// Receives one sentence about everything that is done to a command, a queue or a controller; it names drive and
    /// command. step() calls it.
    std::function<void(std::string const& event)> tell;
  };

  /// Needs every group that has queues of the same controllers, since a reset ends them all. All must outlive the
  /// recovery.
  explicit recovery(std::vector<group> groups) : recovery(std::move(groups), options()) {}
  recovery(std::vector<group> groups, options o);

  /// Answers one request of each group, if there is one, and does what is due to the commands that it watches; returns
  /// whether there was any. One thread at a time may call it.
  bool step();
  counters const& count() const { return count_; }

 private:
  /// A command about which a thread has asked.
  struct watched_command {
    std::uint32_t pair_index = 0;
    std::uint32_t command_id = 0;
    std::uint64_t word = 0;    ///< `command_slot`: the command has ended when its word differs from this
    std::uint64_t due_ns = 0;  ///< when to act
    bool aborted = false;      ///< then its queue is deleted next
    bool asked_again = false;  ///< a waiter has asked again, long enough after the abort
  };
  struct watched_group {
    group members;
    std::vector<watched_command> commands;
  };

  bool take_request(watched_group& of);
  bool act(watched_group& of, watched_command& command);
  void look_for_losses();
  void delete_queue(watched_group const& of, watched_command const& command);
  void reset_controller(member const& of, std::string const& why);
  void catch_up(member const& of) const;
  void end_queues(driver::controller const& of, bool removed);
  std::string name_of(watched_group const& of, watched_command const& command) const;
  void tell(std::string const& event) const;

  std::vector<watched_group> groups_;
  options options_;
  std::uint64_t next_look_ns_;
  std::vector<driver::controller const*> gone_;  ///< controllers whose loss has been reported
  counters count_;
};

}  // namespace forebay
