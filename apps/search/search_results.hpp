// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a search is asked for and what it finds, for each query.
#pragma once

#include <cstdint>
#include <limits>

#include "apps/search/keys.hpp"
#include "apps/search/sorted_keys.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::search {

/// How a query went.
struct query_outcome {
  status outcome = fault::timed_out;  ///< of the first read that failed; a query that was never begun keeps this
  std::uint32_t failed_slot = 0;      ///< what that read was of
  std::uint32_t reads = 0;            ///< reads that the query began
  std::uint32_t unused_reads = 0;     ///< of them, records that had fallen out of the list before they came
  std::uint64_t latency_ns = 0;       ///< from when a warp took the query until it had the result
};

/// The status of a record that came without an error and is not what was written: "End-to-end Guard Check Error" (NVM
/// Express Base 1.4, Figure 131, Media and Data Integrity Errors, 82h).
FOREBAY_DEVICE constexpr status corrupt_record() {
  return status::from_bits(2u << 8 | 0x82);
}

/// In the device's memory; shared by the warps of a launch.
struct search_batch {
  std::uint32_t queries = 0;
  std::uint32_t k = 0;
  std::uint32_t* next_query = nullptr;  ///< zeroed
  std::uint32_t* slots = nullptr;       ///< `k` for each query; `no_slot` where nothing was found
  float* distances = nullptr;           ///< likewise; `no_distance`
  query_outcome* outcomes = nullptr;    ///< one for each query

  static constexpr std::uint32_t no_slot = ~std::uint32_t{0};
  static constexpr float no_distance = std::numeric_limits<float>::infinity();
};

/// Which vectors may be found: a bit for each slot, from bit 0 of the first word on. Null: all that are in the index.
struct slot_filter {
  std::uint32_t const* bits = nullptr;

  FOREBAY_DEVICE bool allows(std::uint32_t slot) const {
    return bits == nullptr || (bits[slot / 32] >> slot % 32 & 1) != 0;
  }
};

/// Writes what a query found, unless it failed. A collective of a full warp.
template <class M>
FOREBAY_DEVICE void finish_query(typename M::warp const& warp, search_batch const& batch, std::uint32_t query,
                                 query_outcome counts, std::uint64_t begun_ns, sorted_keys<M> const& results) {
  std::uint64_t const first = std::uint64_t{query} * batch.k;
  for (std::uint32_t i = warp.thread_rank(); i < batch.k; i += 32) {
    key const k = counts.outcome.ok() ? results[i] : no_key;
    batch.slots[first + i] = k == no_key ? search_batch::no_slot : slot_of(k);
    batch.distances[first + i] = k == no_key ? search_batch::no_distance : distance_from_ordered(distance_of(k));
  }
  warp.sync();  // before the memory is used for another query
  if (warp.thread_rank() != 0) return;
  counts.latency_ns = M::clock_ns() - begun_ns;
  batch.outcomes[query] = counts;
}

}  // namespace forebay::search
