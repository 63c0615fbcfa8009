// SPDX-License-Identifier: Apache-2.0
//! \file
//! An index of vectors on drives that is searched by exact distances alone, without codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "apps/search/exact_record.hpp"
#include "apps/search/index.hpp"
#include "forebay/extent.hpp"
#include "forebay/storage.hpp"

namespace forebay::search {

struct exact_shape {
  element elements = element::f32;
  metric how = metric::l2;
  std::uint32_t slots = 0;  ///< 1 to 2^31 - 1
  exact_layout layout;
};

/// Where searches begin. Copied to the device's memory.
struct exact_entry_points {
  std::span<std::uint32_t const> slots;
  std::span<std::uint32_t const> checksums;  ///< the short checksum of the vector at each of them
};

struct exact_options {
  std::uint32_t k = 10;
  std::uint32_t list_size = 64;   ///< at least `k`, at most 4096
  std::uint32_t width = 1;        ///< lists at a time: 1 to 8; times the degree of the graph at most 512
  std::uint32_t entries = 32;     ///< entry points that each query reads; at most as many as there are
  std::uint32_t iterations = 0;   ///< a search ends after so many; 0: when it has read each candidate's list
  std::uint32_t batch = 0;        ///< as in `search_options`
  std::uint32_t concurrency = 0;  ///< likewise
  double timeout_s = 10;          ///< for the lists of a step, and again for its vectors
};

struct placed_exact_index;

/// Move-only. Any thread may call `search`, one at a time.
class exact_index {
 public:
  /// Lists and vectors in extents. The storage outlives this. Throws `refused_input`: an extent is too short, a list or
  /// a vector is no multiple of the drives' block, or something does not fit the shape.
  exact_index(exact_shape const& shape, exact_entry_points const& entries, storage& drives, extent const& lists,
              extent const& vectors);
  /// Lists and vectors in memory, which are copied there.
  exact_index(exact_shape const& shape, exact_entry_points const& entries, std::span<std::byte const> lists,
              std::span<std::byte const> vectors, record_memory const& where);
  exact_index(exact_index&&) noexcept;
  exact_index& operator=(exact_index&&) noexcept;
  ~exact_index();

  /// As `vector_index::search`. `words` of the queries have zeros up to the words of a vector; `components` and
  /// `offsets_and_scales` are not used.
  search_found search(query_set const& queries, exact_options const& options);

 private:
  std::unique_ptr<placed_exact_index> placed_;
};

}  // namespace forebay::search
