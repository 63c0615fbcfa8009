// SPDX-License-Identifier: Apache-2.0
//! \file
//! The host's own reads, writes and flushes of a storage's bytes, past every cache.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/storage.hpp"
#include "forebay/storage_ref.hpp"
#include "forebay/token.hpp"
#include "storage/buffers.hpp"
#include "storage/layout.hpp"
#include "storage/opened_drives.hpp"
#include "storage/queue_group.hpp"
#include "storage/written_blocks.hpp"

namespace forebay::detail {

/// Uses one buffer of its own, and queue pairs on each drive. Thread-safe: one request is at work at a time. The
/// others wait for a mutex, which is held until the drive has answered or recovery has settled the request. Holds the
/// drives while it is at work. Recovery must run over its queues. `host_transfers` uses the same queues, for requests
/// that this class does not wait for.
///
/// A request that never ends keeps the buffer: all later requests fail with `operation_failed`.
class host_io {
  struct ref_traits : uncached {
    using queue_rules = uneven_rules<>;  ///< a request uses some of the pairs of a drive
  };

 public:
  using ref_type = storage_ref<simt::native, ref_traits>;
  using token_type = ref_type::token_type;

  /// The host's queues are no deeper than the kernels' of the same drive.
  host_io(std::shared_ptr<opened_drives> drives, relay_thread const& relay, drive_plan const& plan,
          memory::resource& shared_memory, storage_options const& options, buffer_source const& buffers);

  recovery::group for_recovery() { return group_.for_recovery(); }
  inspected_queues for_inspection() const { return group_.for_inspection("host"); }
  /// All bytes, through the host's queues: through the pair `turn` of each drive, modulo the number of its pairs, or
  /// the next one that works. Thread-safe, as are the next three.
  ref_type ref(std::uint32_t turn = 0) const;
  io_queues const& queues() const { return group_.queues(); }
  storage_layout const& layout() const { return layout_; }
  /// What a request of the host does, in words.
  std::string described(nvme::io_opcode opcode, std::uint64_t begin, std::uint64_t end) const;
  /// The blocks that a write of the host has at the moment.
  written_blocks& written() { return written_; }
  /// Keeps memory that requests of the host may use until the drives have forgotten the queues.
  void keep(std::shared_ptr<void const> memory);

  /// All bytes must lie within the storage. Throw `operation_failed` with the NVMe status.
  void read(void* to, std::uint64_t bytes, std::uint64_t at);
  /// First reads the blocks of which it covers only a part.
  void write(void const* from, std::uint64_t bytes, std::uint64_t at);
  void flush();
  /// Reads data without which the storage cannot be opened. It gives each command ten seconds at least, and retries for
  /// a while, since a drive may be slow, or fail now and then. For one thread, before others use this.
  void read_patiently(void* to, std::uint64_t bytes, std::uint64_t at);
  /// Consumes completions until no command is in flight. Returns false if some still are after `timeout_ns`. The drives
  /// must be held.
  bool drain(std::uint64_t timeout_ns) const;

 private:
  template <class Step>
  void in_pieces(std::uint64_t at, std::uint64_t bytes, Step step);
  void transfer(nvme::io_opcode opcode, std::uint64_t begin, std::uint64_t end);
  template <class What>
  void finish(token_type t, What&& what, std::uint64_t limit_ns);
  std::vector<std::uint32_t> drives_of(std::uint64_t begin, std::uint64_t end) const;
  std::string names_of(std::vector<std::uint32_t> const& drives) const;

  std::shared_ptr<opened_drives> drives_;
  storage_layout layout_;
  std::vector<file_extent> file_extents_;       ///< of `layout_`
  std::vector<std::vector<pair_range>> turns_;  ///< which pair of each drive a request may use
  bool writable_;
  std::unique_ptr<registered_memory> bounce_;      ///< before the queues: until those are deleted a drive may write it
  std::vector<std::shared_ptr<void const>> kept_;  ///< for the same reason
  queue_group group_;
  std::mutex kept_mutex_;  ///< guards `kept_`
  written_blocks written_;
  std::mutex mutex_;          ///< guards the bounce buffer, and what follows
  std::string lost_request_;  ///< if not empty: the bounce buffer belongs to it for ever
};

}  // namespace forebay::detail
