// SPDX-License-Identifier: Apache-2.0
//! \file
//! A transfer of the host that goes on in the background.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "forebay/extent.hpp"

namespace forebay {

namespace detail {
struct host_transfer_state;
}

/// What `storage::pread_async` and `storage::pwrite_async` take beside the bytes. A plain struct.
struct host_transfer_options {
  extent const* within = nullptr;  ///< the extent to which the offset refers; null: the storage
  /// The memory is a GPU's, or managed memory. The first transfer of an allocation registers all of it, if every drive
  /// reaches that GPU's memory. Otherwise the bytes pass through memory that the drives reach: the same GPU's, or else
  /// page-locked memory of the host. While the transfer is under way, no thread should call what waits for all work of
  /// the GPU and keeps other calls to CUDA waiting, such as `cudaFree`. Both would go on only once the transfer fails.
  bool on_gpu = false;
  /// A CUDA stream, as a number: the transfer begins after what the stream has queued before the call, and what the
  /// stream gets after the call waits for the end of the transfer. No thread of the host waits for either, with one
  /// exception. Streams share few channels to a GPU (`CUDA_DEVICE_MAX_CONNECTIONS`: 8 unless set, 2 under MPS, 32 at
  /// most). What the drives need may come behind streams that wait. So a quarter as many streams may wait for transfers
  /// at a time. If one more comes, the call returns once one of them goes on. With fewer than 8 channels a stream is
  /// refused.
  std::optional<std::uintptr_t> stream = {};
  /// Asked now and then, on the caller's thread, while the call waits for other streams. If it returns true, the call
  /// throws `transfer_cancelled`, as it does after `storage::cancel_transfers`.
  std::function<bool()> interrupted = {};
  /// Called once, when the transfer has ended: with null, or with what `wait()` throws. `wait()` may return before. A
  /// thread of the storage calls it, and moves no bytes meanwhile. It must not throw, and must not use the storage.
  std::function<void(std::exception_ptr)> ended = {};
};

/// A transfer that was started. Copies stand for the same transfer. Thread-safe. It may outlive the storage, which ends
/// its transfers.
class host_transfer {
 public:
  /// For `storage`.
  explicit host_transfer(std::shared_ptr<detail::host_transfer_state> state) : state_(std::move(state)) {}

  /// Whether it has ended. The memory is then the caller's again.
  bool ended() const;
  /// Waits until it has ended. Throws `operation_failed` if a drive failed, and `transfer_cancelled` if it was
  /// cancelled.
  void wait() const;
  /// Ends it early: what the drives already have is completed, and no more is sent. Does not wait for the end.
  void cancel() const;

 private:
  std::shared_ptr<detail::host_transfer_state> state_;
};

/// A transfer that `host_transfer::cancel` or `storage::cancel_transfers` ended early.
class transfer_cancelled : public std::exception {
 public:
  /// The same text each time.
  char const* what() const noexcept override { return "the transfer was cancelled before it ended"; }
};

}  // namespace forebay
