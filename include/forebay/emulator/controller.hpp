// SPDX-License-Identifier: Apache-2.0
//! \file
//! A whole NVMe controller: registers and admin queue on the host, the I/O engine on CPU threads or on a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "forebay/driver/spaces.hpp"
#include "forebay/emulator/backing_store.hpp"
#include "forebay/emulator/dma_regions.hpp"
#include "forebay/emulator/engine_runner.hpp"
#include "forebay/emulator/fault_plan.hpp"
#include "forebay/emulator/statistics.hpp"
#include "forebay/emulator/timing_model.hpp"
#include "forebay/memory/resource.hpp"

namespace forebay::emulator {

struct controller_options {
  std::string serial = "FOREBAY0001";       ///< at most 20 printable characters
  std::string model = "Forebay emulated";   ///< at most 40 printable characters
  std::uint32_t units = 1;                  ///< service threads, or multiprocessors of a GPU
  std::uint32_t max_queues = 128;           ///< I/O queue pairs
  std::uint32_t max_queue_entries = 16384;  ///< CAP.MQES + 1
  std::uint8_t mdts = 8;                    ///< largest transfer: 4 KiB << mdts
  timing_parameters timing;
  fault_plan faults;
  std::optional<gpu_residency> gpu;  ///< where the engine runs on a GPU; else it runs on CPU threads
};

/// One controller with one namespace. Its threads start with it and end with it: an admin thread, the engine's, and for
/// an engine on a GPU one that brings the doorbells of host threads there.
class controller {
 public:
  /// `client_memory` is where registers and the DMA space's allocations live. Throws `refused_input` for options out of
  /// range.
  controller(controller_options const& options, std::unique_ptr<backing_store> store,
             memory::resource& client_memory = memory::host());
  ~controller();
  controller(controller const&) = delete;
  controller& operator=(controller const&) = delete;

  driver::register_space& registers();
  driver::dma_space& dma();
  dma_regions& regions();
  controller_options const& options() const;

  /// Keep the engine running between the two, where it does not always run: a kernel on a GPU that is to use the drive
  /// must not start before `hold` returned. The admin queue, and queues of host threads, need no hold.
  void hold();
  void release() noexcept;

  /// A snapshot, exact once all commands completed. Thread-safe.
  std::unique_ptr<statistics> collect();

 private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

}  // namespace forebay::emulator
