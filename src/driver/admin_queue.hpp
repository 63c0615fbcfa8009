// SPDX-License-Identifier: Apache-2.0
//! \file
//! The admin queue pair and the commands in it. Not thread-safe: `controller` locks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "forebay/detail/driver/dma_buffer.hpp"
#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/nvme/command.hpp"

namespace forebay::driver {

class admin_queue {
 public:
  admin_queue(register_space& registers, dma_space& dma, std::uint32_t entries, std::uint32_t doorbell_stride);

  std::uint32_t entries() const { return entries_; }
  std::uint64_t submission_bus_address() const { return submission_.bus_address(); }
  std::uint64_t completion_bus_address() const { return completion_.bus_address(); }

  /// Empties the queues and forgets every command. The controller must be disabled.
  void restart();
  /// Hands the command to the controller, with `data` (may be null) as its memory until it completes or `restart()`.
  /// Returns the command id, or nothing when all are in use.
  std::optional<std::uint16_t> submit(nvme::submission_entry const& entry, dma_buffer* data);
  /// Takes the completions that the controller has posted. Throws `controller_failure` on one that belongs to no
  /// command.
  void poll();
  /// Returns the completion of a command, once. Moves its memory back into `data` (may be null) and frees the id.
  std::optional<nvme::completion_entry> take(std::uint16_t command_id, dma_buffer* data);
  /// The memory that the controller may still write when this object is destroyed.
  void leak() noexcept;

 private:
  enum class state : std::uint8_t { free, in_flight, done };
  struct record {
    enum state state = state::free;
    nvme::completion_entry completion;
    dma_buffer data;
  };

  register_space& registers_;
  std::uint32_t const entries_;
  std::uint32_t const doorbell_stride_;
  dma_buffer submission_;
  dma_buffer completion_;
  std::vector<record> records_;  ///< by command id; one fewer than entries, so neither ring can overflow
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
  std::uint32_t phase_ = 1;
  std::uint32_t next_id_ = 0;
};

}  // namespace forebay::driver
