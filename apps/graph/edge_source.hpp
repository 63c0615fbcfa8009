// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the edges of a generated graph come from: our generators, whose edges are pure functions of a seed, and those
//! of the GAP Benchmark Suite, whose edges come in blocks of 2^18, each with random numbers of its own.
#pragma once

#include <cstdint>
#include <type_traits>

#include "apps/common/random.hpp"
#include "apps/graph/mersenne_twister.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

enum class graph_kind : std::uint8_t {
  kronecker,  ///< Graph500's, with GAP's parameters: A = 0.57, B = C = 0.19, D = 0.05
  uniform,    ///< both ends of an edge uniform (Erdos and Renyi)
  /// GAP 1.5's `-g`, before it permutes the vertices. GAP permutes by `std::shuffle`, which each C++ library does in
  /// its own way. The permutation here is ours, so the graph is isomorphic to GAP's.
  gap_kronecker,
  gap_uniform,  ///< GAP 1.5's `-u`, edge by edge
};

FOREBAY_DEVICE constexpr bool is_gap(graph_kind kind) {
  return kind == graph_kind::gap_kronecker || kind == graph_kind::gap_uniform;
}

inline constexpr std::uint64_t gap_seed = 27491095;
inline constexpr std::uint32_t build_warps_per_block = 4;  ///< of every kernel that builds a graph

/// As it is drawn: loops and duplicates occur.
struct drawn_edge {
  std::uint64_t source;
  std::uint64_t target;
  std::uint32_t weight;  ///< 1 to 255, or 0 if the graph has none
};

/// A bijection on [0, 2^scale), so that the degree of a vertex does not follow from its number.
struct vertex_names {
  std::uint32_t scale;
  std::uint64_t seed;

  FOREBAY_DEVICE std::uint64_t operator()(std::uint64_t vertex) const {
    std::uint64_t const mask = (std::uint64_t{1} << scale) - 1;
    std::uint32_t const half = (scale + 1) / 2;
    for (std::uint64_t round = 0; round < 3; ++round) {
      // An odd factor, an addition, and a shift to the right that is mixed in: each can be undone modulo 2^scale.
      vertex = (vertex * (apps::mix64(seed ^ round) | 1) + apps::mix64(seed + round)) & mask;
      vertex ^= vertex >> half;
    }
    return vertex;
  }
};

/// Edge `i` of a graph, the names of its vertices and its weight: pure functions of the seed. Ours only.
struct edge_source {
  graph_kind kind = graph_kind::kronecker;
  std::uint32_t scale = 0;
  std::uint64_t seed = 1;

  FOREBAY_DEVICE std::uint64_t permute(std::uint64_t vertex) const { return vertex_names{scale, seed}(vertex); }

  FOREBAY_DEVICE std::uint64_t key(std::uint64_t source, std::uint64_t target) const {
    return source << scale | target;
  }

  FOREBAY_DEVICE std::uint64_t edge(std::uint64_t i) const {
    apps::splitmix64 draws(seed, i);
    std::uint64_t const mask = (std::uint64_t{1} << scale) - 1;
    if (kind == graph_kind::uniform) {
      std::uint64_t const both = draws.next();
      return key(both & mask, both >> 32 & mask);
    }
    constexpr auto share = [](double of_one) { return static_cast<std::uint32_t>(of_one * 4294967296.0); };
    constexpr std::uint32_t a = share(0.57), ab = share(0.76), abc = share(0.95);
    std::uint64_t source = 0, target = 0, two = 0;
    for (std::uint32_t level = 0; level < scale; ++level) {
      two = level % 2 == 0 ? draws.next() : two >> 32;
      auto const draw = static_cast<std::uint32_t>(two);
      source = source << 1 | (draw >= ab ? 1 : 0);
      target = target << 1 | ((draw >= a && draw < ab) || draw >= abc ? 1 : 0);
    }
    return key(permute(source), permute(target));
  }

  /// 1 to 255, each as likely, and independent of the edge.
  FOREBAY_DEVICE std::uint32_t weight(std::uint64_t i) const {
    return 1 + static_cast<std::uint32_t>(apps::splitmix64(apps::mix64(~seed), i).below(255));
  }
};

/// All edges of one of our generators. A kernel of whole warps calls it in each of its lanes. It calls
/// `use(there, edge)`, in all lanes of a warp together; `there` says whether the lane has an edge.
template <class M, bool Weighted>
struct own_edges {
  static constexpr std::uint32_t shared_bytes = 0;

  edge_source source;
  std::uint64_t count;

  template <class Use>
  FOREBAY_DEVICE void operator()(Use&& use) const {
    std::uint64_t const mask = (std::uint64_t{1} << source.scale) - 1;
    std::uint32_t const lane = M::thread_rank() % 32;
    for (std::uint64_t at = M::thread_rank() - lane; at < count; at += M::thread_count()) {
      bool const there = at + lane < count;
      drawn_edge edge{};
      if (there) {
        std::uint64_t const key = source.edge(at + lane);
        edge = {key >> source.scale, key & mask, 0};
        if constexpr (Weighted) edge.weight = source.weight(at + lane);
      }
      use(there, edge);
    }
  }
};

/// All edges of one of GAP 1.5's generators, in the same way as `own_edges`. A warp makes whole blocks of edges.
template <class M, bool Weighted>
struct gap_edges {
  static constexpr std::uint32_t block_edges = 1u << 18;  ///< that share a stream of random numbers

  graph_kind kind;
  std::uint32_t scale;
  std::uint64_t count;

  /// The weights that were drawn, of the edges to come. An edge needs no more numbers than a batch has, so there are
  /// at most two batches of weights before the last edge that needs one.
  struct weight_stream {
    static constexpr std::uint32_t kept = 2048;

    mersenne_twister numbers;
    std::uint8_t of[kept];  ///< edge `e` has `of[e % kept]`
  };
  struct no_weights {};
  struct state {
    mersenne_twister numbers;
    std::conditional_t<Weighted, weight_stream, no_weights> weights;
  };
  struct block_state {
    state of[build_warps_per_block];
  };
  static constexpr std::uint32_t shared_bytes = sizeof(block_state);
  static_assert(shared_bytes <= 48 << 10, "what a block of every GPU has");

  template <class Use>
  FOREBAY_DEVICE void operator()(Use&& use) const {
    state& mine = M::this_block().template shared<block_state>().of[M::this_block().thread_rank() / 32];
    std::uint64_t const warps = M::thread_count() / 32;
    for (std::uint64_t block = M::thread_rank() / 32; block * block_edges < count; block += warps) {
      std::uint64_t const left = count - block * block_edges;
      one_block(mine, static_cast<std::uint32_t>(gap_seed + block),
                left < block_edges ? static_cast<std::uint32_t>(left) : block_edges, use);
    }
  }

 private:
  template <class Use>
  FOREBAY_DEVICE void one_block(state& mine, std::uint32_t seed, std::uint32_t edges, Use&& use) const {
    auto const team = simt::team<M>::here();
    std::uint32_t const draws = kind == graph_kind::gap_uniform ? 2 : scale;
    mine.numbers.seed(team, seed);
    if constexpr (Weighted) mine.weights.numbers.seed(team, seed);
    std::uint32_t weight_batches = 0, weights = 0;
    for (std::uint32_t batches = 0, done = 0; done < edges;) {
      mine.numbers.advance(team, batches);
      ++batches;
      std::uint32_t const drawn = batches * mersenne_twister::batch / draws;
      std::uint32_t const ready = drawn < edges ? drawn : edges;
      if constexpr (Weighted) {
        while (weights < ready) more_weights(team, mine.weights, weight_batches, weights);
      }
      for (std::uint32_t at = done; at < ready; at += team.count()) {
        std::uint32_t const i = at + team.rank();
        bool const there = i < ready;
        drawn_edge edge{};
        if (there) {
          edge = edge_of(mine.numbers, i * draws);
          if constexpr (Weighted) edge.weight = mine.weights.of[i % weight_stream::kept];
        }
        use(there, edge);
      }
      done = ready;
    }
  }

  FOREBAY_DEVICE drawn_edge edge_of(mersenne_twister const& numbers, std::uint32_t first) const {
    if (kind == graph_kind::gap_uniform) {
      std::uint32_t const mask = (1u << scale) - 1;
      return {numbers.number(first) & mask, numbers.number(first + 1) & mask, 0};
    }
    // Thresholds of 32 bits, each share cut off before they are added.
    constexpr auto share = [](double of_one) { return static_cast<std::uint32_t>(of_one * 4294967295.0); };
    constexpr std::uint32_t a = share(0.57), ab = a + share(0.19), abc = ab + share(0.19);
    std::uint64_t source = 0, target = 0;
    for (std::uint32_t level = 0; level < scale; ++level) {
      std::uint32_t const point = numbers.number(first + level);
      bool const low = point >= ab;
      source = source << 1 | (low ? 1 : 0);
      target = target << 1 | (point > (low ? abc : a) ? 1 : 0);
    }
    vertex_names const names{scale, gap_seed};
    return {names(source), names(target), 0};
  }

  /// A batch of weights, each of one number. The largest number gives none, so that all weights are as likely.
  FOREBAY_DEVICE static void more_weights(simt::team<M> const& team, weight_stream& stream, std::uint32_t& batches,
                                          std::uint32_t& weights) {
    stream.numbers.advance(team, batches);
    for (std::uint32_t k = 0; k < mersenne_twister::batch; k += team.count()) {
      bool const mine = k + team.rank() < mersenne_twister::batch;
      std::uint32_t const number =
          mine ? stream.numbers.number(batches * mersenne_twister::batch + k + team.rank()) : ~0u;
      std::uint32_t const good = team.ballot(number != ~0u);
      if (number != ~0u) {
        std::uint32_t const at = weights + simt::team<M>::ones(good & ((1u << team.rank()) - 1));
        stream.of[at % weight_stream::kept] = static_cast<std::uint8_t>(number % 255 + 1);
      }
      weights += simt::team<M>::ones(good);
    }
    ++batches;
    team.sync();
  }
};

}  // namespace forebay::graph
