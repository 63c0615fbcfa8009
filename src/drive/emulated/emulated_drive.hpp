// SPDX-License-Identifier: Apache-2.0
//! \file
//! An emulated drive without its clients: what is alike whether this process is the only one or a daemon has many.
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
  /// See `device::report`. `since`: what had been counted when the report begins; null for the drive's whole life.
  virtual nlohmann::json report(emulator::statistics const* since) const = 0;
};

/// Starts a drive. `bytes_memory` is where its bytes live; null: where `backing` says. Throws as `open` does.
std::shared_ptr<emulated_drive> start_emulated(specification const& what, open_options const& options,
                                               memory::resource* bytes_memory = nullptr);

/// What had been counted when somebody last reset the statistics. Thread-safe.
class baseline {
 public:
  void set(std::unique_ptr<emulator::statistics> now) {
    std::lock_guard const lock(mutex_);
    counted_ = std::move(now);
  }
  /// What `use(statistics const*)` returns, null where nobody ever did.
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
