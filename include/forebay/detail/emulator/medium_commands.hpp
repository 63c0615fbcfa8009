// SPDX-License-Identifier: Apache-2.0
//! \file
//! The commands of one service unit that are in a medium.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "forebay/detail/emulator/medium.hpp"
#include "forebay/detail/nvme/command.hpp"

namespace forebay::emulator {

/// A command in a medium.
struct medium_command {
  std::uint32_t place = 0;  ///< of its queue
  std::uint32_t slot = 0;   ///< of the queue's pending set
  nvme::io_opcode opcode = nvme::io_opcode::flush;
  std::uint16_t status_field = 0;  ///< of what failed first
  bool through = false;            ///< what it writes is durable when it is done
  std::uint64_t bytes = 0;
  std::uint64_t arrival_ps = 0;
  std::uint64_t target_ps = 0;             ///< when it is due, if it is done by then
  std::vector<dma_segment> segments = {};  ///< the client's memory
  std::vector<std::uint32_t> copy = {};    ///< of Compare: what was read

  std::uint32_t pieces = 0;       ///< that are not complete
  dma_segment copy_segment = {};  ///< that memory
};

/// Cuts commands into pieces, hands these to a port as it has room, and says when all pieces of a command are complete.
/// For one thread at a time, that of its unit.
class medium_commands {
 public:
  /// A piece has at most this many segments, since operating systems have a limit.
  static constexpr std::size_t max_segments = 256;

  explicit medium_commands(medium& from, port_use use) : port_(from.open(use)) {}
  medium_commands(medium_commands const&) = delete;
  medium_commands& operator=(medium_commands const&) = delete;

  /// A command without pieces, whose other members the caller sets. It is done at the next `collect`, unless pieces are
  /// added to it before.
  medium_command& begin(std::uint32_t place, std::uint32_t slot);
  /// Adds the pieces of a Read, Write or Compare at `offset_bytes`, for the command's segments.
  void add_transfer(medium_command& to, std::uint64_t offset_bytes);
  /// Adds a piece without memory.
  void add(medium_command& to, medium_operation operation, std::uint64_t offset_bytes, std::uint64_t bytes);

  /// Hands over what waits, and calls `done(command)` for each command whose pieces are all complete. Returns whether
  /// there were any.
  template <class Done>
  bool collect(Done&& done) {
    take_completions();
    if (done_.empty()) return false;
    for (medium_command* const command : done_) {
      done(*command);
      recycle(*command);
    }
    done_.clear();
    return true;
  }

  /// Asks for an early end of a command, which is then due at `target_ps`. It ends as any other, done or not.
  void cancel(std::uint32_t place, std::uint32_t slot, std::uint64_t target_ps);
  /// Asks for an early end of all commands of a queue.
  void cancel(std::uint32_t place);
  /// How many commands have begun and are not done: all, or those of a queue.
  std::size_t in_flight() const { return all_.size() - free_.size(); }
  std::size_t in_flight(std::uint32_t place) const;
  /// See `medium_port::wait`.
  void wait(std::uint64_t most_ns) { port_->wait(most_ns); }
  /// Cancels all commands, and waits until they are done. What came of them is lost.
  void drain();

  /// A command that begins when it is due.
  struct late_command {
    std::uint32_t slot = 0;
    std::uint64_t due_ps = 0;
  };
  std::vector<late_command> late;  ///< for the dispatcher: those of the queue that it posts for

 private:
  void put(medium_command& of, medium_piece piece);
  void cancel(medium_command& command);
  void take_completions();
  void recycle(medium_command& command);

  std::vector<std::unique_ptr<medium_command>> all_;
  std::vector<medium_command*> free_;
  std::vector<medium_command*> fresh_;  ///< begun since the last `collect`
  std::vector<medium_command*> done_;
  std::deque<medium_piece> backlog_;  ///< for which the port had no room
  std::unique_ptr<medium_port> port_;
};

}  // namespace forebay::emulator
