// SPDX-License-Identifier: Apache-2.0
//! \file
//! Opening a drive by its URI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "forebay/detail/drive/gpu_placements.hpp"
#include "forebay/detail/driver/file_extent.hpp"
#include "forebay/detail/driver/quirks.hpp"
#include "forebay/detail/driver/spaces.hpp"
#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/emulator/frontend.hpp"
#include "forebay/memory.hpp"

namespace forebay::drive {

/// A controller that the program can reach, whatever is behind it. Destroy it after everything that uses its spaces.
class device {
 public:
  virtual ~device() = default;
  virtual driver::register_space& registers() = 0;
  virtual driver::dma_space& dma() = 0;
  /// What the drive says about itself: `uri`, `profile`, `residency`, `backing`, `size_bytes`, `lba_bytes`, `timing`,
  /// `statistics`, `lateness`, `poll_gap` and `fidelity`. Exact once no command is in flight. Thread-safe.
  virtual nlohmann::json report() = 0;
  /// The GPU whose threads reach the drive's queues in its own memory; none for a drive whose engine runs on the CPU.
  virtual std::optional<int> gpu() const { return std::nullopt; }
  /// The placements in which threads of a GPU can use the drive. They follow from what drive and machine are: nothing
  /// is tried out.
  virtual gpu_placements placements() const {
    gpu_placement const its = gpu() ? gpu_placement::all_on_gpu : gpu_placement::host;
    return {its, its};
  }
  /// Whether a completion in host memory may be seen before its data, where that goes to memory of a GPU, or of the
  /// host. Then `order_data` comes between the two. Rings in the memory of the GPU to which the data goes need none.
  virtual bool data_may_be_late(bool on_gpu) const {
    return on_gpu && placements().reads == gpu_placement::data_on_gpu;
  }
  /// The ordering flush: returns once the data of each completion is in place that was posted before the call. Throws
  /// `operation_failed`. Thread-safe.
  virtual void order_data() {}
  /// What its controller does otherwise than the specification says.
  virtual driver::quirks quirks() const { return {}; }
  /// The namespace that the drive is, and how many I/O queue pairs may be asked of its controller.
  virtual std::uint32_t nsid() const { return 1; }
  virtual std::uint32_t most_queue_pairs() const { return 1024; }
  /// Between the two calls the engine runs. A kernel that is to use the drive must not start before `hold` has
  /// returned. For drives that always run they do nothing. Thread-safe. `hold` throws `operation_failed` if a GPU is
  /// full.
  virtual void hold() {}
  virtual void release() noexcept {}
  /// If an emulated drive keeps its bytes in ordinary memory: has the system allocate memory for the first `bytes`
  /// bytes before they are accessed. Returns how many of them need no new page any more: all, or none if they would
  /// take more than half of what the machine has left. Thread-safe.
  virtual std::uint64_t populate(std::uint64_t bytes) { return bytes; }
  /// Reserves [first_byte, first_byte + bytes) for this client, in whatever the clients of this drive have laid out on
  /// it, until `unclaim` of the same range or until the client ends. Returns 0 if the range is reserved. If another
  /// client has claimed some of it, returns where that claim ends. This stops no command: it is for clients that ask. A
  /// device that wraps another one passes the call on. A drive that only one process can use has no other client.
  /// Thread-safe.
  virtual std::uint64_t claim(std::uint64_t first_byte, std::uint64_t bytes) {
    static_cast<void>(first_byte), static_cast<void>(bytes);
    return 0;
  }
  virtual void unclaim(std::uint64_t first_byte, std::uint64_t bytes) noexcept {
    static_cast<void>(first_byte), static_cast<void>(bytes);
  }
  /// If the drive is a file of a file system: where the file's bytes lie in the namespace, by `byte` and without a gap.
  /// Empty: the drive is the namespace.
  virtual std::vector<file_extent> file_extents() const { return {}; }
  /// Reads bytes of the drive.
  using reader = std::function<void(void* to, std::size_t bytes, std::uint64_t byte)>;
  /// Called once the drive can be read. Throws `refused_input` if it does not hold what its URI names.
  virtual void check_bytes(reader const& /*read*/) {}
  /// The controller lets go of all queues and of all memory, and then counts as removed. For drives of a daemon, and
  /// for those that wrap one. Thread-safe.
  virtual void end() noexcept {}
  /// From now on `report()` counts from zero, so that set-up and warm-up do not enter a result. Thread-safe.
  virtual void reset_statistics() = 0;
};

struct open_options {
  /// The memory for the registers and for the DMA space's allocations: pinned memory if a GPU is the client.
  memory::resource* client_memory = &memory::host();
  /// The GPU that `backing=hbm` and `backing=host` refer to.
  int gpu = 0;
  /// How many I/O queue pairs to take of a drive that a daemon serves to several clients. 0: as many as are free, at
  /// most 16, or 128 of a drive on a GPU.
  std::uint32_t queues = 0;
  /// A file is opened for reading only, and the drive is write protected. Other drives ignore this, and so does a file
  /// that a daemon serves.
  bool read_only = false;
  /// Threads of this process are the clients, not a GPU or another process. See `emulator::subsystem_options`.
  bool waiters_serve = false;
  /// Ends the opening, which may take minutes if flash is written first; `open` then throws `operation_failed`.
  std::stop_token cancel;
  /// Faults that an emulated drive injects; for tests.
  emulator::fault_plan faults;
  /// For benchmarks.
  emulator::frontend_techniques frontend;
};

/// Opens the drive that `uri` names. Throws `refused_input` for an invalid URI, before anything starts, and
/// `operation_failed` if a drive that exists cannot be opened.
std::unique_ptr<device> open(std::string const& uri, open_options const& options = {});

/// Makes the file that `uri` (`file:PATH,size=...` or `emulated:backing=file,path=...,size=...`) names, sparse and
/// zeroed. Throws `refused_input` if it exists already.
void create(std::string const& uri);

/// Makes the file that `uri` names longer, up to the size that it gives; the new bytes are zeros and take no room yet.
/// Throws `refused_input` if there is no such file, if a drive has it open, or if it is longer already.
void grow(std::string const& uri);

}  // namespace forebay::drive
