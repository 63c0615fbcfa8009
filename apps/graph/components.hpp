// SPDX-License-Identifier: Apache-2.0
//! \file
//! Connected components over neighbours behind a view; everything else in plain memory. Arcs join both their ends, so
//! those of a directed graph are its weakly connected components.
//!
//! Each vertex has a parent whose number is not greater than its own. A vertex that is its own parent is the root of a
//! tree. All lists are read once, in the order in which they lie, so each page is read once. Each arc joins the trees
//! of its ends: the greater root gets the smaller one as its parent. Afforest (Sutton, Ben-Nun and Barak, IPDPS 2018)
//! instead looks at a few neighbours of each vertex first, and then leaves out the vertices of the largest tree. Where
//! lists are shorter than pages that saves no page.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/edge_sweep.hpp"
#include "apps/graph/list_errors.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

/// Trees of vertices that threads join.
///
/// All accesses are relaxed. A parent other than the vertex itself never becomes the vertex itself again, and every
/// value that a parent ever has is an ancestor. So an old value only makes the way to the root longer. Whether a vertex
/// is still a root is decided by the compare-and-exchange that ends its being one.
template <class M>
struct component_trees {
  std::uint32_t* parents;

  FOREBAY_DEVICE std::uint32_t parent(std::uint32_t vertex) const {
    return simt::atomic<M>(parents[vertex]).load(simt::order::relaxed);  // as above
  }
  /// The root of a vertex's tree, or an ancestor that has just been one. Halves the way for those that come later.
  FOREBAY_DEVICE std::uint32_t root(std::uint32_t vertex) const {
    std::uint32_t above = parent(vertex);
    while (above != vertex) {
      std::uint32_t const next = parent(above);
      if (next == above) return above;
      simt::atomic<M>(parents[vertex]).store(next, simt::order::relaxed);  // as above
      vertex = above;
      above = next;
    }
    return vertex;
  }
  FOREBAY_DEVICE void join(std::uint32_t a, std::uint32_t b) const {
    for (;;) {
      a = root(a);
      b = root(b);
      if (a == b) return;
      std::uint32_t const smaller = a < b ? a : b;
      std::uint32_t const greater = a < b ? b : a;
      std::uint32_t expected = greater;
      // relaxed, as above. If it fails, the greater one has got a parent, which is smaller.
      if (simt::atomic<M>(parents[greater]).compare_exchange(expected, smaller, simt::order::relaxed)) return;
      a = smaller;
      b = expected;
    }
  }
};

/// Makes each vertex a tree.
template <class M>
struct components_begin {
  std::uint32_t vertices;
  std::uint32_t* parents;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      parents[v] = static_cast<std::uint32_t>(v);
    }
  }
};

/// Joins the ends of all arcs. Warps of 32 lanes.
template <class M, class Neighbours>
struct components_join {
  edge_sweep<Neighbours> sweep;
  component_trees<M> trees;
  list_errors* errors;

  FOREBAY_DEVICE void operator()() const {
    sweep.template visit_all<M>(errors->failure, [&](auto const& batch, std::uint32_t first_vertex) {
      std::uint32_t mine[batch.size];
      std::uint32_t other[batch.size];
      bool joined[batch.size];
      // Most arcs have ends with one parent, once the trees have grown. All lanes look at once.
      FOREBAY_UNROLL
      for (std::uint32_t k = 0; k < batch.size; ++k) {
        joined[k] = batch.here[k] && errors->vertices.template passes<M>(batch.neighbour[k], sweep.shape.vertices);
        mine[k] = joined[k] ? trees.parent(first_vertex + batch.whose[k]) : 0;
        other[k] = joined[k] ? trees.parent(batch.neighbour[k]) : 0;
      }
      for (std::uint32_t k = 0; k < batch.size; ++k) {
        if (joined[k] && mine[k] != other[k]) trees.join(mine[k], other[k]);
      }
    });
  }
};

/// Gives each vertex its root as its label, and counts the roots. Warps of 32 lanes.
template <class M>
struct components_end {
  std::uint32_t vertices;
  component_trees<M> trees;
  std::uint64_t* roots;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t mine = 0;
    for (std::uint64_t i = M::thread_rank(); i < vertices; i += M::thread_count()) {
      auto const v = static_cast<std::uint32_t>(i);
      std::uint32_t root = v;
      // It does not halve the way: a lane that stored an ancestor late would take a label away again.
      for (std::uint32_t above = trees.parent(root); above != root; above = trees.parent(root)) root = above;
      mine += root == v ? 1 : 0;
      // relaxed: others go through it meanwhile. No root changes any more, so every way ends at the same one.
      simt::atomic<M>(trees.parents[v]).store(root, simt::order::relaxed);
    }
    auto const team = simt::team<M>::here();
    mine = team.sum(mine);
    // relaxed: the host reads it after the grid.
    if (team.leader() && mine != 0) simt::atomic<M>(*roots).fetch_add(mine, simt::order::relaxed);
  }
};

/// Finds components any number of times. Uses 4 bytes of memory for each vertex.
template <class Executor, class Neighbours>
class components {
  using M = typename Executor::machine;

 public:
  /// `sweep`: the graph and how it is read. `warps_max`: no more warps than these use the view.
  components(Executor const& run, edge_sweep<Neighbours> const& sweep, std::uint32_t warps_max = ~0u)
      : run_(run),
        sweep_(sweep),
        warps_max_(warps_max),
        labels_(run.memory(), sweep.shape.vertices),
        found_(run.memory(), 1) {}

  /// The number of components; not valid if there are `errors()`.
  std::uint64_t operator()() {
    found_.assign(std::vector<found>(1));
    std::uint32_t const vertices = sweep_.shape.vertices;
    component_trees<M> const trees{labels_.data()};
    simt::grid const all = grid_of_warps(run_, run_.warps(), ~0u);
    run_(all, components_begin<M>{vertices, labels_.data()});
    run_(grid_of_warps(run_, sweep_.shares(), warps_max_),
         components_join<M, Neighbours>{sweep_, trees, &found_.data()->errors});
    run_(all, components_end<M>{vertices, trees, &found_.data()->roots});
    run_.synchronize();
    found const result = found_.to_host()[0];
    errors_ = result.errors;
    return result.roots;
  }

  /// Of each vertex the smallest vertex of its component.
  std::uint32_t const* labels() const { return labels_.data(); }
  std::vector<std::uint32_t> labels_to_host() const { return labels_.to_host(); }
  /// Of the last time.
  list_errors const& errors() const { return errors_; }

 private:
  struct found {
    std::uint64_t roots = 0;
    list_errors errors;
  };

  Executor const& run_;
  edge_sweep<Neighbours> sweep_;
  std::uint32_t warps_max_;
  apps::device_array<std::uint32_t> labels_;
  apps::device_array<found> found_;
  list_errors errors_;
};

}  // namespace forebay::graph
