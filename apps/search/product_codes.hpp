// SPDX-License-Identifier: Apache-2.0
//! \file
//! Distances from the codes of a product quantiser, as whole numbers.
#pragma once

#include <cstdint>

#include "apps/search/distance.hpp"
#include "forebay/machine.hpp"

namespace forebay::search {

/// The codebook and the codes of all slots, in the device's memory.
struct product_codes {
  static constexpr std::uint32_t centroids = 256;

  std::uint8_t const* codes = nullptr;  ///< `chunks` bytes for each slot
  float const* codebook = nullptr;      ///< [chunks][chunk_dimension][centroids]
  std::uint32_t chunks = 0;             ///< a multiple of 4
  std::uint32_t chunk_dimension = 0;
  bool is_product = false;  ///< whether distances are inner products, with the sign turned round; else squares
};

/// A query in the form that the quantiser compares.
struct coded_query {
  float const* components;  ///< `chunks` x `chunk_dimension`
  float offset;             ///< added to each part of a distance: then none is negative
  float scale;              ///< makes the greatest part 65535, or less
};

/// The parts of a query's distances: 256 for each chunk, as whole numbers. A distance is the sum of `chunks` of them,
/// and so does not depend on the order. It lies in the memory of a block, and belongs to one full warp.
template <class M>
class distance_table {
 public:
  FOREBAY_DEVICE distance_table(product_codes const& codes, std::uint16_t* parts) : codes_(codes), parts_(parts) {}

  /// A collective.
  FOREBAY_DEVICE void build(typename M::warp const& warp, coded_query const& query) {
    std::uint32_t const count = codes_.chunks * product_codes::centroids;
    warp.sync();
    for (std::uint32_t i = warp.thread_rank(); i < count; i += 32) {
      std::uint32_t const chunk = i / product_codes::centroids, centroid = i % product_codes::centroids;
      float const* const a = query.components + std::uint64_t{chunk} * codes_.chunk_dimension;
      float const* const b =
          codes_.codebook + std::uint64_t{chunk} * codes_.chunk_dimension * product_codes::centroids + centroid;
      float sum = 0;
      for (std::uint32_t d = 0; d < codes_.chunk_dimension; ++d) {
        float const x = a[d], y = b[std::uint64_t{d} * product_codes::centroids];
        sum += codes_.is_product ? -(x * y) : (x - y) * (x - y);
      }
      float const part = (sum + query.offset) * query.scale + 0.5f;
      parts_[i] = part < 65535.0f ? static_cast<std::uint16_t>(part) : std::uint16_t{65535};
    }
    warp.sync();
  }

  FOREBAY_DEVICE std::uint32_t distance(std::uint32_t slot) const {
    auto const* const code = reinterpret_cast<std::uint32_t const*>(codes_.codes + std::uint64_t{slot} * codes_.chunks);
    std::uint32_t sum = 0;
    if (codes_.chunks % 16 == 0) {
      for (std::uint32_t word = 0; word < codes_.chunks / 4; word += 4) {
        auto const four = M::ld(reinterpret_cast<simt::vec16 const*>(code + word));
        sum += part_of(word, static_cast<std::uint32_t>(four.low));
        sum += part_of(word + 1, static_cast<std::uint32_t>(four.low >> 32));
        sum += part_of(word + 2, static_cast<std::uint32_t>(four.high));
        sum += part_of(word + 3, static_cast<std::uint32_t>(four.high >> 32));
      }
    } else {
      for (std::uint32_t word = 0; word < codes_.chunks / 4; ++word) sum += part_of(word, M::ld(code + word));
    }
    return sum;
  }

 private:
  FOREBAY_DEVICE std::uint32_t part_of(std::uint32_t word, std::uint32_t four_codes) const {
    std::uint16_t const* const parts = parts_ + word * 4 * product_codes::centroids;
    std::uint32_t sum = 0;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < 4; ++k) sum += parts[k * product_codes::centroids + (four_codes >> 8 * k & 0xff)];
    return sum;
  }

  product_codes const& codes_;
  std::uint16_t* parts_;
};

}  // namespace forebay::search
