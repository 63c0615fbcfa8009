// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory of a GPU that callers gave, registered with the drives once for each allocation.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "storage/buffers.hpp"
#include "storage/gpu_access.hpp"

namespace forebay::detail {

/// An allocation keeps its registration until another one has its address, or until it is found to be gone.
/// Thread-safe.
class gpu_registrations {
 public:
  /// `gpu`: whose memory the drives reach; -1: none. `buffers` must outlive this.
  gpu_registrations(buffer_source const& buffers, int gpu) : buffers_(buffers), gpu_(gpu) {}

  /// The registration of the allocation of `place`, if it covers [address, address + bytes); null if the drives cannot
  /// reach these bytes.
  std::shared_ptr<registered_memory const> covering(gpu_access& cuda, memory_place const& place, void const* address,
                                                    std::uint64_t bytes);
  /// How many allocations are registered.
  std::size_t count() const;

 private:
  struct entry {
    memory_place place;
    std::shared_ptr<registered_memory const> memory;  ///< null: the drives cannot reach it
  };
  std::shared_ptr<registered_memory const> register_now(memory_place const& place) const;
  void drop_gone_locked(gpu_access& cuda, memory_place const& by);

  buffer_source const& buffers_;
  int const gpu_;
  mutable std::mutex mutex_;
  std::vector<entry> known_;
};

}  // namespace forebay::detail
