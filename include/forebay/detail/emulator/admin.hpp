// SPDX-License-Identifier: Apache-2.0
//! \file
//! The admin half of an emulated controller: bring-up, reset and shutdown by registers, and the admin commands.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/emulator/io_engine.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/emulator/spaces.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/log_page.hpp"
#include "forebay/detail/nvme/registers.hpp"

namespace forebay::emulator {

struct admin_options {
  std::string serial;
  std::string model;
  std::uint16_t controller_id = 1;
  std::uint32_t max_queues = 128;
  std::uint32_t max_queue_entries = 16384;
  std::uint8_t mdts = 8;
};

/// With this, a controller that shuts down has the written data made durable, which may take long. Neither member
/// waits.
struct durability {
  /// Asks for it; returns the ticket to pass to `done`.
  std::function<std::uint64_t()> ask;
  /// Nothing: what was asked for is not done yet. Else whether all of it, and all that came before, is durable.
  std::function<std::optional<bool>(std::uint64_t ticket)> done;
  /// Switches the controller's volatile write cache; called only if that changes. Null: it cannot be switched off.
  std::function<void(bool on)> use_cache;
};

/// A host actor: one thread calls `step` again and again. It never blocks: if it needs an answer of a service unit, a
/// later step takes the matter up again.
class admin {
 public:
  /// `regions`: for memory that units reach; `of_host`: for memory that the thread that calls `step` reaches, which may
  /// be the same.
  admin(admin_options const& options, register_file& registers, dma_regions const& regions, dma_regions const& of_host,
        media const& drive, io_engine& engine, std::uint32_t first_slot, durability sync);

  /// Looks at registers and the admin queue once. Returns whether there was anything to do.
  bool step();
  /// Called again and again in place of `step` when the controller is to be destroyed. Returns whether the engine has
  /// released all its queues.
  bool step_away();

  static constexpr std::uint32_t max_events = 4;  ///< Asynchronous Event Requests in flight
  static constexpr std::uint32_t error_log_entries = 64;

 private:
  enum class phase { disabled, ready, failed, resetting };
  struct completion {
    std::uint16_t status_field = 0;
    std::uint32_t result = 0;
  };
  /// Nothing: the command is still outstanding.
  using outcome = std::optional<completion>;
  struct queue_entry {
    bool exists = false;
    bool leaving = false;     ///< a reset has asked the unit to release it
    std::uint32_t users = 0;  ///< of a completion queue: submission queues that name it
    std::uint32_t cq_id = 0;  ///< of a submission queue
  };

  bool shut_down(nvme::controller_configuration cc);
  void enable();
  void begin_reset();
  bool finish_reset();
  void raise_events();
  bool fetch();
  void complete(std::uint16_t command_id, completion const& what);
  bool post();

  outcome execute(nvme::submission_entry const& command);
  outcome create_completion_queue(nvme::submission_entry const& command);
  outcome create_submission_queue(nvme::submission_entry const& command);
  outcome delete_completion_queue(nvme::submission_entry const& command);
  outcome delete_submission_queue(nvme::submission_entry const& command);
  outcome abort(nvme::submission_entry const& command);
  outcome identify(nvme::submission_entry const& command);
  outcome get_log_page(nvme::submission_entry const& command);
  void use_cache(bool on);
  outcome set_features(nvme::submission_entry const& command);
  outcome get_features(nvme::submission_entry const& command);
  outcome request_event(nvme::submission_entry const& command);
  /// Resumes the command that waits for a service unit.
  outcome resume();

  /// Checks what both Create commands have in common: base address and size.
  completion check_queue(nvme::submission_entry const& command, std::uint64_t entry_bytes) const;
  completion transfer_out(nvme::submission_entry const& command, void const* data, std::uint64_t bytes);
  bool valid_queue_id(std::uint32_t id) const { return id != 0 && id < sqs_.size(); }
  std::uint32_t slot_of(std::uint32_t id) const { return first_slot_ + id - 1; }

  admin_options const options_;
  register_file& registers_;
  dma_region_table host_regions_;   ///< for admin queues and for memory that admin commands read and write
  dma_region_table queue_regions_;  ///< for I/O queues, as the host looks them up
  dma_region_table unit_regions_;   ///< the same, as units look them up
  media drive_;
  io_engine& engine_;
  std::uint32_t const first_slot_;  ///< of the engine's queue slots; queue id 1 is in it
  durability sync_;
  std::optional<std::uint64_t> shutdown_ticket_;  ///< of `sync_`, while the controller shuts down

  phase phase_ = phase::disabled;
  std::uint64_t page_bytes_ = 4096;
  nvme::submission_entry const* sq_entries_ = nullptr;
  std::uint32_t sq_size_ = 0;
  std::uint32_t sq_head_ = 0;
  completion_ring cq_;
  std::vector<queue_entry> sqs_;
  std::vector<queue_entry> cqs_;

  nvme::submission_entry waiting_;  ///< the command that waits for a unit's answer
  bool is_waiting_ = false;
  bool is_asked_ = false;                                         ///< the unit has been asked for that
  std::deque<std::pair<std::uint16_t, completion>> completions_;  ///< not posted yet, since the queue was full
  std::deque<std::uint16_t> event_requests_;
  std::uint64_t doorbell_errors_seen_ = 0;
  std::uint64_t admin_doorbell_errors_ = 0;
  std::uint32_t bad_tail_ = 0;
  bool event_masked_ = false;  ///< an error event was reported and its log page not read yet
  std::array<std::uint32_t, 256> features_{};
  bool uses_cache_ = true;
  std::deque<nvme::error_information_entry> errors_;  ///< newest first
  std::uint64_t error_count_ = 0;
};

}  // namespace forebay::emulator
