// SPDX-License-Identifier: Apache-2.0
//! \file
//! What all threads share of a modelled external memory, and the times that its options come to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::memory {

/// The options of an external memory in the units of its clocks. Rates are those of a shard.
struct external_timing {
  std::uint64_t latency_ps = 0;
  std::uint64_t late_after_ns = 0;
  std::uint64_t lead_ps = 0;       ///< a wait ends so much earlier
  std::uint64_t link_byte_fs = 0;  ///< 0: no link
  std::uint64_t request_ps = 0;    ///< how long a request occupies its device; 0: not at all
  std::uint32_t alignment_bytes = 0;
  std::uint32_t request_max_bytes = 0;
  std::uint32_t lines = 0;         ///< whether requests end at multiples of `request_max_bytes`
  std::uint32_t device_shift = 0;  ///< of the length of the stretches that lie on one device each
  std::uint32_t devices = 1;
  std::uint32_t shards = 1;
  std::uint32_t slots = 0;       ///< of each shard; 0: any number of requests may be in flight
  std::uint32_t slots_more = 0;  ///< how many shards have one slot more
};

/// What a shard has besides the clocks of its devices and slots, which follow it. Threads on a GPU reach different
/// lines at the same time.
struct external_shard {
  alignas(128) std::uint64_t link_free_ps;
  alignas(128) std::uint64_t tickets;  ///< how many requests came
  alignas(128) std::uint64_t loads;
  std::uint64_t requests;
  std::uint64_t bytes;
  std::uint64_t late;
};

/// Where things lie: a line with the beginning of time, then the shards.
struct external_layout {
  static constexpr std::size_t line_bytes = 128;
  std::size_t shard_bytes = 0;
  std::uint32_t devices = 0;

  external_layout() = default;
  explicit external_layout(external_timing const& timing) : devices(timing.devices) {
    std::size_t const slots = timing.slots + (timing.slots_more != 0 ? 1 : 0);
    std::size_t const clocks = (timing.devices + slots) * sizeof(std::uint64_t);
    shard_bytes = sizeof(external_shard) + (clocks + line_bytes - 1) / line_bytes * line_bytes;
  }
  std::size_t bytes(std::uint32_t shards) const { return line_bytes + shards * shard_bytes; }

  /// A word that is 0 until the first thread comes: 1 more than its time then, in nanoseconds.
  FOREBAY_DEVICE static std::uint64_t& begin(std::byte* state) { return *reinterpret_cast<std::uint64_t*>(state); }
  /// What `cycle_rate` keeps.
  FOREBAY_DEVICE static std::uint64_t& cycles(std::byte* state) { return reinterpret_cast<std::uint64_t*>(state)[1]; }
  FOREBAY_DEVICE external_shard& shard(std::byte* state, std::uint32_t i) const {
    return *reinterpret_cast<external_shard*>(state + line_bytes + i * shard_bytes);
  }
  FOREBAY_DEVICE static std::uint64_t* device_clocks(external_shard& shard) {
    return reinterpret_cast<std::uint64_t*>(&shard + 1);
  }
  FOREBAY_DEVICE std::uint64_t* slot_clocks(external_shard& shard) const { return device_clocks(shard) + devices; }
};

}  // namespace forebay::memory
