// SPDX-License-Identifier: Apache-2.0
//! \file
//! An I/O engine together with what runs it: CPU threads, or a kernel that stays on a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>

#include "forebay/detail/emulator/engine_options.hpp"
#include "forebay/detail/emulator/io_engine.hpp"
#include "forebay/detail/emulator/media.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// All engines on one GPU, and all engines on CPU threads, count time from the same epoch, so that they can share a
/// link. Thread-safe, except for what `io_engine` says of itself.
class engine_runner {
 public:
  virtual ~engine_runner() = default;
  virtual io_engine& engine() = 0;
  /// Starts the engine, and keeps it running until there were as many calls of `release`; returns once it runs. Throws
  /// `operation_failed` if the engine cannot run.
  virtual void hold() = 0;
  virtual void release() noexcept = 0;
};

/// Runs an engine on `options.units` CPU threads, which run as long as this lives and rest between two polls as
/// `simt::backoff` says. While a unit sleeps, its poll gap grows; the statistics say by how much. `cancel` ends the
/// start, as it does that of an engine on a GPU, with `operation_failed`.
std::unique_ptr<engine_runner> run_on_threads(engine_options options, media const& drive,
                                              std::stop_token const& cancel = {});

/// Where and when a resident engine runs.
struct gpu_residency {
  int ordinal = 0;
  /// The engine stays on the GPU as long as this lives. False: it leaves a moment after the last `release`, because
  /// `cudaFree` and `cudaDeviceSynchronize` of the process wait for it.
  bool stays = false;
};

/// Runs an engine on `options.units` multiprocessors of a GPU. This chooses `options.dispatchers_per_unit` and the
/// times. `drive` names memory that the GPU reaches. Throws `refused_input` if CUDA is not built in or the GPU has too
/// few multiprocessors.
std::unique_ptr<engine_runner> run_on_gpu(engine_options options, media const& drive, gpu_residency const& where,
                                          std::stop_token const& cancel = {});

/// Calls `act` while no engine of this process is on a GPU, for what CUDA does only when no kernel runs. The engines go
/// on afterwards; what is in flight takes longer by that time. Engines on CPU threads run meanwhile. Thread-safe,
/// except from within `act`.
void without_resident_engines(std::function<void()> const& act);

/// How many multiprocessors a GPU has; 0 if CUDA is not built in.
std::uint32_t multiprocessors(int ordinal);

}  // namespace forebay::emulator
