// SPDX-License-Identifier: Apache-2.0
//! \file
//! An NVM subsystem: one namespace, one I/O engine, and any number of controllers in front of them, one for each
//! client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/emulator/frontend.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

struct subsystem_options {
  std::string serial = "FOREBAY0001";       ///< at most 20 printable characters
  std::string model = "Forebay emulated";   ///< at most 40 printable characters
  std::uint32_t units = 1;                  ///< service threads, or multiprocessors of a GPU
  std::uint32_t max_queues = 128;           ///< I/O queue pairs, of all controllers together
  std::uint32_t max_queue_entries = 16384;  ///< CAP.MQES + 1
  std::uint8_t mdts = 8;                    ///< largest transfer: 4 KiB << mdts
  timing_parameters timing;
  std::string link;  ///< the name of a `link_speed` that it shares with other drives; empty: none
  fault_plan faults;
  frontend_techniques frontend;
  /// Threads of this process are clients. If nothing but its medium makes a command wait, they serve the drive while
  /// they wait, and the engine's threads only if none of them does.
  bool waiters_serve = false;
  std::optional<gpu_residency> gpu;  ///< where the engine runs on a GPU; else it runs on CPU threads
  /// How long the destructor of a controller waits for the engine to release its queues.
  std::uint64_t leave_timeout_ns = 30'000'000'000;
  std::stop_token cancel;  ///< ends the constructor, which then throws `operation_failed`
};

/// Makes the engine of a subsystem; the engine must reach the memory that `drive` names.
using engine_maker = std::function<std::unique_ptr<engine_runner>(engine_options const& options, media const& drive)>;

/// Its threads start and end with it: one for all admin queues, those of the engine, and for an engine on a GPU one
/// that copies the doorbells of host threads there. Thread-safe. Controllers share it, see `controller`.
///
/// If the engine fails (a GPU is lost), every controller shows a fatal status (CSTS.CFS). Messages about what only an
/// operator can repair go to standard error.
class subsystem {
 public:
  /// The engine is the one that `options.gpu` asks for, or the one that `make_engine` makes. Throws `refused_input` for
  /// options out of range.
  subsystem(subsystem_options const& options, std::unique_ptr<backing_store> store,
            engine_maker const& make_engine = {});
  /// As `close()`.
  ~subsystem();
  subsystem(subsystem const&) = delete;
  subsystem& operator=(subsystem const&) = delete;

  subsystem_options const& options() const;

  /// The most I/O queue pairs that a new controller can be given.
  std::uint32_t free_queues() const;

  /// Between the two calls the engine runs, if it does not always run. A kernel on a GPU that is to use the drive must
  /// not start before `hold` has returned. Admin queues, and queues of host threads, need no hold.
  void hold();
  void release() noexcept;

  /// See `io_engine::order_data`.
  void order_data();

  /// Whether waiting threads serve the drive.
  bool waiters_serve() const;
  /// See `backing_store::access`.
  std::optional<file_access> access() const;
  /// A snapshot, which is exact once all commands have completed.
  std::unique_ptr<statistics> collect();
  /// Ends everything but its queues, and writes back what the store holds. False: what was written since the last
  /// successful flush is lost, as it says on standard error. There must be no controller left; afterwards only the
  /// destructor may be called.
  bool close() noexcept;
  /// See `backing_store::populate`.
  std::uint64_t populate(std::uint64_t bytes, std::stop_token const& cancel = {});

 private:
  friend class controller;
  class implementation;
  std::unique_ptr<implementation> implementation_;
};

}  // namespace forebay::emulator
