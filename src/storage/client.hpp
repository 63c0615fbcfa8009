// SPDX-License-Identifier: Apache-2.0
//! \file
//! The parts that a storage has once for each device whose threads use it: queues on every drive, the cache over them
//! if there is one, and the memory of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/cache/clean.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/queue/recovery.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"
#include "storage/buffers.hpp"
#include "storage/client_device.hpp"
#include "storage/inspector.hpp"
#include "storage/layout.hpp"
#include "storage/opened_drives.hpp"
#include "storage/queue_group.hpp"

namespace forebay::detail {

/// Thread-safe, with no lock of its own: its members never change, and kernels share the state of queues and cache
/// without one. Recovery must run over its queues while anything waits for them.
class client {
 public:
  /// Names the extents that have bytes of [first_byte, end_byte); for errors. The thread that gets the error calls it.
  using extent_names = std::function<std::string(std::uint64_t first_byte, std::uint64_t end_byte)>;

  /// Throws `refused_input` if the cache that the options ask for is not possible, `operation_failed` where a drive has
  /// no queue left.
  client(client_device const& device, std::shared_ptr<opened_drives> drives, relay_thread const& relay,
         drive_plan const& plan_of_drives, storage_options const& options, buffer_source const& buffers,
         extent_names names);

  client_device const& device() const { return device_; }
  /// The layout with the pairs of this client.
  storage_layout const& layout() const { return layout_; }
  /// The queues of each drive, as made.
  std::vector<drive_queues> const& kernel_queues() const { return kernel_queues_; }
  io_queues const& queues() const { return group_.queues(); }
  /// Null if there is none.
  cache const* pages() const { return pages_.get(); }

  recovery::group for_recovery() { return group_.for_recovery(); }
  inspected_queues for_inspection() const { return group_.for_inspection("kernels"); }

  /// Waits until no request of its kernels is in flight. Returns false if some still are after `timeout_ns`. The drives
  /// must be held.
  bool drain(std::uint64_t timeout_ns) const;
  /// Waits until each request of its kernels that is in flight now is over, detached ones too; returns how many
  /// commands never ended.
  std::uint32_t settle() const;

  // The next functions act on the cache; without one they do nothing. They throw `operation_failed`, which says which
  // drive does not accept what.

  /// Writes back every dirty page that the cache holds.
  void clean() const;
  /// The same for the pages of [at, at + bytes).
  void clean(std::uint64_t at, std::uint64_t bytes) const;
  /// Makes the cache read the pages of [at, at + bytes) again. Throws `operation_failed` too if a kernel has some in
  /// use.
  void forget(std::uint64_t at, std::uint64_t bytes) const;
  /// Takes back every shared page whose buffer lies in [first, first + bytes).
  void take_back(std::byte const* first, std::uint64_t bytes) const;

  void reset_statistics();
  /// What `storage::take_errors()` returns.
  access_errors take_errors();

  /// Writes back, and waits until all is over. Must be called before the client is destroyed, while recovery still
  /// runs. Reports on standard error what is lost.
  void close() const noexcept;

 private:
  struct page_range {
    std::uint64_t first;
    std::uint64_t count;
  };

  void place_pairs();
  void place_file(std::span<file_extent const> extents);
  void make_cache(storage_options const& options, buffer_source const& buffers);
  queue_group_plan plan(storage_options const& options) const;
  page_range pages_of(std::uint64_t at, std::uint64_t bytes) const;
  void throw_if_unwritten(clean_result const& result) const;

  client_device device_;
  std::shared_ptr<opened_drives> drives_;
  relay_thread const& relay_;
  storage_layout layout_;
  std::vector<drive_queues> kernel_queues_;
  memory::allocation drive_pairs_;   ///< of `layout_`, where drives have different numbers of pairs
  memory::allocation file_extents_;  ///< likewise, where the storage is a file
  memory::allocation staged_frames_;
  /// Frames, or staging pages. Before the queues: until those are deleted a drive may write it.
  std::unique_ptr<registered_memory> registered_;
  queue_group group_;
  std::unique_ptr<cache> pages_;
  extent_names names_;
};

}  // namespace forebay::detail
