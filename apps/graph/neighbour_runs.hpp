// SPDX-License-Identifier: Apache-2.0
//! \file
//! How algorithms give out neighbour lists that lie in pages: as runs of neighbours, each of one vertex and in one
//! page. The lanes of a warp take a run each, so that their pages come together. Then all lanes share the neighbours of
//! all runs, so that vertices of few neighbours leave no lane idle.
#pragma once

#include <algorithm>
#include <cstdint>

#include "forebay/machine.hpp"

namespace forebay::graph {

/// A graph of which the kernels know everything except the neighbours: those of vertex v are the entries
/// [row_begin[v], row_begin[v + 1]) of a view. All lists together are its entries [0, entries).
struct graph_shape {
  std::uint32_t vertices = 0;  ///< at most 2^32 - 2
  std::uint64_t entries = 0;
  std::uint64_t const* row_begin = nullptr;
};

/// Entries [begin, end) of the lists.
struct entry_range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  FOREBAY_DEVICE std::uint32_t count() const { return static_cast<std::uint32_t>(end - begin); }
};

/// The part of a vertex's list that lies in one of the list's pages, in one word. A list of no neighbours has a run
/// too.
class run_of_neighbours {
 public:
  run_of_neighbours() = default;
  FOREBAY_DEVICE run_of_neighbours(std::uint32_t vertex, std::uint32_t page)
      : bits_(std::uint64_t{page} << 32 | vertex) {}

  FOREBAY_DEVICE std::uint32_t vertex() const { return static_cast<std::uint32_t>(bits_); }
  /// Its entries; 2^page_shift is how many a page has.
  FOREBAY_DEVICE entry_range in(std::uint64_t const* row_begin, std::uint32_t page_shift) const {
    std::uint64_t const begin = row_begin[vertex()], end = row_begin[vertex() + 1];
    std::uint64_t const page = (begin >> page_shift) + (bits_ >> 32);
    std::uint64_t const page_begin = page << page_shift, page_end = (page + 1) << page_shift;
    return {page_begin < begin ? begin : page_begin, page_end < end ? page_end : end};
  }
  FOREBAY_DEVICE static std::uint32_t count(entry_range list, std::uint32_t page_shift) {
    if (list.begin == list.end) return 1;
    return static_cast<std::uint32_t>(((list.end - 1) >> page_shift) - (list.begin >> page_shift)) + 1;
  }
  /// The most runs that lists can have together: a list has one run more than there are edges of pages within it.
  static std::uint64_t most(graph_shape const& shape, std::uint32_t page_elements) {
    return shape.vertices + shape.entries / page_elements + 1;
  }

 private:
  std::uint64_t bits_;
};

/// A list of runs that a kernel makes.
struct run_list {
  run_of_neighbours* runs;
  std::uint64_t* size;

  /// Lists the runs of `vertex` for each lane with `listed`. Returns how many neighbours the calling lane's vertex has.
  /// A collective of a full warp.
  template <class M>
  FOREBAY_DEVICE std::uint64_t push(bool listed, std::uint32_t vertex, std::uint64_t const* row_begin,
                                    std::uint32_t page_shift) const {
    entry_range const list = listed ? entry_range{row_begin[vertex], row_begin[vertex + 1]} : entry_range{};
    std::uint32_t const mine = listed ? run_of_neighbours::count(list, page_shift) : 0;
    auto const team = simt::team<M>::here();
    std::uint64_t const up_to_here = team.inclusive_sum(mine);
    std::uint64_t const total = team.broadcast(up_to_here, 31);
    std::uint64_t base = 0;
    // relaxed: only later launches read the list.
    if (team.leader()) base = simt::atomic<M>(*size).fetch_add(total, simt::order::relaxed);
    base = team.broadcast(base) + up_to_here - mine;
    for (std::uint32_t page = 0; page < mine; ++page) runs[base + page] = run_of_neighbours(vertex, page);
    return list.end - list.begin;
  }
};

/// How the runs of a list are divided: each lane goes through a part of its own of the list, so the lanes of a warp
/// miss different pages, which they ask for together.
struct run_division {
  std::uint64_t runs;
  std::uint64_t turns;      ///< all warps have together
  std::uint32_t at_a_time;  ///< lanes of a warp that take a run, 1 to 32

  /// Among `warps` warps; a list of few runs is divided among all of them.
  static run_division of(std::uint64_t runs, std::uint64_t warps, std::uint32_t at_a_time_max) {
    std::uint64_t const at_a_time = std::clamp<std::uint64_t>(runs / warps, 1, at_a_time_max);
    return {runs, (runs + at_a_time - 1) / at_a_time, static_cast<std::uint32_t>(at_a_time)};
  }
  /// The run of a lane in a warp's turn; `runs` or more if it has none.
  FOREBAY_DEVICE std::uint64_t number(std::uint32_t lane, std::uint64_t turn) const {
    return lane < at_a_time ? lane * turns + turn : runs;
  }
};

/// What the calling lane has of the neighbours that a warp shares; several, so that their loads are in flight together.
template <class T>
struct neighbour_batch {
  static constexpr std::uint32_t size = 4;

  T neighbour[size];          ///< zeros where there is none
  bool here[size];            ///< whether there is one
  std::uint32_t whose[size];  ///< the lane whose run it is in
  std::uint32_t index[size];  ///< in that run
  T const* at[size];          ///< where it lies
};

/// Calls `visit(batch)` until the lanes of a full warp have seen all neighbours that they have together: `count` of
/// each lane, from `begin` on. All lanes call `visit` together, so it may use collectives. `several`: whether any lane
/// but the first has neighbours.
template <class M, class T, class Visit>
FOREBAY_DEVICE void visit_together(T const* begin, std::uint32_t count, bool several, Visit&& visit) {
  auto const warp = M::this_warp();
  auto const team = simt::team<M>::here();
  auto const up_to_mine = static_cast<std::uint32_t>(team.inclusive_sum(count));
  std::uint32_t const first = up_to_mine - count;
  std::uint32_t const total = team.broadcast(up_to_mine, 31);
  constexpr std::uint32_t batch_size = neighbour_batch<T>::size;
  for (std::uint32_t at = 0; at < total; at += batch_size * 32) {
    neighbour_batch<T> batch;
    FOREBAY_UNROLL
    for (std::uint32_t k = 0; k < batch_size; ++k) {
      std::uint32_t const i = at + k * 32 + warp.thread_rank();
      // The last lane whose first neighbour is not beyond this one.
      std::uint32_t whose = 0;
      if (several) {
        for (std::uint32_t step = 16; step != 0; step /= 2) {
          if (warp.shfl(first, whose + step) <= i) whose += step;
        }
      }
      batch.here[k] = i < total;
      batch.whose[k] = whose;
      std::uint32_t const before = warp.shfl(first, whose);
      batch.index[k] = batch.here[k] ? i - before : 0;
      batch.at[k] = warp.shfl(begin, whose) + batch.index[k];
      batch.neighbour[k] = batch.here[k] ? *batch.at[k] : T{};
    }
    visit(batch);
  }
}

/// A grid of at most `warps_max` warps for work that occupies `wanted`.
template <class Executor>
simt::grid grid_of_warps(Executor const& run, std::uint64_t wanted, std::uint32_t warps_max,
                         std::uint32_t per_block = 4) {
  auto const warps =
      static_cast<std::uint32_t>(std::max<std::uint64_t>(1, std::min<std::uint64_t>({wanted, run.warps(), warps_max})));
  std::uint32_t const each = std::min(warps, per_block);
  return {.blocks = warps / each, .threads_per_block = each * 32};
}

}  // namespace forebay::graph
