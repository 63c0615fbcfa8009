// SPDX-License-Identifier: Apache-2.0
//! \file
//! Breadth-first search, level by level from the top, over neighbours behind a view; everything else in plain memory.
//!
//! The frontier is a list of runs of neighbours, none longer than a page and none over the edge of one. A warp takes
//! several runs at a time: each lane asks for the page of one, so that they come together, and then all lanes share out
//! the neighbours of all of them, so that vertices of few neighbours leave no lane idle. Vertices are listed as they
//! are found, at random: all pages are wanted by the first turns. A large frontier may be listed again in the order of
//! vertices, which is that of pages: then pages come in while others are worked on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/common/failure_latch.hpp"
#include "forebay/simt/team.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::bench {

inline constexpr std::uint32_t bfs_unreached = ~0u;

/// Neighbours [first, first + count), in one word: first < 2^48, count < 2^16.
class bfs_run_of_neighbours {
 public:
  bfs_run_of_neighbours() = default;
  FOREBAY_DEVICE bfs_run_of_neighbours(std::uint64_t first, std::uint32_t count) : bits_(first << 16 | count) {}
  FOREBAY_DEVICE std::uint64_t first() const { return bits_ >> 16; }
  FOREBAY_DEVICE std::uint32_t count() const { return static_cast<std::uint32_t>(bits_ & 0xffff); }

 private:
  std::uint64_t bits_;
};

/// Written by a level, read by the host before the next.
struct bfs_level_result {
  std::uint64_t runs = 0;      ///< of the next frontier
  std::uint64_t vertices = 0;  ///< of the next frontier, those without other neighbours included
};

/// What the kernels of a search share.
template <class M>
struct bfs_state {
  std::uint64_t const* row_begin;
  std::uint32_t* distances;
  std::uint32_t page_elements;  ///< a power of two
  bfs_run_of_neighbours* next;
  bfs_level_result* result;

  /// Adds the neighbours of a vertex for each lane with `found`. A collective of a full warp.
  template <class Warp>
  FOREBAY_DEVICE void push(Warp const& warp, bool found, std::uint32_t vertex) const {
    std::uint64_t const begin = found ? row_begin[vertex] : 0;
    std::uint64_t const end = found ? row_begin[vertex + 1] : 0;
    std::uint64_t const mask = page_elements - 1;
    std::uint64_t const runs = begin == end ? 0 : (end + mask) / page_elements - begin / page_elements;
    auto const team = simt::team<M>::here();
    std::uint64_t const up_to_here = team.inclusive_sum(runs);
    std::uint64_t const total = team.broadcast(up_to_here, 31);
    std::uint64_t base = 0;
    if (team.leader()) {
      // relaxed, both: the next launch is what reads the frontier.
      base = simt::atomic<M>(result->runs).fetch_add(total, simt::order::relaxed);
    }
    std::uint32_t const vertices = simt::team<M>::ones(warp.ballot(found));
    if (team.leader()) simt::atomic<M>(result->vertices).fetch_add(vertices, simt::order::relaxed);
    base = team.broadcast(base) + up_to_here - runs;
    for (std::uint64_t at = begin; at < end;) {
      std::uint64_t const page_end = (at | mask) + 1;
      std::uint64_t const stop = page_end < end ? page_end : end;
      next[base++] = bfs_run_of_neighbours(at, static_cast<std::uint32_t>(stop - at));
      at = stop;
    }
  }
};

/// Makes every vertex unreached but the source.
template <class M>
struct bfs_begin {
  bfs_state<M> state;
  std::uint32_t vertices;
  std::uint32_t source;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint32_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      state.distances[v] = v == source ? 0 : bfs_unreached;
    }
    if (M::thread_rank() < 32) state.push(M::this_warp(), M::thread_rank() == 0, source);
  }
};

/// Lists the vertices of a level, about in their order.
template <class M>
struct bfs_list_level {
  bfs_state<M> state;
  std::uint32_t vertices;
  std::uint32_t level;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = warp.thread_rank();
    for (std::uint64_t first = M::thread_rank() - lane; first < vertices; first += M::thread_count()) {
      std::uint64_t const v = first + lane;
      bool const here = v < vertices && state.distances[v] == level;
      if (warp.any(here)) state.push(warp, here, static_cast<std::uint32_t>(v));
    }
  }
};

/// Visits the neighbours of a frontier. Warps of 32 lanes.
template <class M, class Neighbours>
struct bfs_visit {
  bfs_state<M> state;
  Neighbours neighbours;
  std::uint32_t level;  ///< of the vertices that are found
  std::uint64_t runs;
  bfs_run_of_neighbours const* frontier;
  std::uint32_t at_a_time;       ///< runs that a warp takes, 1 to 32; it holds the pages of all of them
  std::uint32_t prefetch_ahead;  ///< how many times it takes runs before it needs what it prefetches; 0: it does not
  apps::failure_latch* failure;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const warps = M::thread_count() / 32;
    auto const turns = static_cast<std::uint32_t>((runs + at_a_time - 1) / at_a_time);
    for (std::uint32_t turn = M::thread_rank() / 32; turn < turns; turn += warps) {
      bfs_run_of_neighbours const run = take(turn, turns);
      if (prefetch_ahead != 0) {
        bfs_run_of_neighbours const ahead = take(turn + std::uint64_t{prefetch_ahead} * warps, turns);
        if (ahead.count() != 0) neighbours.prefetch(ahead.first());
      }
      // Not kept from turn to turn: what a cursor remembers would take registers of the wait for the next page.
      auto page = neighbours.thread_page();
      std::uint32_t const* begin = nullptr;
      if (run.count() != 0 && failure->template passes<M>(page.seek(run.first()))) begin = &page[run.first()];
      if (!warp.all(run.count() == 0 || begin != nullptr)) return;
      auto const team = simt::team<M>::here();
      std::uint64_t const up_to_mine = team.inclusive_sum(run.count());
      visit(warp, begin, static_cast<std::uint32_t>(up_to_mine - run.count()),
            static_cast<std::uint32_t>(team.broadcast(up_to_mine, 31)));
      warp.sync();  // before a lane lets go of a page that others read
    }
  }

 private:
  /// Visits the neighbours that the lanes have together, `total`: each lane's stand at `begin` and are those from
  /// number `first` on.
  template <class Warp>
  FOREBAY_DEVICE void visit(Warp const& warp, std::uint32_t const* begin, std::uint32_t first,
                            std::uint32_t total) const {
    constexpr std::uint32_t batch = 4;
    for (std::uint32_t at = 0; at < total; at += batch * 32) {
      std::uint32_t neighbour[batch];
      bool unreached[batch];
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        std::uint32_t const i = at + k * 32 + warp.thread_rank();
        std::uint32_t const whose = owner(warp, first, i);
        std::uint32_t const* const from = warp.shfl(begin, whose);
        std::uint32_t const before = warp.shfl(first, whose);
        neighbour[k] = i < total ? from[i - before] : 0;
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        // relaxed, here and below: whoever moves the distance from `bfs_unreached` owns the vertex.
        unreached[k] = simt::atomic<M>(state.distances[neighbour[k]]).load(simt::order::relaxed) == bfs_unreached &&
                       at + k * 32 + warp.thread_rank() < total;
      }
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch; ++k) {
        if (!warp.any(unreached[k])) continue;
        std::uint32_t expected = bfs_unreached;
        bool const found =
            unreached[k] &&
            simt::atomic<M>(state.distances[neighbour[k]]).compare_exchange(expected, level, simt::order::relaxed);
        if (warp.any(found)) state.push(warp, found, neighbour[k]);
      }
    }
  }

  /// The calling lane's run of a warp's turn; an empty one where it has none. Each lane goes through a part of its own
  /// of the frontier: what the lanes of a warp miss are then different pages, which they ask for together.
  FOREBAY_DEVICE bfs_run_of_neighbours take(std::uint64_t turn, std::uint32_t turns) const {
    std::uint32_t const lane = M::this_warp().thread_rank();
    std::uint64_t const mine = std::uint64_t{lane} * turns + turn;
    return lane < at_a_time && turn < turns && mine < runs ? frontier[mine] : bfs_run_of_neighbours(0, 0);
  }

  /// The lane that has neighbour number `i`: the last one whose first is not beyond it.
  template <class Warp>
  FOREBAY_DEVICE std::uint32_t owner(Warp const& warp, std::uint32_t first, std::uint32_t i) const {
    std::uint32_t lane = 0;
    if (at_a_time == 1) return lane;
    for (std::uint32_t step = 16; step != 0; step /= 2) {
      if (warp.shfl(first, lane + step) <= i) lane += step;
    }
    return lane;
  }
};

struct bfs_shape {
  std::uint32_t vertices = 0;
  std::uint64_t entries = 0;
  std::uint64_t const* row_begin = nullptr;
};

/// Searches as often as one likes.
template <class Executor, class Neighbours>
class bfs {
  using M = typename Executor::machine;

 public:
  /// `page_elements`, a power of two of at most 32768: how many neighbours one page of the view holds. `at_a_time`: how
  /// many pages a warp holds, 1 to 32; more than 1 only where there is room for those of all warps that run together.
  bfs(Executor const& run, bfs_shape const& shape, Neighbours neighbours, std::uint32_t page_elements = 1024,
      std::uint32_t at_a_time = 32, std::uint32_t prefetch_ahead = 0)
      : run_(run),
        shape_(shape),
        neighbours_(neighbours),
        page_elements_(page_elements),
        at_a_time_(at_a_time),
        prefetch_ahead_(prefetch_ahead),
        distances_(run.memory(), shape.vertices),
        frontier_(run.memory(), runs_max(shape, page_elements)),
        next_(run.memory(), runs_max(shape, page_elements)),
        result_(run.memory(), 1),
        failure_(run.memory(), 1) {}

  /// Vertices of each level, or of those up to one in which something failed. `ordered`: a frontier of at least a
  /// sixteenth of all vertices is listed in their order.
  std::vector<std::uint64_t> operator()(std::uint32_t source, bool ordered = false) {
    std::vector<std::uint64_t> levels;
    std::uint32_t const warps = run_.warps();
    result_.assign(std::vector<bfs_level_result>(1));
    run_({.blocks = (warps + 3) / 4, .threads_per_block = 128}, bfs_begin<M>{state(), shape_.vertices, source});
    for (std::uint32_t level = 1;; ++level) {
      run_.synchronize();
      bfs_level_result const found = result_.to_host()[0];
      if (found.vertices == 0) return levels;
      levels.push_back(found.vertices);
      if (failures().failures != 0 || found.runs == 0) return levels;
      if (ordered && found.vertices >= shape_.vertices / 16) {
        result_.assign(std::vector<bfs_level_result>(1));
        run_({.blocks = (warps + 3) / 4, .threads_per_block = 128},
             bfs_list_level<M>{state(), shape_.vertices, level - 1});
        run_.synchronize();
      }
      std::swap(frontier_, next_);
      result_.assign(std::vector<bfs_level_result>(1));
      // A frontier of few runs is rather the work of many warps.
      std::uint64_t const most = 2ull * warps;
      auto const at_a_time = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(found.runs / most, 1, at_a_time_));
      auto const useful = static_cast<std::uint32_t>(std::min(most, (found.runs + at_a_time - 1) / at_a_time));
      run_({.blocks = (useful + 3) / 4, .threads_per_block = 128},
           bfs_visit<M, Neighbours>{state(), neighbours_, level, found.runs, frontier_.data(), at_a_time,
                                    prefetch_ahead_, failure_.data()});
    }
  }

  std::uint32_t const* distances() const { return distances_.data(); }
  std::vector<std::uint32_t> distances_to_host() const { return distances_.to_host(); }
  /// What failed so far; to be asked when nothing runs.
  apps::failure_latch failures() const { return failure_.to_host()[0]; }

 private:
  /// A vertex has one run more than it has edges of pages within its neighbours.
  static std::uint64_t runs_max(bfs_shape const& shape, std::uint32_t page_elements) {
    return shape.vertices + shape.entries / page_elements + 1;
  }
  bfs_state<M> state() const {
    return {shape_.row_begin, distances_.data(), page_elements_, next_.data(), result_.data()};
  }

  Executor const& run_;
  bfs_shape shape_;
  Neighbours neighbours_;
  std::uint32_t page_elements_;
  std::uint32_t at_a_time_;
  std::uint32_t prefetch_ahead_;
  apps::device_array<std::uint32_t> distances_;
  apps::device_array<bfs_run_of_neighbours> frontier_, next_;
  apps::device_array<bfs_level_result> result_;
  apps::device_array<apps::failure_latch> failure_;
};

/// Counts vertices whose distance cannot be right: in an undirected graph distances of neighbours differ by at most 1,
/// whoever is reached has a neighbour that is nearer, and who is not reached has none that is (Graph500, "Validation").
template <class M>
struct bfs_check {
  bfs_shape shape;
  std::uint32_t const* neighbours;
  std::uint32_t source;
  std::uint32_t const* distances;
  std::uint64_t* wrong_vertices;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    for (std::uint32_t v = M::thread_rank() / 32; v < shape.vertices; v += M::thread_count() / 32) {
      std::uint32_t const distance = distances[v];
      bool right = (distance == 0) == (v == source), nearer = false;
      for (std::uint64_t i = shape.row_begin[v] + warp.thread_rank(); i < shape.row_begin[v + 1]; i += 32) {
        std::uint32_t const other = distances[neighbours[i]];
        if (distance == bfs_unreached || other == bfs_unreached) {
          right = right && distance == other;
        } else {
          right = right && other + 1 >= distance && other <= distance + 1;
          nearer = nearer || other + 1 == distance;
        }
      }
      bool const all_right = warp.all(right);
      bool const reached = warp.any(nearer) || v == source || distance == bfs_unreached;
      // relaxed: the host reads it after the grid.
      if (warp.thread_rank() == 0 && !(all_right && reached)) {
        simt::atomic<M>(*wrong_vertices).fetch_add(1, simt::order::relaxed);
      }
    }
  }
};

}  // namespace forebay::bench
