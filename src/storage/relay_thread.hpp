// SPDX-License-Identifier: Apache-2.0
//! \file
//! The thread that brings a storage's completions in order with their data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "forebay/detail/queue/completion_relay.hpp"
#include "forebay/memory.hpp"
#include "storage/opened_drives.hpp"

namespace forebay::detail {

/// Has a thread only if a drive needs it. If the flush of a drive fails, says so on standard error, and brings no
/// completion of that drive any more: waits for its commands time out. Must outlive the queues that it relays.
/// Thread-safe.
class relay_thread {
 public:
  /// `data_on_gpu`: whether data may go to a GPU's memory. `shared_memory`: reached by the host and the kernels.
  relay_thread(std::shared_ptr<opened_drives> drives, bool data_on_gpu, memory::resource& shared_memory);
  relay_thread(relay_thread const&) = delete;
  relay_thread& operator=(relay_thread const&) = delete;
  ~relay_thread();

  /// For the queue pairs of a drive whose rings lie in host memory. Null: their completions need none.
  completion_relay* of(std::size_t drive) const { return relays_[drive].get(); }
  /// How often data was flushed since the last reset.
  std::uint64_t flushes() const;
  void reset_counts() const;

 private:
  void run();

  std::shared_ptr<opened_drives> drives_;
  std::vector<std::unique_ptr<completion_relay>> relays_;  ///< of each drive; null: it needs none
  mutable std::atomic<std::uint64_t> flushes_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace forebay::detail
