// SPDX-License-Identifier: Apache-2.0
//! \file
//! PageRank as the GAP benchmark suite defines it, over the incoming neighbours of each vertex behind a view;
//! everything else in plain memory.
//!
//! A vertex's score is (1 - damping) / vertices, and `damping` of what its incoming neighbours give it. A vertex gives
//! an equal part of its score to each of its outgoing neighbours. Each iteration computes all scores from those of the
//! iteration before: a product of a matrix without values and a vector (`spmv`).
#pragma once

#include <cstdint>
#include <vector>

#include "apps/common/constant_view.hpp"
#include "apps/common/device_array.hpp"
#include "apps/graph/bounded_vertices.hpp"
#include "apps/graph/list_errors.hpp"
#include "apps/graph/neighbour_runs.hpp"
#include "apps/graph/spmv.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

/// Where the score of a vertex without outgoing neighbours goes.
enum class pagerank_dangling : std::uint8_t {
  lost,    ///< nowhere, as in GAP: the sum of the scores is less than 1
  shared,  ///< to all vertices in equal parts, as in Graphalytics: the sum of the scores is 1
};

struct pagerank_options {
  float damping = 0.85f;
  /// It stops when the scores have changed by less than this, all together.
  double tolerance = 1e-4;
  std::uint32_t iterations_max = 20;
  pagerank_dangling dangling = pagerank_dangling::lost;
};

struct pagerank_outcome {
  bool valid = false;  ///< no error; otherwise the scores are not valid
  std::uint32_t iterations = 0;
  double change = 0;  ///< of all scores in the last iteration: the sum of the absolute values
};

/// Sums over some of the vertices. They do not depend on the number of warps, nor on the order in which these run.
struct pagerank_sums {
  double change = 0;
  double dangling = 0;  ///< scores of vertices without outgoing neighbours

  FOREBAY_DEVICE pagerank_sums& operator+=(pagerank_sums const& other) {
    change += other.change;
    dangling += other.dangling;
    return *this;
  }
  /// Over the lanes of a full warp. A collective.
  template <class Warp>
  FOREBAY_DEVICE static pagerank_sums over(Warp const& warp, pagerank_sums sums) {
    for (std::uint32_t d = 16; d != 0; d /= 2) sums += warp.shfl(sums, warp.thread_rank() ^ d);
    return sums;
  }
};
/// Vertices of which there is one sum.
inline constexpr std::uint32_t pagerank_tile = 4096;

/// Out-degrees of a graph.
struct pagerank_degrees {
  std::uint64_t const* row_begin;
  std::uint32_t const* outgoing;  ///< null: of an undirected graph, as many as incoming ones

  FOREBAY_DEVICE std::uint64_t of(std::uint32_t vertex) const {
    return outgoing != nullptr ? outgoing[vertex] : row_begin[vertex + 1] - row_begin[vertex];
  }
};

/// Sets the scores, and what each vertex gives to each of its neighbours in the next iteration. Warps of 32 lanes.
template <class M>
struct pagerank_step {
  std::uint32_t vertices;
  pagerank_degrees degrees;
  float base;  ///< what each vertex has without any neighbour
  float damping;
  float const* received;  ///< null: scores are `base`, whatever they were
  float* scores;
  float* given;
  pagerank_sums* sums;  ///< of each tile

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const tiles = (vertices - 1) / pagerank_tile + 1;
    for (std::uint32_t tile = M::thread_rank() / 32; tile < tiles; tile += M::thread_count() / 32) {
      std::uint64_t const first = std::uint64_t{tile} * pagerank_tile;
      std::uint64_t const last = vertices - first < pagerank_tile ? vertices : first + pagerank_tile;
      pagerank_sums mine;
      for (std::uint64_t i = first + warp.thread_rank(); i < last; i += 32) {
        mine += set(static_cast<std::uint32_t>(i));
      }
      mine = pagerank_sums::over(warp, mine);
      if (warp.thread_rank() == 0) sums[tile] = mine;
    }
  }

 private:
  FOREBAY_DEVICE pagerank_sums set(std::uint32_t v) const {
    std::uint64_t const degree = degrees.of(v);
    float const score = received != nullptr ? base + damping * received[v] : base;
    double const change = static_cast<double>(score) - static_cast<double>(scores[v]);
    scores[v] = score;
    given[v] = degree != 0 ? score / static_cast<float>(degree) : 0.0f;
    return {change < 0 ? -change : change, degree == 0 ? static_cast<double>(score) : 0.0};
  }
};

/// What the host looks at after an iteration.
struct pagerank_seen {
  pagerank_sums sums;
  list_errors errors;
};

/// Adds up the sums of all tiles, and brings all that the host looks at together. One warp of 32 lanes.
template <class M>
struct pagerank_add {
  std::uint32_t tiles;
  pagerank_sums const* sums;
  pagerank_seen* seen;
  apps::failure_latch const* failure = nullptr;  ///< null: none
  range_latch const* vertices = nullptr;         ///< likewise

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    pagerank_sums mine;
    for (std::uint32_t tile = warp.thread_rank(); tile < tiles; tile += 32) mine += sums[tile];
    mine = pagerank_sums::over(warp, mine);
    if (warp.thread_rank() != 0) return;
    seen->sums = mine;
    if (failure != nullptr) seen->errors.failure = *failure;
    if (vertices != nullptr) seen->errors.vertices = *vertices;
  }
};

/// Ranks any number of times. Uses 12 bytes of memory for each vertex.
template <class Executor, class Neighbours>
class pagerank {
  using M = typename Executor::machine;
  using product = spmv<Executor, bounded_vertices<M, Neighbours>, apps::constant_view<float>, 512, 1, 0, true>;

 public:
  /// `shape` and `neighbours`: the incoming lists. `outgoing`: how many outgoing neighbours each vertex has, in the
  /// memory of the machine; null for an undirected graph. The others: see `spmv`.
  pagerank(Executor const& run, graph_shape const& shape, Neighbours neighbours,
           std::uint32_t const* outgoing = nullptr, std::uint64_t entries_per_warp = 4096,
           spmv_paging const& paging = {})
      : run_(run),
        shape_(shape),
        degrees_{shape.row_begin, outgoing},
        latch_(run.memory(), 1),
        received_(run.memory(), shape.vertices),
        given_(run.memory(), shape.vertices),
        scores_(run.memory(), shape.vertices),
        sums_(run.memory(), tiles()),
        seen_(run.memory(), 1),
        product_(run, {shape.vertices, shape.entries, shape.row_begin}, {neighbours, shape.vertices, latch_.data()},
                 {1.0f, shape.entries}, entries_per_warp, paging) {}

  pagerank_outcome operator()(pagerank_options const& options = {}) {
    latch_.assign(std::vector<range_latch>(1));
    std::uint32_t const failures_before = product_.failures().failures;
    auto const share = 1.0 / static_cast<double>(shape_.vertices);
    auto const damping = static_cast<double>(options.damping);
    double dangling = step(static_cast<float>(share), 0, nullptr).sums.dangling;
    pagerank_outcome outcome;
    while (outcome.iterations < options.iterations_max) {
      product_(given_.data(), received_.data());
      double const from_dangling = options.dangling == pagerank_dangling::shared ? damping * dangling : 0;
      pagerank_seen const seen =
          step(static_cast<float>((1 - damping + from_dangling) * share), options.damping, received_.data());
      errors_ = seen.errors;
      errors_.failure.failures -= failures_before;
      if (errors_.any()) return outcome;
      ++outcome.iterations;
      outcome.change = seen.sums.change;
      dangling = seen.sums.dangling;
      if (seen.sums.change < options.tolerance) break;
    }
    outcome.valid = true;
    return outcome;
  }

  float const* scores() const { return scores_.data(); }
  std::vector<float> scores_to_host() const { return scores_.to_host(); }
  /// Of the last time.
  list_errors const& errors() const { return errors_; }

 private:
  std::uint32_t tiles() const { return (shape_.vertices - 1) / pagerank_tile + 1; }
  pagerank_seen step(float base, float damping, float const* received) {
    run_(grid_of_warps(run_, tiles(), ~0u), pagerank_step<M>{shape_.vertices, degrees_, base, damping, received,
                                                             scores_.data(), given_.data(), sums_.data()});
    run_({.blocks = 1, .threads_per_block = 32},
         pagerank_add<M>{tiles(), sums_.data(), seen_.data(), product_.failure(), latch_.data()});
    run_.synchronize();
    return seen_.to_host()[0];
  }

  Executor const& run_;
  graph_shape shape_;
  pagerank_degrees degrees_;
  apps::device_array<range_latch> latch_;
  apps::device_array<float> received_, given_, scores_;
  apps::device_array<pagerank_sums> sums_;
  apps::device_array<pagerank_seen> seen_;
  product product_;
  list_errors errors_;
};

/// Computes each score once more, in double precision, from the scores that there are. Warps of 32 lanes, one for each
/// vertex.
template <class M, class Neighbours>
struct pagerank_check_rows {
  graph_shape shape;
  Neighbours neighbours;
  pagerank_degrees degrees;
  double base;
  double damping;
  float const* scores;
  pagerank_sums* sums;  ///< of each warp: how much its scores differ
  list_errors* errors;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    pagerank_sums mine;
    for (std::uint64_t v = M::thread_rank() / 32; v < shape.vertices; v += M::thread_count() / 32) {
      double received = 0;
      {
        auto page = neighbours.warp_page();
        std::uint64_t const end = shape.row_begin[v + 1];
        for (std::uint64_t at = shape.row_begin[v]; at < end;) {
          if (!errors->failure.template passes<M>(page.seek(at, end))) return;
          std::uint64_t const stop = page.end() < end ? page.end() : end;
          for (std::uint64_t i = at + warp.thread_rank(); i < stop; i += 32) {
            std::uint32_t const from = page[i];
            if (!errors->vertices.template passes<M>(from, shape.vertices)) continue;
            received += static_cast<double>(scores[from]) / static_cast<double>(degrees.of(from));
          }
          warp.sync();  // before a lane lets go of the page
          at = stop;
        }
      }
      for (std::uint32_t d = 16; d != 0; d /= 2) received += warp.shfl(received, warp.thread_rank() ^ d);
      double const off = static_cast<double>(scores[v]) - (base + damping * received);
      mine.change += off < 0 ? -off : off;
    }
    if (warp.thread_rank() == 0) sums[M::thread_rank() / 32] = mine;
  }
};

/// Sums up the scores of vertices without outgoing neighbours. Warps of 32 lanes.
template <class M>
struct pagerank_check_dangling {
  std::uint32_t vertices;
  pagerank_degrees degrees;
  float const* scores;
  pagerank_sums* sums;  ///< of each warp

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    pagerank_sums mine;
    for (std::uint64_t v = M::thread_rank(); v < vertices; v += M::thread_count()) {
      if (degrees.of(static_cast<std::uint32_t>(v)) == 0) mine.dangling += static_cast<double>(scores[v]);
    }
    mine = pagerank_sums::over(warp, mine);
    if (warp.thread_rank() == 0) sums[M::thread_rank() / 32] = mine;
  }
};

struct pagerank_residual {
  double sum = 0;  ///< of the absolute values; not a number if a score is none
  list_errors errors;
};

/// By how much scores differ from what one more iteration would make of them. It is about `damping` times the last
/// change, or less.
template <class Executor, class Neighbours>
pagerank_residual check_pagerank(Executor const& run, graph_shape const& shape, Neighbours neighbours,
                                 std::uint32_t const* outgoing, float const* scores,
                                 pagerank_options const& options = {}, std::uint32_t warps_max = ~0u) {
  using M = typename Executor::machine;
  pagerank_degrees const degrees{shape.row_begin, outgoing};
  simt::grid const grid = grid_of_warps(run, shape.vertices, warps_max);
  std::uint32_t const warps = grid.blocks * grid.threads_per_block / 32;
  apps::device_array<pagerank_sums> const sums(run.memory(), warps);
  apps::device_array<list_errors> const errors(run.memory(), std::vector<list_errors>(1));
  apps::device_array<pagerank_seen> const seen(run.memory(), 1);
  auto const total = [&] {
    run({.blocks = 1, .threads_per_block = 32}, pagerank_add<M>{warps, sums.data(), seen.data()});
    run.synchronize();
    return seen.to_host()[0].sums;
  };
  double dangling = 0;
  if (options.dangling == pagerank_dangling::shared) {
    run(grid, pagerank_check_dangling<M>{shape.vertices, degrees, scores, sums.data()});
    dangling = total().dangling;
  }
  auto const damping = static_cast<double>(options.damping);
  double const base = (1 - damping + damping * dangling) / static_cast<double>(shape.vertices);
  run(grid, pagerank_check_rows<M, Neighbours>{shape, neighbours, degrees, base, damping, scores, sums.data(),
                                               errors.data()});
  double const sum = total().change;
  return {sum, errors.to_host()[0]};
}

}  // namespace forebay::graph
