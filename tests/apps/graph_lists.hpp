// SPDX-License-Identifier: Apache-2.0
//! \file
//! Small graphs of many shapes for the tests of the algorithms: with vertices alone, hubs, loops and arcs that stand
//! there twice.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "apps/common/executor.hpp"
#include "apps/graph/neighbour_runs.hpp"
#include "apps/paged_view.hpp"
#include "forebay/detail/simt/run.hpp"

namespace forebay::testing {

/// Few warps, since most of the time of a test is that of launches.
struct small_executor : apps::executor<simt::fiber> {
  std::uint32_t warps() const { return 4; }
};

/// Two warps, whose lanes take turns as a schedule says: at every atomic access.
class scheduled_executor {
 public:
  using machine = simt::fiber;

  scheduled_executor(simt::memory_model model, simt::scheduler& schedule) : model_(model), schedule_(schedule) {}
  memory::resource& memory() const { return memory::host(); }
  static std::uint32_t warps() { return 2; }
  template <class Kernel>
  void operator()(simt::grid const& shape, Kernel const& kernel) const {
    auto const outcome = simt::run({.memory = model_, .record = false}, schedule_, shape, [&] { kernel(); });
    EXPECT_TRUE(outcome.ok) << outcome.what;
  }
  void synchronize() const {}

 private:
  simt::memory_model model_;
  simt::scheduler& schedule_;
};

using arc_list = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

/// Sorted neighbour lists.
struct graph_lists {
  std::vector<std::uint64_t> row_begin;
  paged_array<std::uint32_t> neighbours;

  graph_lists(std::uint32_t vertices, arc_list arcs, std::uint64_t page_elements) {
    neighbours.page_elements = page_elements;
    std::sort(arcs.begin(), arcs.end());
    row_begin.assign(vertices + 1, 0);
    for (auto const& [from, to] : arcs) {
      ++row_begin[from + 1];
      neighbours.elements.push_back(to);
    }
    for (std::uint32_t v = 0; v < vertices; ++v) row_begin[v + 1] += row_begin[v];
  }

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
  graph::graph_shape shape() const { return {vertices(), neighbours.elements.size(), row_begin.data()}; }
  std::uint32_t page_elements() const { return static_cast<std::uint32_t>(neighbours.page_elements); }
  template <class Visit>
  void each_arc(Visit&& visit) const {
    for (std::uint32_t v = 0; v < vertices(); ++v) {
      for (std::uint64_t i = row_begin[v]; i < row_begin[v + 1]; ++i) visit(v, neighbours.elements[i], i);
    }
  }
};

struct graph_case {
  char const* name;
  std::uint32_t vertices;
  arc_list arcs;
};

/// Arcs of a directed graph.
inline graph_case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  graph_case made{"random", 1 + static_cast<std::uint32_t>(random() % 400), {}};
  auto const below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::uint32_t const n = made.vertices, hub = n / 2, each = 1 + below(4);
  for (std::uint32_t i = 0; i < n / 3; ++i) made.arcs.emplace_back(hub, below(n));
  for (std::uint32_t i = 0; i < n / 4; ++i) made.arcs.emplace_back(below(n), hub);
  // The last quarter stays apart.
  for (std::uint32_t i = 0; i < n * each; ++i) made.arcs.emplace_back(below(1 + n * 3 / 4), below(1 + n * 3 / 4));
  for (std::uint32_t i = 0; i < n / 8; ++i)
    made.arcs.push_back(made.arcs[below(static_cast<std::uint32_t>(made.arcs.size()))]);
  return made;
}

inline std::vector<graph_case> plain_cases() {
  arc_list path, star, inwards, complete, cycle;
  for (std::uint32_t v = 0; v + 1 < 40; ++v) path.insert(path.end(), {{v, v + 1}, {v + 1, v}});
  for (std::uint32_t v = 0; v < 300; ++v) star.emplace_back(200, v);
  for (std::uint32_t v = 0; v < 300; ++v) inwards.emplace_back(v, 200);
  for (std::uint32_t v = 0; v < 40; ++v) {
    for (std::uint32_t w = 0; w < 40; ++w) {
      if (v != w) complete.emplace_back(v, w);
    }
  }
  for (std::uint32_t v = 0; v < 50; ++v) cycle.emplace_back(v, (v + 7) % 50);
  return {{"a vertex", 1, {}},
          {"a vertex with a loop", 1, {{0, 0}, {0, 0}}},
          {"vertices alone", 70, {{3, 65}, {65, 3}, {3, 65}, {9, 9}}},
          {"path", 40, path},
          {"star", 300, star},
          {"star, inwards", 300, inwards},
          {"complete", 40, complete},
          {"cycle", 50, cycle}};
}

/// Each arc in both directions.
inline arc_list both_ways(arc_list arcs) {
  std::size_t const count = arcs.size();
  for (std::size_t i = 0; i < count; ++i) arcs.emplace_back(arcs[i].second, arcs[i].first);
  return arcs;
}

}  // namespace forebay::testing
