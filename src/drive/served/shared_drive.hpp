// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a daemon serves: drives of which each client has a controller of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <vector>

#include "chunks.hpp"
#include "forebay/detail/driver/spaces.hpp"

namespace forebay::drive::served {

/// A stretch of a chunk that is contiguous on the bus.
struct bus_stretch {
  std::uint64_t offset_bytes;  ///< in the chunk
  std::uint64_t bytes;
  std::uint64_t bus_address;
};

/// The controller of one client. Used by one thread.
class client_controller {
 public:
  virtual ~client_controller() = default;
  virtual driver::register_space& registers() = 0;
  virtual driver::dma_space& dma() = 0;
  /// Ends it: nothing touches the client's memory any more. False: the drive did not let go, and that memory must never
  /// be freed. No other member may be called afterwards.
  virtual bool leave() noexcept = 0;
  /// Comes before the first use of a chunk that this controller's memory was not made from. Throws `refused_input` if
  /// the drive cannot reach it.
  virtual void reach(std::shared_ptr<chunk> const& /*its*/) {}
  /// Where a chunk that the drive reaches is on the bus, if `shared_drive::translates`.
  virtual std::vector<bus_stretch> stretches_of(chunk const& /*its*/) const { return {}; }
  /// As `device::report`, and it counts from the last `reset_statistics`.
  virtual nlohmann::json report() = 0;
  virtual void reset_statistics() = 0;
};

/// What a client asks for.
struct join_request {
  std::uint32_t queues = 0;  ///< pairs; 0: as many as usual
  int gpu = 0;               ///< the client's
  bool with_gpu = false;     ///< threads of it use the drive
};

/// Makes the memory that a client and its controller share: an arena whose chunks are at a place. It calls the function
/// for each new chunk before any of it is used. The arena lasts until the client's memory is freed.
using arena_maker = std::function<chunk_arena&(chunk_place const& where, std::function<void(std::shared_ptr<chunk>)>)>;

/// A drive that this process has. Thread-safe.
class shared_drive {
 public:
  virtual ~shared_drive() = default;
  /// See `device::gpu`.
  virtual std::optional<int> gpu() const { return std::nullopt; }
  /// See `device::nsid`.
  virtual std::uint32_t nsid() const { return 1; }
  /// Whether addresses on the bus differ from those in this process.
  virtual bool translates() const { return false; }
  /// Throws `refused_input` if there are not so many pairs left. One call at a time.
  virtual std::unique_ptr<client_controller> join(join_request const& wanted, arena_maker const& make_arena) = 0;
  /// See `device::populate`.
  virtual std::uint64_t populate(std::uint64_t bytes, std::stop_token const& /*cancel*/) { return bytes; }
  /// As `device::report`, for its whole life in this process.
  virtual nlohmann::json report() = 0;
  /// Writes back what it must. False: something that was written is lost.
  virtual bool close() { return true; }
};

}  // namespace forebay::drive::served
