// SPDX-License-Identifier: Apache-2.0
//! \file
//! Checks shortest paths where they were computed, for graphs that are too large for a reference on the host. The rules
//! are those of Graph500 ("Validation").
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/edge_sweep.hpp"
#include "apps/graph/list_errors.hpp"
#include "apps/graph/sssp.hpp"

namespace forebay::graph {

/// What cannot be right.
struct sssp_wrong {
  std::uint64_t arcs = 0;         ///< whose end is farther than the arc's start and its weight together
  std::uint64_t vertices = 0;     ///< whose distance does not follow from that of their predecessor by an arc
  std::uint64_t not_of_tree = 0;  ///< whose predecessors do not lead to the source
  list_errors errors;

  bool any() const { return arcs != 0 || vertices != 0 || not_of_tree != 0 || errors.any(); }
};

/// Counts the arcs that are shorter than the distances say, and marks the vertices that have an arc from their
/// predecessor which explains their distance. Warps of 32 lanes.
template <class M, class Arcs>
struct sssp_check_arcs {
  edge_sweep<Arcs> sweep;
  std::uint64_t const* distances;
  std::uint32_t const* predecessors;
  std::uint32_t* explained;  ///< a bit of each vertex
  sssp_wrong* wrong;

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
  FOREBAY_DEVICE bool is_wrong(std::uint32_t from, weighted_neighbour arc) const {
    if (!wrong->errors.vertices.template passes<M>(arc.vertex, sweep.shape.vertices)) return false;
    std::uint64_t const start = distances[from], there = distances[arc.vertex];
    if (start == sssp_unreached) return false;
    // Unreached is farther than any distance, so an unreached neighbour of a reached vertex is wrong too. A false
    // distance may be so large that the sum does not fit.
    if (there < start || there - start < arc.weight) return false;
    if (there - start > arc.weight) return true;
    if (predecessors[arc.vertex] == from) {
      // relaxed: only the next launch reads the marks.
      simt::atomic<M>(explained[arc.vertex / 32]).fetch_or(1u << arc.vertex % 32, simt::order::relaxed);
    }
    return false;
  }
};

/// Counts the vertices whose distance nothing explains, and starts the way to the root at their predecessors.
template <class M>
struct sssp_check_vertices {
  std::uint32_t vertices;
  std::uint32_t source;
  std::uint64_t const* distances;
  std::uint32_t const* predecessors;
  std::uint32_t const* explained;
  std::uint32_t* ancestors;
  sssp_wrong* wrong;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      std::uint32_t const predecessor = predecessors[v];
      bool const is_alone = predecessor == no_predecessor;
      bool const is_explained = (explained[v / 32] >> v % 32 & 1) != 0;
      bool const right = v == source                      ? distances[v] == 0 && is_alone
                         : distances[v] == sssp_unreached ? is_alone
                                                          : is_explained;
      // relaxed: the host reads it after the grid.
      if (!right) simt::atomic<M>(wrong->vertices).fetch_add(1, simt::order::relaxed);
      ancestors[v] = predecessor < vertices ? predecessor : static_cast<std::uint32_t>(v);
    }
  }
};

/// Doubles how far the ancestor of each vertex is from it.
template <class M>
struct sssp_check_ancestors {
  std::uint32_t vertices;
  std::uint32_t* ancestors;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      // relaxed, all three: others move their ancestors meanwhile. Either ancestor of an ancestor is one.
      auto const mine = simt::atomic<M>(ancestors[v]);
      std::uint32_t const ancestor = mine.load(simt::order::relaxed);
      mine.store(simt::atomic<M>(ancestors[ancestor]).load(simt::order::relaxed), simt::order::relaxed);
    }
  }
};

/// Counts the reached vertices that do not descend from the source.
template <class M>
struct sssp_check_tree {
  std::uint32_t vertices;
  std::uint32_t source;
  std::uint64_t const* distances;
  std::uint32_t const* ancestors;
  sssp_wrong* wrong;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      if (distances[v] == sssp_unreached || ancestors[v] == source) continue;
      // relaxed: the host reads it after the grid.
      simt::atomic<M>(wrong->not_of_tree).fetch_add(1, simt::order::relaxed);
    }
  }
};

/// Whether the distances and the predecessors are those of shortest paths from `source`. It reads the lists once. It
/// needs 4 bytes of memory for each vertex meanwhile.
///
/// The distances are then right: no arc makes any vertex nearer, so none is too far away; and each vertex has a path
/// from the source that is as long as its distance says.
template <class Executor, class Arcs>
sssp_wrong check_sssp(Executor const& run, edge_sweep<Arcs> const& sweep, std::uint32_t source,
                      std::uint64_t const* distances, std::uint32_t const* predecessors,
                      std::uint32_t warps_max = ~0u) {
  using M = typename Executor::machine;
  std::uint32_t const vertices = sweep.shape.vertices;
  apps::device_array<std::uint32_t> const explained(run.memory(), vertices / 32 + 1), ancestors(run.memory(), vertices);
  apps::device_array<sssp_wrong> wrong(run.memory(), std::vector<sssp_wrong>(1));
  simt::grid const all = grid_of_warps(run, run.warps(), ~0u);
  run(grid_of_warps(run, sweep.shares(), warps_max),
      sssp_check_arcs<M, Arcs>{sweep, distances, predecessors, explained.data(), wrong.data()});
  run(all, sssp_check_vertices<M>{vertices, source, distances, predecessors, explained.data(), ancestors.data(),
                                  wrong.data()});
  for (std::uint32_t distance = 1; distance != 0 && distance < vertices; distance *= 2) {
    run(all, sssp_check_ancestors<M>{vertices, ancestors.data()});
  }
  run(all, sssp_check_tree<M>{vertices, source, distances, ancestors.data(), wrong.data()});
  run.synchronize();
  return wrong.to_host()[0];
}

}  // namespace forebay::graph
