// SPDX-License-Identifier: Apache-2.0
//! \file
//! The thread that brings a storage's completions in order with their data.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "forebay/detail/queue/completion_relay.hpp"
#include "forebay/memory.hpp"
#include "storage/opened_drives.hpp"

namespace forebay::detail {

/// Has a thread only if a drive needs it. If a flush fails, says so on standard error, and brings no completion any
/// more: the waits of all threads time out. Must outlive the queues that it relays. Thread-safe.
class relay_thread {
 public:
  /// `data_on_gpu`: whether kernels' data goes to a GPU's memory. `shared_memory`: reached by the host and the kernels.
  relay_thread(std::shared_ptr<opened_drives> drives, bool data_on_gpu, memory::resource& shared_memory);
  relay_thread(relay_thread const&) = delete;
  relay_thread& operator=(relay_thread const&) = delete;
  ~relay_thread();

  /// For queue pairs of a drive whose data goes to a GPU's memory, or of the host. Null: their completions need none.
  completion_relay* of(std::size_t drive, bool data_on_gpu) const;
  /// The same for any drive.
  completion_relay* of_any() const { return relay_.get(); }
  /// How often data was flushed.
  std::uint64_t flushes() const;

 private:
  void run();

  std::shared_ptr<opened_drives> drives_;
  std::unique_ptr<completion_relay> relay_;
  std::atomic<std::uint64_t> flushes_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace forebay::detail
