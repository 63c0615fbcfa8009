// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory of a GPU that a client allocated itself and lends to the engine of its drive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <list>

#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/memory/shared.hpp"

namespace forebay::drive::served {

/// The allocations that one client lends. They stay open until all are given back together: commands in flight may name
/// memory that is no longer mapped, and to close an allocation the engines must leave the GPU for a moment. Used by one
/// thread.
class lent_memory {
 public:
  lent_memory() = default;
  ~lent_memory() { give_back(); }
  lent_memory(lent_memory&&) = default;
  lent_memory& operator=(lent_memory&&) = delete;

  /// Opens one for the engines on GPU `ordinal`. Throws `operation_failed`.
  memory::borrowed_device_memory const& add(int ordinal, memory::allocation_handle const& handle) {
    return open_.emplace_back(ordinal, handle);
  }
  bool contains(std::uint64_t address, std::size_t bytes) const {
    return std::any_of(open_.begin(), open_.end(), [&](memory::borrowed_device_memory const& m) {
      auto const first = reinterpret_cast<std::uint64_t>(m.data());
      return address >= first && bytes <= m.size_bytes() && address - first <= m.size_bytes() - bytes;
    });
  }
  /// The caller guarantees that no engine uses it any more.
  void give_back() noexcept {
    if (open_.empty()) return;
    try {
      emulator::without_resident_engines([this] { open_.clear(); });
    } catch (std::exception const&) {
      // An engine could not leave: its GPU has failed, and the memory goes with the process.
      (void)new std::list<memory::borrowed_device_memory>(std::move(open_));
    }
  }

 private:
  std::list<memory::borrowed_device_memory> open_;
};

}  // namespace forebay::drive::served
