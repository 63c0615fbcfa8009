// SPDX-License-Identifier: Apache-2.0
//! \file
//! The host's part in recovery, for schedules.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "forebay/detail/emulator/io_engine.hpp"
#include "forebay/detail/queue/completion_relay.hpp"
#include "forebay/detail/queue/io_queues.hpp"

namespace forebay::test {

/// What happens to a command that was in flight for too long.
enum class recovery_policy : std::uint8_t { none, abort, delete_silently, delete_with_completions, abort_then_delete };

/// As `recovery` does, in the dialect, with emulated drives for controllers; but a command that was aborted is given up
/// when it is asked for again.
class recovery_agent {
 public:
  /// The drive's side of a queue pair.
  struct place {
    emulator::io_engine* drive = nullptr;
    std::uint32_t sq_slot = 0;
    bool may_be_deleted = true;  ///< else its commands are aborted, whatever the policy
  };
  /// A command for which a thread asked.
  struct asked_command {
    std::uint32_t pair = 0;
    std::uint32_t command_id = 0;
    std::uint64_t word = 0;  ///< tells it from later commands of the same id
    bool operator==(asked_command const&) const = default;
  };

  /// `relay`: through which completions come; null: none.
  recovery_agent(io_queues& queues, recovery_policy policy, std::function<place(std::uint32_t pair)> where,
                 completion_relay* relay = nullptr)
      : queues_(queues), policy_(policy), where_(std::move(where)), relay_(relay) {}

  /// The body of an agent that is a daemon.
  void run();

  /// How many requests there were, including those for commands that had ended.
  std::uint64_t requests() const { return requests_; }
  /// How many of them were for commands in flight.
  std::vector<asked_command> const& asked() const { return asked_; }

 private:
  void delete_queue(queue_pair_state& pair, place const& at, bool silently);

  io_queues& queues_;
  recovery_policy policy_;
  std::function<place(std::uint32_t pair)> where_;
  completion_relay* relay_;
  std::uint64_t requests_ = 0;
  std::vector<asked_command> asked_;
  std::vector<asked_command> aborted_;
};

}  // namespace forebay::test
