// SPDX-License-Identifier: Apache-2.0
//! \file
//! Goes through all neighbour lists of a graph once, in the order in which they lie.
#pragma once

#include <cstdint>

#include "apps/common/failure_latch.hpp"
#include "apps/graph/csr_rows.hpp"
#include "apps/graph/neighbour_runs.hpp"

namespace forebay::graph {

/// How the pages are given out. Each warp has consecutive pages, whatever vertices they belong to.
struct sweep_how {
  std::uint32_t share_pages = 8;  ///< that a warp has at a time; a share has less than 2^32 entries
  std::uint32_t window = 1;       ///< of them that it asks for at a time, 1 to 32
};

/// `Neighbours`: a view of vertices, or of what has a vertex.
template <class Neighbours>
struct edge_sweep {
  graph_shape shape;
  Neighbours neighbours;
  std::uint32_t page_elements;
  sweep_how how = {};

  std::uint64_t share_entries() const { return std::uint64_t{how.share_pages} * page_elements; }
  /// How many warps have something to do.
  std::uint64_t shares() const { return (shape.entries + share_entries() - 1) / share_entries(); }

  /// Calls `visit(batch, vertex)`: the batch's neighbours number `k` are those of `vertex + batch.whose[k]`. The lanes
  /// of a warp call it together. Returns false, at once, if a page cannot be had. For warps of 32 lanes, all of the
  /// grid.
  template <class M, class Visit>
  FOREBAY_DEVICE bool visit_all(apps::failure_latch& failure, Visit&& visit) const {
    std::uint64_t const each = std::uint64_t{how.share_pages} * page_elements;
    std::uint64_t const stride = std::uint64_t{M::thread_count() / 32} * each;
    for (std::uint64_t first = std::uint64_t{M::thread_rank() / 32} * each; first < shape.entries; first += stride) {
      std::uint64_t const last = shape.entries - first < each ? shape.entries : first + each;
      if (!visit_share<M>(first, last, failure, visit)) return false;
    }
    return true;
  }

 private:
  template <class M, class Visit>
  FOREBAY_DEVICE bool visit_share(std::uint64_t first, std::uint64_t last, apps::failure_latch& failure,
                                  Visit& visit) const {
    auto const warp = M::this_warp();
    std::uint32_t row = row_that_ends_after<M>(shape.row_begin, shape.vertices, first, warp);
    auto page = neighbours.warp_pages(how.window);
    for (std::uint64_t at = first; at < last;) {
      if (!failure.passes<M>(page.seek(at, last))) return false;
      std::uint64_t const stop = page.end() < last ? page.end() : last;
      auto const* const elements = &page[at];
      for (;;) {  // the rows of the page, one a lane
        std::uint32_t const v = row + warp.thread_rank();
        bool const exists = v < shape.vertices && v >= row;
        std::uint64_t const begin = exists ? shape.row_begin[v] : stop, end = exists ? shape.row_begin[v + 1] : stop;
        std::uint64_t const from = begin < at ? at : begin < stop ? begin : stop, to = end < stop ? end : stop;
        visit_together<M>(elements + (from - at), static_cast<std::uint32_t>(to - from), true,
                          [&](auto const& batch) { visit(batch, row); });
        std::uint32_t const ended = simt::count_bits(warp.ballot(exists && end <= stop));
        row += ended;
        if (ended < 32) break;
      }
      warp.sync();  // before a lane lets go of the page
      at = stop;
    }
    return true;
  }
};

}  // namespace forebay::graph
