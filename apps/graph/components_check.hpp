// SPDX-License-Identifier: Apache-2.0
//! \file
//! Checks the labels of connected components where they were computed, for graphs that are too large for a reference on
//! the host.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/edge_sweep.hpp"
#include "apps/graph/list_errors.hpp"

namespace forebay::graph {

/// What cannot be right.
struct components_wrong {
  std::uint64_t arcs = 0;    ///< whose ends have different labels
  std::uint64_t labels = 0;  ///< that are no vertex, greater than their vertex, or not their own label
  std::uint64_t apart = 0;   ///< vertices that no path joins to the vertex that their label names
  list_errors errors;

  bool any() const { return arcs != 0 || labels != 0 || apart != 0 || errors.any(); }
};

/// Marks the vertices that are their own label, and counts labels that are wrong.
template <class M>
struct components_check_labels {
  std::uint32_t vertices;
  std::uint32_t const* labels;
  std::uint32_t* marked;  ///< of each vertex: 0 or 1
  components_wrong* wrong;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      marked[v] = labels[v] == v ? 1 : 0;
      // relaxed: the host reads it after the grid.
      if (labels[v] > v || labels[labels[v]] != labels[v]) {
        simt::atomic<M>(wrong->labels).fetch_add(1, simt::order::relaxed);
      }
    }
  }
};

/// Counts the arcs whose ends have different labels, and marks the ends of arcs with a marked end. Warps of 32 lanes.
template <class M, class Neighbours>
struct components_check_arcs {
  edge_sweep<Neighbours> sweep;
  std::uint32_t const* labels;
  std::uint32_t* marked;
  std::uint64_t* marks;  ///< how many vertices were marked
  components_wrong* wrong;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t arcs = 0, more = 0;
    bool const all =
        sweep.template visit_all<M>(wrong->errors.failure, [&](auto const& batch, std::uint32_t first_vertex) {
          for (std::uint32_t k = 0; k < batch.size; ++k) {
            if (!batch.here[k]) continue;
            std::uint32_t const a = first_vertex + batch.whose[k], b = batch.neighbour[k];
            if (!wrong->errors.vertices.template passes<M>(b, sweep.shape.vertices)) continue;
            arcs += labels[a] != labels[b] ? 1 : 0;
            // relaxed: marks are only ever set. A mark that is seen late is seen the next time.
            auto const of_a = simt::atomic<M>(marked[a]), of_b = simt::atomic<M>(marked[b]);
            std::uint32_t const at_a = of_a.load(simt::order::relaxed), at_b = of_b.load(simt::order::relaxed);
            if (at_a == at_b) continue;
            // relaxed: as above.
            more += (at_a == 0 ? of_a : of_b).exchange(1, simt::order::relaxed) == 0 ? 1 : 0;
          }
        });
    if (!all) return;
    auto const team = simt::team<M>::here();
    arcs = team.sum(arcs);
    more = team.sum(more);
    if (!team.leader()) return;
    // relaxed, both: the host reads them after the grid.
    if (arcs != 0) simt::atomic<M>(wrong->arcs).fetch_add(arcs, simt::order::relaxed);
    if (more != 0) simt::atomic<M>(*marks).fetch_add(more, simt::order::relaxed);
  }
};

/// Counts the vertices that are not marked.
template <class M>
struct components_check_marks {
  std::uint32_t vertices;
  std::uint32_t const* marked;
  components_wrong* wrong;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      // relaxed: the host reads it after the grid.
      if (marked[v] == 0) simt::atomic<M>(wrong->apart).fetch_add(1, simt::order::relaxed);
    }
  }
};

/// Whether each label is the smallest vertex of its vertex's component.
///
/// If the ends of all arcs have equal labels, the vertices of one label are whole components. If each label is its own
/// label, one vertex of them is marked at first. Marks then spread along arcs until they spread no more. If all
/// vertices get one, no label has two components. It reads the lists once more than the longest way of a mark needs,
/// and at worst as often as a component has vertices. It needs 4 bytes of memory for each vertex meanwhile.
template <class Executor, class Neighbours>
components_wrong check_components(Executor const& run, edge_sweep<Neighbours> const& sweep, std::uint32_t const* labels,
                                  std::uint32_t warps_max = ~0u) {
  using M = typename Executor::machine;
  std::uint32_t const vertices = sweep.shape.vertices;
  apps::device_array<std::uint32_t> const marked(run.memory(), vertices);
  apps::device_array<std::uint64_t> marks(run.memory(), 1);
  apps::device_array<components_wrong> wrong(run.memory(), std::vector<components_wrong>(1));
  simt::grid const all = grid_of_warps(run, run.warps(), ~0u);
  run(all, components_check_labels<M>{vertices, labels, marked.data(), wrong.data()});
  components_wrong result;
  std::uint64_t arcs = 0;
  for (bool first = true, more = true; more; first = false) {
    marks.assign(std::vector<std::uint64_t>(1));
    run(grid_of_warps(run, sweep.shares(), warps_max),
        components_check_arcs<M, Neighbours>{sweep, labels, marked.data(), marks.data(), wrong.data()});
    run.synchronize();
    result = wrong.to_host()[0];
    if (first) arcs = result.arcs;
    more = marks.to_host()[0] != 0 && !result.errors.any();
  }
  run(all, components_check_marks<M>{vertices, marked.data(), wrong.data()});
  run.synchronize();
  result = wrong.to_host()[0];
  result.arcs = arcs;  // counted anew each time that the lists were read
  return result;
}

}  // namespace forebay::graph
