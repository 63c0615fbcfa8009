// SPDX-License-Identifier: Apache-2.0
//! \file
//! An emulated drive without its clients: the part that is the same whether this process is the only client or a daemon
//! has many.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <utility>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/subsystem.hpp"
#include "forebay/memory.hpp"
#include "specification.hpp"

namespace forebay::drive {

/// Thread-safe.
class emulated_drive {
 public:
  virtual ~emulated_drive() = default;
  virtual std::shared_ptr<emulator::subsystem> const& shared() const = 0;
  virtual std::optional<int> gpu() const = 0;
  /// See `device::report`. `since`: the counts at the moment from which the report counts; null for the drive's whole
  /// life.
  virtual nlohmann::json report(emulator::statistics const* since) const = 0;
};

/// Starts a drive. `bytes_memory` is where its bytes live; null: where `backing` says. Throws as `open` does.
std::shared_ptr<emulated_drive> start_emulated(specification const& what, open_options const& options,
                                               memory::resource* bytes_memory = nullptr);

/// The counts at the last reset of the statistics. Thread-safe.
class baseline {
 public:
  void set(std::unique_ptr<emulator::statistics> now) {
    std::lock_guard const lock(mutex_);
    counted_ = std::move(now);
  }
  /// Calls `use(statistics const*)` and returns its result; the pointer is null if the statistics were never reset.
  template <class Use>
  auto with(Use&& use) {
    std::lock_guard const lock(mutex_);
    return use(counted_.get());
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<emulator::statistics> counted_;
};

}  // namespace forebay::drive
