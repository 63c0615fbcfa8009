// SPDX-License-Identifier: Apache-2.0
//! \file
//! Checks breadth-first searches where they ran, for graphs that are too large for a reference on the host. The rules
//! are those of Graph500 ("Validation").
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/edge_sweep.hpp"
#include "apps/graph/list_errors.hpp"

namespace forebay::graph {

/// What cannot be right.
struct bfs_wrong {
  std::uint64_t arcs = 0;      ///< whose end is more than one step farther than their start
  std::uint64_t vertices = 0;  ///< that no arc from the level before reaches, or not from their predecessor
  list_errors errors;

  bool any() const { return arcs != 0 || vertices != 0 || errors.any(); }
};

/// Counts the arcs that are shorter than the distances say, and marks the vertices that have an arc from the level
/// before. Warps of 32 lanes.
template <class M, class Neighbours>
struct bfs_check_arcs {
  edge_sweep<Neighbours> sweep;
  std::uint32_t const* distances;
  std::uint32_t const* predecessors;  ///< null: any vertex of the level before will do
  std::uint32_t* explained;           ///< a bit of each vertex
  bfs_wrong* wrong;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t arcs = 0;
    bool const all =
        sweep.template visit_all<M>(wrong->errors.failure, [&](auto const& batch, std::uint32_t first_vertex) {
          FOREBAY_UNROLL
          for (std::uint32_t k = 0; k < batch.size; ++k) {
            if (batch.here[k]) arcs += is_wrong(first_vertex + batch.whose[k], batch.neighbour[k]) ? 1 : 0;
          }
        });
    if (!all) return;
    auto const team = simt::team<M>::here();
    arcs = team.sum(arcs);
    // relaxed: the host reads it after the grid.
    if (team.leader() && arcs != 0) simt::atomic<M>(wrong->arcs).fetch_add(arcs, simt::order::relaxed);
  }

 private:
  FOREBAY_DEVICE bool is_wrong(std::uint32_t from, std::uint64_t id) const {
    auto const to = static_cast<std::uint32_t>(id < sweep.shape.vertices ? id : bfs_unreached);
    if (!wrong->errors.vertices.template passes<M>(to, sweep.shape.vertices)) return false;
    std::uint32_t const start = distances[from], there = distances[to];
    // Unreached is farther than any distance, so an unreached neighbour of a reached vertex is wrong too.
    if (start == bfs_unreached || there <= start) return false;
    if (there - start > 1) return true;
    if (predecessors == nullptr || predecessors[to] == from) {
      // relaxed: only the next launch reads the marks.
      simt::atomic<M>(explained[to / 32]).fetch_or(1u << to % 32, simt::order::relaxed);
    }
    return false;
  }
};

/// Counts the vertices whose distance nothing explains.
template <class M>
struct bfs_check_vertices {
  std::uint32_t vertices;
  std::uint32_t source;
  std::uint32_t const* distances;
  std::uint32_t const* predecessors;
  std::uint32_t const* explained;
  bfs_wrong* wrong;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      bool const has_none = predecessors == nullptr || predecessors[v] == bfs_unreached;
      bool const is_explained = (explained[v / 32] >> v % 32 & 1) != 0;
      bool const right = v == source                     ? distances[v] == 0 && has_none
                         : distances[v] == bfs_unreached ? has_none
                                                         : distances[v] != 0 && is_explained;
      // relaxed: the host reads it after the grid.
      if (!right) simt::atomic<M>(wrong->vertices).fetch_add(1, simt::order::relaxed);
    }
  }
};

/// Whether the distances, and the predecessors if there are any, are those of a search from `source` along the arcs of
/// any graph. It reads the lists once.
///
/// The distances are then right: no arc makes any vertex nearer, so none is too far away; and each vertex has an arc
/// from one that is a step nearer, so none is too near.
template <class Executor, class Neighbours>
bfs_wrong check_bfs(Executor const& run, edge_sweep<Neighbours> const& sweep, std::uint32_t source,
                    std::uint32_t const* distances, std::uint32_t const* predecessors, std::uint32_t warps_max = ~0u) {
  using M = typename Executor::machine;
  std::uint32_t const vertices = sweep.shape.vertices;
  apps::device_array<std::uint32_t> const explained(run.memory(), vertices / 32 + 1);
  apps::device_array<bfs_wrong> const wrong(run.memory(), std::vector<bfs_wrong>(1));
  run(grid_of_warps(run, sweep.shares(), warps_max),
      bfs_check_arcs<M, Neighbours>{sweep, distances, predecessors, explained.data(), wrong.data()});
  run(grid_of_warps(run, run.warps(), ~0u),
      bfs_check_vertices<M>{vertices, source, distances, predecessors, explained.data(), wrong.data()});
  run.synchronize();
  return wrong.to_host()[0];
}

}  // namespace forebay::graph
