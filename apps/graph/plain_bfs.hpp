// SPDX-License-Identifier: Apache-2.0
//! \file
//! Breadth-first search as a first version of a program has it: from above, with `neighbours[i]` for each neighbour. It
//! shows what the cursors and the lists of runs of `bfs` are worth.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/neighbour_runs.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

struct plain_bfs_result {
  std::uint64_t vertices = 0;  ///< that were reached
  std::uint64_t bad_ids = 0;   ///< that name no vertex
};

/// Warps of 32 lanes. Each looks for vertices of the level before, and its lanes share the neighbours of one.
template <class M, class Neighbours>
struct plain_bfs_level {
  graph_shape shape;
  Neighbours neighbours;
  std::uint32_t* distances;
  std::uint32_t* predecessors;
  std::uint32_t level;  ///< of the vertices that are found
  plain_bfs_result* result;

  FOREBAY_DEVICE void operator()() const {
    auto const team = simt::team<M>::here();
    std::uint64_t found = 0;
    for (std::uint64_t i = M::thread_rank() / 32; i < shape.vertices; i += M::thread_count() / 32) {
      auto const v = static_cast<std::uint32_t>(i);
      if (distance(v) != level - 1) continue;
      for (std::uint64_t at = shape.row_begin[v] + team.rank(); at < shape.row_begin[v + 1]; at += 32) {
        auto const to = neighbours[at];
        if (to >= shape.vertices) {
          // relaxed: the host reads it after the grid.
          simt::atomic<M>(result->bad_ids).fetch_add(1, simt::order::relaxed);
          continue;
        }
        auto const vertex = static_cast<std::uint32_t>(to);
        std::uint32_t expected = bfs_unreached;
        if (distance(vertex) != bfs_unreached) continue;
        // relaxed: the thread that moves a distance from `bfs_unreached` owns the vertex until the grid ends.
        if (!simt::atomic<M>(distances[vertex]).compare_exchange(expected, level, simt::order::relaxed)) continue;
        predecessors[vertex] = v;
        ++found;
      }
    }
    found = team.sum(found);
    // relaxed: as above.
    if (team.leader() && found != 0) simt::atomic<M>(result->vertices).fetch_add(found, simt::order::relaxed);
  }

 private:
  FOREBAY_DEVICE std::uint32_t distance(std::uint32_t vertex) const {
    // relaxed: others reach vertices meanwhile, of the level that no one looks for yet.
    return simt::atomic<M>(distances[vertex]).load(simt::order::relaxed);
  }
};

/// Searches any number of times. `Neighbours` has `[]`, and reports its own failures.
template <class Executor, class Neighbours>
class plain_bfs {
  using M = typename Executor::machine;

 public:
  plain_bfs(Executor const& run, graph_shape const& shape, Neighbours neighbours)
      : run_(run),
        shape_(shape),
        neighbours_(neighbours),
        distances_(run.memory(), shape.vertices),
        predecessors_(run.memory(), shape.vertices),
        result_(run.memory(), 1) {}

  /// How many vertices each level has; calls `tell(vertices)` when one is known.
  template <class Tell>
  std::vector<std::uint64_t> operator()(std::uint32_t source, Tell&& tell) {
    std::vector<std::uint32_t> unreached(shape_.vertices, bfs_unreached);
    predecessors_.assign(unreached);
    unreached[source] = 0;
    distances_.assign(unreached);
    bad_ids_ = 0;
    std::vector<std::uint64_t> levels;
    for (std::uint64_t found = 1; found != 0 && bad_ids_ == 0;) {
      levels.push_back(found);
      tell(found);
      result_.assign(std::vector<plain_bfs_result>(1));
      run_(grid_of_warps(run_, run_.warps(), ~0u),
           plain_bfs_level<M, Neighbours>{shape_, neighbours_, distances_.data(), predecessors_.data(),
                                          static_cast<std::uint32_t>(levels.size()), result_.data()});
      run_.synchronize();
      plain_bfs_result const result = result_.to_host()[0];
      found = result.vertices;
      bad_ids_ = result.bad_ids;
    }
    return levels;
  }

  std::vector<std::uint32_t> distances_to_host() const { return distances_.to_host(); }
  std::vector<std::uint32_t> predecessors_to_host() const { return predecessors_.to_host(); }
  /// Of the last search: ids that name no vertex.
  std::uint64_t bad_ids() const { return bad_ids_; }

 private:
  Executor const& run_;
  graph_shape shape_;
  Neighbours neighbours_;
  apps::device_array<std::uint32_t> distances_, predecessors_;
  apps::device_array<plain_bfs_result> result_;
  std::uint64_t bad_ids_ = 0;
};

}  // namespace forebay::graph
