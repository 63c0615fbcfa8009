// SPDX-License-Identifier: Apache-2.0
//! \file
//! A whole NVMe controller on CPU threads: registers, admin queue and I/O engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "forebay/driver/spaces.hpp"
#include "forebay/emulator/backing_store.hpp"
#include "forebay/emulator/dma_regions.hpp"
#include "forebay/emulator/fault_plan.hpp"
#include "forebay/emulator/statistics.hpp"
#include "forebay/emulator/timing_model.hpp"
#include "forebay/memory/resource.hpp"

namespace forebay::emulator {

struct controller_options {
  std::string serial = "FOREBAY0001";       ///< at most 20 printable characters
  std::string model = "Forebay emulated";   ///< at most 40 printable characters
  std::uint32_t units = 1;                  ///< service threads
  std::uint32_t max_queues = 128;           ///< I/O queue pairs
  std::uint32_t max_queue_entries = 16384;  ///< CAP.MQES + 1
  std::uint8_t mdts = 8;                    ///< largest transfer: 4 KiB << mdts
  timing_parameters timing;
  fault_plan faults;
};

/// One controller with one namespace. Its threads start with it and end with it: an admin thread, and `units` service
/// threads that poll, yield while idle, and sleep for at most `longest_sleep_ns` at a time once they have been idle
/// long. While a unit sleeps, its poll gap grows; the statistics say by how much.
class controller {
 public:
  static constexpr std::uint64_t longest_sleep_ns = 500'000;

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

  /// A snapshot, exact once all commands completed. Thread-safe.
  std::unique_ptr<statistics> collect();

 private:
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

}  // namespace forebay::emulator
