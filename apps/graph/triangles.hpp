// SPDX-License-Identifier: Apache-2.0
//! \file
//! Counts the triangles of an undirected graph over sorted neighbour lists behind a view; everything else in plain
//! memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/csr_rows.hpp"
#include "apps/graph/list_errors.hpp"
#include "apps/graph/neighbour_runs.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

/// In the memory of the machine, zeroed; read by the host between launches.
struct triangles_found {
  std::uint64_t triangles = 0;
  std::uint64_t descents = 0;  ///< neighbours that are less than the one before in their list
  std::uint64_t pieces = 0;    ///< that warps have taken
  list_errors errors;
};

/// A warp copies a piece of the list of u into shared memory and lets go of its pages, since a thread may have one
/// cursor of a view at a time. Then the lanes go through the lists of several v of the piece together, and look up each
/// w in the list of u. A list of u that is longer than the tile in shared memory comes in several tiles.
///
/// Warps of 32 lanes. `Tile`: how many neighbours of one vertex a warp has in shared memory at a time. `Piece`: how
/// many consecutive entries of the lists it takes at a time.
template <class M, class Neighbours, std::uint32_t Tile, std::uint32_t Piece>
struct triangles_count {
  static constexpr std::uint32_t warps_per_block = 4;
  struct warp_memory {
    std::uint32_t middle[Piece + 1];  ///< each v of u, and the neighbour before the first of them
    std::uint32_t far[Tile];          ///< each w of u
  };
  struct block_memory {
    warp_memory of[warps_per_block];
  };

  graph_shape shape;
  Neighbours neighbours;
  std::uint32_t page_shift;
  std::uint32_t at_a_time;  ///< pages that a warp holds, 1 to 32
  triangles_found* found;

  FOREBAY_DEVICE void operator()() const {
    auto const team = simt::team<M>::here();
    warp_memory& memory = M::this_block().template shared<block_memory>().of[M::this_block().thread_rank() / 32];
    std::uint64_t triangles = 0;
    for (;;) {
      std::uint64_t piece = 0;
      // relaxed: the warp that gets a number has the piece alone. Pieces take very different times, so none is given
      // out in advance.
      if (team.leader()) piece = simt::atomic<M>(found->pieces).fetch_add(1, simt::order::relaxed);
      std::uint64_t const first = team.broadcast(piece) * Piece;
      if (first >= shape.entries) break;
      if (!count_piece(memory, first, min(first + Piece, shape.entries), triangles)) return;
    }
    triangles = team.sum(triangles);
    // relaxed: the host reads it after the grid.
    if (team.leader() && triangles != 0) {
      simt::atomic<M>(found->triangles).fetch_add(triangles, simt::order::relaxed);
    }
  }

 private:
  FOREBAY_DEVICE static std::uint64_t min(std::uint64_t a, std::uint64_t b) { return a < b ? a : b; }

  FOREBAY_DEVICE bool count_piece(warp_memory& memory, std::uint64_t first, std::uint64_t last,
                                  std::uint64_t& triangles) const {
    std::uint32_t u = row_that_ends_after<M>(shape.row_begin, shape.vertices, first, M::this_warp());
    for (std::uint64_t from = first; from < last; ++u) {
      std::uint64_t const to = min(shape.row_begin[u + 1], last);
      if (from < to && !count_row(memory, u, from, to, triangles)) return false;
      from = to;
    }
    return true;
  }

  /// Counts the triangles of u whose v are the entries [from, to).
  FOREBAY_DEVICE bool count_row(warp_memory& memory, std::uint32_t u, std::uint64_t from, std::uint64_t to,
                                std::uint64_t& triangles) const {
    auto const warp = M::this_warp();
    std::uint64_t const end = shape.row_begin[u + 1];
    std::uint32_t const before = from > shape.row_begin[u] ? 1 : 0;
    auto const count = static_cast<std::uint32_t>(to - from) + before;
    std::uint32_t tile_before = 0;  // the last neighbour of the tile before
    for (std::uint64_t tile = from + 1; tile <= end; tile += Tile) {
      auto const tile_count = static_cast<std::uint32_t>(min(end - tile, Tile));
      {
        auto page = neighbours.warp_page();
        if (tile == from + 1) {
          if (!copy(page, memory.middle, from - before, to)) return false;
          check_order(memory.middle, before, count);
          bool const all_are_less = memory.middle[count - 1] <= u;
          warp.sync();  // before a lane goes on to the next vertex, whose neighbours take the place of these
          if (all_are_less) return true;
        }
        if (!copy(page, memory.far, tile, tile + tile_count)) return false;
      }
      if (tile_count == 0) return true;
      if (!count_tile(memory, u, before, count, tile_before, tile_count, triangles)) return false;
      tile_before = memory.far[tile_count - 1];
      warp.sync();  // before the next tile takes this one's place
    }
    return true;
  }

  template <class Page>
  FOREBAY_DEVICE bool copy(Page& page, std::uint32_t* to, std::uint64_t first, std::uint64_t last) const {
    auto const warp = M::this_warp();
    for (std::uint64_t at = first; at < last;) {
      if (!found->errors.failure.template passes<M>(page.seek(at, last))) return false;
      std::uint64_t const stop = min(page.end(), last);
      for (std::uint64_t i = at + warp.thread_rank(); i < stop; i += 32) to[i - first] = page[i];
      warp.sync();  // before a lane lets go of the page, and before others read what this one copied
      at = stop;
    }
    return true;
  }

  /// Counts neighbours that are no vertex, and those that are less than the one before. Every entry of the lists is
  /// once among those that are looked at here.
  FOREBAY_DEVICE void check_order(std::uint32_t const* middle, std::uint32_t before, std::uint32_t count) const {
    for (std::uint32_t i = before + M::this_warp().thread_rank(); i < count; i += 32) {
      found->errors.vertices.template passes<M>(middle[i], shape.vertices);
      // relaxed: the host reads it after the grid.
      if (i != 0 && middle[i] < middle[i - 1]) simt::atomic<M>(found->descents).fetch_add(1, simt::order::relaxed);
    }
  }

  /// Counts the triangles whose w is in the tile.
  FOREBAY_DEVICE bool count_tile(warp_memory const& memory, std::uint32_t u, std::uint32_t before, std::uint32_t count,
                                 std::uint32_t tile_before, std::uint32_t tile_count, std::uint64_t& triangles) const {
    std::uint32_t const greatest = memory.far[tile_count - 1];
    std::uint32_t const lane = M::this_warp().thread_rank();
    for (std::uint32_t at = before; at < count; at += at_a_time) {
      std::uint32_t const i = at + lane;
      bool const is_mine = lane < at_a_time && i < count;
      std::uint32_t const v = is_mine ? memory.middle[i] : 0;
      // A vertex that a list names twice is one neighbour.
      bool const counts =
          is_mine && v > u && v < shape.vertices && v < greatest && (i == 0 || memory.middle[i - 1] != v);
      if (!M::this_warp().any(counts)) continue;
      entry_range const list = counts ? entry_range{shape.row_begin[v], shape.row_begin[v + 1]} : entry_range{};
      std::uint32_t const least = (v < tile_before ? tile_before : v) + 1;
      if (!count_lists(memory, list, least, greatest, tile_count, triangles)) return false;
    }
    return true;
  }

  /// Counts the neighbours from `least` to `greatest` in each lane's list that are in the tile.
  FOREBAY_DEVICE bool count_lists(warp_memory const& memory, entry_range list, std::uint32_t least,
                                  std::uint32_t greatest, std::uint32_t tile_count, std::uint64_t& triangles) const {
    auto const warp = M::this_warp();
    if (!skip_pages(list, least)) return false;
    std::uint32_t last =
        least - 1;  // the neighbour before those that are looked at; skipped ones are less than `least`
    for (;;) {
      bool const has_more = list.begin < list.end && last < greatest;
      if (!warp.any(has_more)) return true;
      std::uint64_t const stop = has_more ? min(((list.begin >> page_shift) + 1) << page_shift, list.end) : list.begin;
      auto page = neighbours.thread_page();
      std::uint32_t const* begin = nullptr;
      if (has_more && found->errors.failure.template passes<M>(page.seek(list.begin, stop))) begin = &page[list.begin];
      if (!warp.all(!has_more || begin != nullptr)) return false;
      warp.sync();  // what each lane has read, all lanes now have
      auto const run = static_cast<std::uint32_t>(stop - list.begin);
      visit_together<M>(begin, run, at_a_time != 1, [&](auto const& batch) {
        for (std::uint32_t k = 0; k < batch.size; ++k) {
          std::uint32_t const w = batch.neighbour[k];
          std::uint32_t const least_w = warp.shfl(least, batch.whose[k]);
          std::uint32_t const before_run = warp.shfl(last, batch.whose[k]);
          if (!batch.here[k] || w < least_w || w > greatest) continue;
          if ((batch.index[k] != 0 ? batch.at[k][-1] : before_run) == w) continue;
          triangles += is_in(memory.far, tile_count, w) ? 1 : 0;
        }
      });
      if (has_more) last = begin[run - 1];
      list.begin = stop;
      warp.sync();  // before a lane lets go of a page that others read
    }
  }

  /// Leaves out the pages of each lane's list whose neighbours are all less than `least`.
  FOREBAY_DEVICE bool skip_pages(entry_range& list, std::uint32_t least) const {
    auto const warp = M::this_warp();
    std::uint64_t low = list.begin >> page_shift;
    std::uint64_t high = list.begin < list.end ? (list.end - 1) >> page_shift : low;
    for (;;) {
      bool const searches = low < high;
      if (!warp.any(searches)) break;
      std::uint64_t const middle = (low + high) / 2, last = ((middle + 1) << page_shift) - 1;
      auto page = neighbours.thread_page();
      bool const passes = !searches || found->errors.failure.template passes<M>(page.seek(last, last + 1));
      if (!warp.all(passes)) return false;
      if (!searches) continue;
      if (page[last] < least) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    std::uint64_t const begin = low << page_shift;
    if (begin > list.begin) list.begin = min(begin, list.end);
    return true;
  }

  FOREBAY_DEVICE static bool is_in(std::uint32_t const* sorted, std::uint32_t count, std::uint32_t value) {
    std::uint32_t low = 0;
    while (count > 1) {
      std::uint32_t const half = count / 2;
      if (sorted[low + half] <= value) low += half;
      count -= half;
    }
    return sorted[low] == value;
  }
};

/// Counts any number of times.
///
/// A triangle u < v < w is counted where the list of u names v and w, and that of v names w. Arcs to smaller vertices
/// are not needed: a graph may have both arcs of an edge, or only the one to the greater vertex. Numbering vertices by
/// degree, so that those with long lists come last, makes the lists short; that is left to the caller.
///
/// `Tile` and `Piece`: see `triangles_count`.
template <class Executor, class Neighbours, std::uint32_t Tile = 1024, std::uint32_t Piece = 128>
class triangles {
  using M = typename Executor::machine;
  using kernel = triangles_count<M, Neighbours, Tile, Piece>;

 public:
  /// Lists are sorted. A neighbour that is listed twice, and a vertex that is its own neighbour, make no difference.
  /// `page_elements`, a power of two: how many neighbours one page of the view holds; the view begins at the edge of a
  /// page. `at_a_time`: how many pages a warp holds, 1 to 32; more than 1 only if there is room for those of all warps
  /// that run together. `warps_max`: no more warps than these use the view.
  triangles(Executor const& run, graph_shape const& shape, Neighbours neighbours, std::uint32_t page_elements = 1024,
            std::uint32_t at_a_time = 32, std::uint32_t warps_max = ~0u)
      : run_(run),
        shape_(shape),
        neighbours_(neighbours),
        page_shift_(simt::lowest_bit(page_elements)),
        at_a_time_(at_a_time),
        warps_max_(warps_max),
        found_(run.memory(), 1) {}

  /// The number of triangles; not valid if there are `errors()` or `descents()`.
  std::uint64_t operator()() {
    found_.assign(std::vector<triangles_found>(1));
    simt::grid shape = grid_of_warps(run_, (shape_.entries + Piece - 1) / Piece, warps_max_, kernel::warps_per_block);
    shape.shared_bytes = sizeof(typename kernel::block_memory);
    run_(shape, kernel{shape_, neighbours_, page_shift_, at_a_time_, found_.data()});
    run_.synchronize();
    result_ = found_.to_host()[0];
    return result_.triangles;
  }

  /// Of the last time.
  list_errors const& errors() const { return result_.errors; }
  /// Neighbours that are less than the one before in their list, the last time. If there are any, lists are not sorted.
  std::uint64_t descents() const { return result_.descents; }

 private:
  Executor const& run_;
  graph_shape shape_;
  Neighbours neighbours_;
  std::uint32_t page_shift_;
  std::uint32_t at_a_time_;
  std::uint32_t warps_max_;
  apps::device_array<triangles_found> found_;
  triangles_found result_;
};

}  // namespace forebay::graph
