// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the engines have in common: a way to move blocks between a file and memory, divided among threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "apps/common/in_flight.hpp"
#include "apps/file_io/blocks.hpp"
#include "apps/file_io/file.hpp"
#include "apps/file_io/gpu.hpp"

namespace forebay::file_io {

struct transfer {
  bool is_write = false;
  std::uint64_t offset_bytes = 0;
};

/// The transfers of one thread, which makes it, uses it and destroys it. Slots are numbered among those of all threads.
/// Functions throw `operation_failed` if the way itself breaks, and not for a transfer that fails.
class channel {
 public:
  virtual ~channel() = default;
  /// Begins to move the block of a slot that has no transfer under way.
  virtual void start(std::uint32_t slot, transfer const& what) = 0;
  /// Whether the slot's transfer has ended. If not, the call may have waited until some transfer of this thread ended.
  virtual bool ended(std::uint32_t slot) = 0;
  /// Once it has ended: 0, or why it failed. The slot is then free.
  virtual int take_error(std::uint32_t slot) = 0;
};

/// A way to move data, open for one file and the memory of one job. Thread-safe.
class engine {
 public:
  virtual ~engine() = default;
  /// For the calling thread, which has the slots `mine`, and copies of its own where the data ends on a GPU.
  virtual std::unique_ptr<channel> open_channel(apps::in_flight_share mine, gpu_copies* copies) const = 0;
  /// How it moves data, in words.
  virtual std::string way() const = 0;
  /// `direct` or `compat`, of cuFile.
  virtual std::string cufile() const { return {}; }
  /// An error of a transfer, in words.
  virtual std::string text(int error) const { return std::strerror(error); }
};

/// What there is to know of an engine before it is opened.
struct engine_kind {
  char const* name;
  bool direct;       ///< passes by the page cache, where the file system allows that
  bool thread_each;  ///< a transfer holds its thread up, so each command in flight has a thread of its own
  bool needs_gpu;
  /// The file and the memory must outlive the engine. Throws `refused_input` if this machine does not have it.
  std::unique_ptr<engine> (*open)(file const& from, blocks const& memory);
};

/// Throws `refused_input`, field `--ioengine`.
engine_kind const& find_engine(std::string const& name);

std::unique_ptr<engine> open_mmap(file const& from, blocks const& memory);
std::unique_ptr<engine> open_pread(file const& from, blocks const& memory);
std::unique_ptr<engine> open_io_uring(file const& from, blocks const& memory);
std::unique_ptr<engine> open_cufile(file const& from, blocks const& memory);

}  // namespace forebay::file_io
