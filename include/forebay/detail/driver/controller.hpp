// SPDX-License-Identifier: Apache-2.0
//! \file
//! The host side of one NVMe controller: bring-up, admin commands, queues, recovery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "forebay/detail/driver/dma_buffer.hpp"
#include "forebay/detail/driver/errors.hpp"
#include "forebay/detail/driver/io_queue.hpp"
#include "forebay/detail/driver/quirks.hpp"
#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/log_page.hpp"
#include "forebay/detail/nvme/registers.hpp"

namespace forebay::driver {

class admin_queue;

/// How many commands the queues of a priority may have started, in proportion to those of the other priorities, if all
/// have some waiting: 1 to 256 each. Urgent commands go before all others.
struct priority_weights {
  std::uint32_t high = 16;
  std::uint32_t medium = 4;
  std::uint32_t low = 1;
};

struct controller_options {
  std::uint32_t nsid = 1;                  ///< the namespace that `identity()` describes
  std::uint32_t io_queue_pairs = 1024;     ///< how many to ask for; the controller may grant fewer
  std::uint32_t admin_queue_entries = 32;  ///< 2 to 4096
  std::uint64_t admin_timeout_ns = 5'000'000'000;
  std::uint64_t shutdown_timeout_ns = 5'000'000'000;  ///< at least this; RTD3E of Identify Controller if that is longer
  std::uint64_t shutdown_timeout_most_ns = 60'000'000'000;  ///< of RTD3E, which can say 71 minutes
  std::uint64_t ready_timeout_ns = 0;  ///< how long CSTS.RDY may take to follow CC.EN; 0: as CAP.TO says
  /// If set: weighted round robin arbitration, so that priorities of queues take effect. Rejected if CAP.AMS does not
  /// offer it.
  std::optional<priority_weights> priorities;
  driver::quirks quirks{};
};

/// What the controller and its namespace report about themselves.
struct drive_identity {
  std::string serial;
  std::string model;
  std::string firmware;
  nvme::controller_version version;
  std::uint32_t nsid = 0;
  std::uint64_t blocks = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t page_bytes = 0;          ///< what one PRP entry covers
  std::uint64_t max_transfer_bytes = 0;  ///< of one command: MDTS, or 65536 blocks if MDTS sets no limit
  std::uint32_t max_queue_entries = 0;   ///< CAP.MQES, or what a quirk says
  std::uint32_t io_queue_pairs = 0;      ///< as many as the controller granted
  bool volatile_write_cache = false;     ///< a Flush is needed for durability
  bool compare = false;
  bool write_zeroes = false;
  bool dataset_management = false;
  bool write_protected = false;
  bool deallocated_reads_zero = false;  ///< a deallocated block reads as zeros

  std::uint64_t size_bytes() const { return blocks * block_bytes; }
};

/// An admin command that was started. Valid for one `finish()`.
struct admin_ticket {
  std::uint16_t command_id = 0;
  std::uint64_t generation = 0;
};

/// Drives one controller, which it enables when constructed and shuts down when destroyed. `registers` and `dma` must
/// outlive it and every `io_queue` it made. All members may be called from any thread. Admin commands throw
/// `command_error` for a status, and `controller_failure` if no answer comes.
class controller {
 public:
  controller(register_space& registers, dma_space& dma, controller_options options = {});
  controller(controller const&) = delete;
  controller& operator=(controller const&) = delete;
  /// As `shutdown()`, without throwing.
  ~controller();

  /// Does not change: a `reset()` that finds another drive fails.
  drive_identity const& identity() const { return identity_; }
  nvme::controller_capabilities capabilities() const { return capabilities_; }
  dma_space& dma() const { return dma_; }
  /// Counts bring-ups. The controller does not know a queue of an earlier generation any more.
  std::uint64_t generation() const;

  /// Whether the device has left its bus, as far as can be found. All queues and commands are then gone, as after a
  /// reset. Does not wait: false while another member is at work.
  bool has_left();

  /// Disables the controller and brings it up again. All I/O queues and admin commands under way are gone: the
  /// controller touches no memory that they named. An `io_queue` keeps its id and rings, for `recreate()`.
  void reset();
  /// Normal shutdown notification, then disables the controller. Only `reset()` makes it usable again.
  void shutdown();

  /// Makes a pair of I/O queues with the lowest free id. Throws `refused_input` for options that the controller's
  /// limits forbid, and `operation_failed` if every granted pair is in use.
  io_queue create_io_queue_pair(queue_options const& options = {});
  /// Creates again, in the controller, a queue that a reset or `delete_io_queue_pair` has deleted: same id, rings and
  /// doorbells. Clears rings that the queue allocated.
  void recreate(io_queue& queue);
  /// Deletes both queues: their commands end, and the controller no longer touches the commands' memory. Keeps the
  /// rings.
  void delete_io_queue_pair(io_queue& queue);
  /// Asks the controller to abort one command; false if it did not. The command completes in its queue, aborted or not.
  bool abort(std::uint16_t sq_id, std::uint16_t command_id);

  nvme::identify_controller identify_controller();
  nvme::identify_namespace identify_namespace(std::uint32_t nsid);
  /// Ids of active namespaces greater than `after`, at most 1024, increasing.
  std::vector<std::uint32_t> active_namespaces(std::uint32_t after = 0);
  std::uint32_t get_feature(nvme::feature_id feature, nvme::feature_select select = nvme::feature_select::current,
                            std::uint32_t nsid = 0);
  /// `value` is CDW11; returns DW0 of the completion.
  std::uint32_t set_feature(nvme::feature_id feature, std::uint32_t value, std::uint32_t nsid = 0);
  /// Fills `to` with `bytes` (a multiple of 4, at most one page) of a log page.
  void get_log_page(nvme::log_page_id page, void* to, std::size_t bytes, std::uint32_t nsid = nvme::broadcast_nsid);

  /// Runs any admin command and returns its completion, whatever the status. The command id is filled in. After a
  /// `controller_failure` the memory that the entry names belongs to the controller until `reset()`.
  nvme::completion_entry execute(nvme::submission_entry const& entry);
  /// Starts an admin command that may stay with the controller for a long time (Asynchronous Event Request).
  admin_ticket start(nvme::submission_entry const& entry);
  /// The command's completion, or nothing if there is none by `deadline_ns` of `simt::native::clock_ns()`; 0 looks
  /// once.
  std::optional<nvme::completion_entry> finish(admin_ticket ticket, std::uint64_t deadline_ns);

 private:
  friend class io_queue;
  enum class state : std::uint8_t {
    disabled,  ///< touches no memory
    enabled,   ///< takes commands
    broken,    ///< did not answer: takes no commands, and may still touch memory
  };
  /// Rings and id of a queue whose deletion failed: they are free only once the controller is disabled.
  struct orphan {
    std::uint16_t id;
    dma_buffer submission;
    dma_buffer completion;
  };

  void bring_up();
  void shutdown_quietly() noexcept;
  void adopt_capabilities(nvme::controller_capabilities found);
  void enable_locked();
  void disable_locked();
  /// After a change of CC.EN, if there was one.
  void wait_before_status_locked() const;
  bool wait_for_ready_locked(bool ready);
  std::uint64_t ready_timeout_ns() const;
  /// CSTS. Throws if the device is gone, and with `fatal_throws` also if it reports that it cannot go on.
  nvme::controller_status status_locked(bool fatal_throws);
  void require_enabled_locked() const;
  [[noreturn]] void fail_locked(controller_failure::cause why, std::string const& what);
  [[noreturn]] void fail_not_in_time_locked(char const* what);
  void notify_shutdown_locked();
  void learn_identity();

  nvme::completion_entry run(nvme::submission_entry const& entry, dma_buffer* data);
  nvme::completion_entry run_or_throw(nvme::submission_entry const& entry, dma_buffer* data, std::string const& what);
  admin_ticket start(nvme::submission_entry const& entry, dma_buffer* data, std::uint64_t deadline_ns);
  std::optional<nvme::completion_entry> finish(admin_ticket ticket, dma_buffer* data, std::uint64_t deadline_ns);
  dma_buffer identify(nvme::identify_cns cns, std::uint32_t nsid, std::string const& what);

  void create_queues(io_queue& queue);
  void delete_queues(io_queue& queue);
  void delete_completion_queue(io_queue& queue);
  void release(io_queue& queue) noexcept;
  std::uint64_t ring_bus_address(void const* ring, std::size_t bytes, std::string const& field) const;

  register_space& registers_;
  dma_space& dma_;
  controller_options const options_;
  nvme::controller_capabilities capabilities_;
  drive_identity identity_;
  std::uint64_t shutdown_timeout_ns_;

  std::mutex lifecycle_mutex_;  ///< one bring-up, reset or shutdown at a time
  std::mutex abort_mutex_;      ///< one Abort at a time, within every controller's ACL
  mutable std::mutex mutex_;    ///< guards all members below, and the registers
  std::unique_ptr<admin_queue> admin_;
  state state_ = state::disabled;
  std::uint64_t generation_ = 0;
  std::vector<bool> queue_id_used_;
  std::vector<orphan> orphans_;
};

}  // namespace forebay::driver
