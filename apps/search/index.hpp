// SPDX-License-Identifier: Apache-2.0
//! \file
//! An index of vectors whose records lie on drives, and searches of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/search/distance.hpp"
#include "apps/search/record.hpp"
#include "apps/search/search_results.hpp"
#include "forebay/extent.hpp"
#include "forebay/storage.hpp"

namespace forebay::search {

struct index_shape {
  element elements = element::f32;
  metric how = metric::l2;
  std::uint32_t slots = 0;  ///< 1 to 2^31 - 1
  record_layout record;
  std::uint32_t chunks = 0;  ///< of the codes: a multiple of 4
  std::uint32_t chunk_dimension = 0;
  std::uint32_t navigation_degree = 0;
};

/// What a search needs in the device's memory. It is copied.
struct index_parts {
  std::span<std::uint8_t const> codes;  ///< [slots][chunks]
  std::span<float const> codebook;      ///< [chunks][chunk_dimension][256]
  std::span<std::uint32_t const> navigation_slots;
  std::span<std::uint32_t const> navigation_neighbours;  ///< [vertices][navigation_degree]
};

/// Queries as pq_search takes them. They are copied.
struct query_set {
  std::uint32_t count = 0;
  std::span<std::uint32_t const> words;  ///< [count][vector_words]
  std::span<float const> norms;          ///< [count]
  std::span<float const> components;     ///< [count][chunks][chunk_dimension]
  std::span<float const> offsets_and_scales;
  std::span<std::uint32_t const> filter = {};  ///< a bit for each slot; none: all may be found
};

struct search_options {
  std::uint32_t k = 10;
  std::uint32_t list_size = 64;        ///< at least `k`, at most 4096
  std::uint32_t width = 1;             ///< 1 to 32; 0: adapts
  std::uint32_t refill = 1;            ///< reads of a query that end before it begins others: 1 to 32
  std::uint32_t navigation_size = 32;  ///< 1 to 4096
  std::uint32_t batch = 0;             ///< so many queries are begun, and all of them end, before others begin; 0: all
  std::uint32_t concurrency = 0;       ///< queries at a time; 0: as many as the device has room for
  double timeout_s = 10;               ///< for one read
};

struct search_found {
  std::vector<std::uint32_t> slots;  ///< [count][k], the nearest first; `search_batch::no_slot` where there is none
  std::vector<float> distances;      ///< likewise
  std::vector<query_outcome> outcomes;
  double seconds = 0;  ///< of all batches, from the first launch to the end of the last
  std::uint32_t concurrency = 0;
};

enum class record_place : std::uint8_t { hbm, host };
struct record_memory {
  record_place place = record_place::host;
  int gpu = -1;  ///< negative: the CPU executor
};

struct placed_index;

/// Move-only. Any thread may call `search`, one at a time.
class vector_index {
 public:
  /// Records in an extent. The storage outlives this. Throws `refused_input`: the extent is too short, the record is no
  /// multiple of the drives' block, or parts do not fit the shape.
  vector_index(index_shape const& shape, index_parts const& parts, storage& drives, extent const& records);
  /// Records in memory, which are copied there.
  vector_index(index_shape const& shape, index_parts const& parts, std::span<std::byte const> records,
               record_memory const& where);
  vector_index(vector_index&&) noexcept;
  vector_index& operator=(vector_index&&) noexcept;
  ~vector_index();

  /// Reads that fail fail their query, and no other. Throws `refused_input` before anything starts, and
  /// `operation_failed` if the device fails.
  search_found search(query_set const& queries, search_options const& options);

 private:
  std::unique_ptr<placed_index> placed_;
};

}  // namespace forebay::search
