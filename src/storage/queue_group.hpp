// SPDX-License-Identifier: Apache-2.0
//! \file
//! Queue pairs for one kind of thread on every drive: the driver's queues and the state that drives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "forebay/detail/driver/io_queue.hpp"
#include "forebay/detail/queue/completion_relay.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/queue/recovery.hpp"
#include "forebay/storage.hpp"
#include "storage/buffers.hpp"
#include "storage/inspector.hpp"
#include "storage/opened_drives.hpp"

namespace forebay::detail {

class relay_thread;

queue_pair_rings rings_of(driver::io_queue const& queue);

/// The queues of a group, how many there are, and whether the GPU or the host drives them.
struct queue_group_plan {
  std::vector<drive_queues> queues;  ///< of each drive
  std::uint32_t records = 0;         ///< requests that may be open at once
  bool driven_by_gpu = false;
  relay_thread const* relay = nullptr;        ///< of the storage
  memory::resource* state_memory = nullptr;   ///< of the threads that drive them
  memory::resource* shared_memory = nullptr;  ///< what those threads and the host both reach
};

/// Made by one thread. Then recovery, submitting threads and the inspector may use it at once.
class queue_group {
 public:
  /// `drives` must outlive the group. Throws `refused_input` and `operation_failed`.
  queue_group(opened_drives const& drives, queue_group_plan const& plan, storage_options const& options,
              buffer_source const& buffers);
  queue_group(queue_group const&) = delete;
  queue_group& operator=(queue_group const&) = delete;

  io_queues& queues() { return *queues_; }
  io_queues const& queues() const { return *queues_; }
  /// Valid as long as the group.
  recovery::group for_recovery();
  /// The same; `whose`: e.g. "kernels".
  inspected_queues for_inspection(char const* whose) const;

 private:
  bool rings_on_gpu(std::size_t drive) const;

  opened_drives const& drives_;
  memory::resource* gpu_memory_;  ///< null: no GPU drives them
  std::unique_ptr<registered_memory>
      prp_pages_;  ///< before the rings: until those are deleted the drive may read lists
  std::unique_ptr<io_queues> queues_;
  std::vector<driver::io_queue> rings_;
  std::vector<relayed_pair> pairs_;    ///< the same for the threads; after `rings_`, at which relays look
  std::vector<std::size_t> drive_of_;  ///< each pair
};

}  // namespace forebay::detail
