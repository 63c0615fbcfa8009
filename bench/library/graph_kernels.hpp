// SPDX-License-Identifier: Apache-2.0
//! \file
//! Kernels that generate a graph: edges as keys, a stable radix sort of them, and what a CSR graph needs of the sorted
//! keys. The same result on every machine and for every number of warps.
//!
//! A key is `source << scale | target`. Each warp has a tile of consecutive keys, so that the order within a tile is
//! that of the input.
#pragma once

#include <cstdint>

#include "apps/common/random.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

enum class graph_kind : std::uint8_t {
  kronecker,  ///< Graph500's, with GAP's parameters: A = 0.57, B = C = 0.19, D = 0.05
  uniform,    ///< both ends of an edge uniform (Erdos and Renyi)
};

/// Edge `i` of a graph, and the names of its vertices: pure functions of the seed.
struct edge_source {
  graph_kind kind = graph_kind::kronecker;
  std::uint32_t scale = 0;
  std::uint64_t seed = 1;

  /// A bijection on [0, 2^scale), so that the degree of a vertex does not follow from its number.
  FOREBAY_DEVICE std::uint64_t permute(std::uint64_t vertex) const {
    std::uint64_t const mask = (std::uint64_t{1} << scale) - 1;
    std::uint32_t const half = (scale + 1) / 2;
    for (std::uint64_t round = 0; round < 3; ++round) {
      // An odd factor, an addition, and a shift to the right that is mixed in: each can be undone modulo 2^scale.
      vertex = (vertex * (apps::mix64(seed ^ round) | 1) + apps::mix64(seed + round)) & mask;
      vertex ^= vertex >> half;
    }
    return vertex;
  }

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
};

/// The tile of each warp: consecutive elements, a whole number of the warps' rounds.
struct tiling {
  std::uint64_t count;
  std::uint64_t per_warp;

  static tiling of(std::uint64_t count, std::uint32_t warps) {
    std::uint64_t const rounds = (count + 31) / 32;
    return {count, (rounds + warps - 1) / warps * 32};
  }
  std::uint32_t warps() const {
    return per_warp == 0 ? 1 : static_cast<std::uint32_t>((count + per_warp - 1) / per_warp);
  }
  FOREBAY_DEVICE std::uint64_t begin(std::uint32_t warp) const { return clip(warp * per_warp); }
  FOREBAY_DEVICE std::uint64_t end(std::uint32_t warp) const { return clip((warp + std::uint64_t{1}) * per_warp); }

 private:
  FOREBAY_DEVICE std::uint64_t clip(std::uint64_t at) const { return at < count ? at : count; }
};

/// Both directions of every edge.
template <class M>
struct make_keys {
  edge_source edges;
  std::uint64_t count;  ///< of edges; half as many as keys
  std::uint64_t* keys;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const mask = (std::uint64_t{1} << edges.scale) - 1;
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) {
      std::uint64_t const key = edges.edge(i);
      M::st(keys + 2 * i, key);
      M::st(keys + 2 * i + 1, edges.key(key & mask, key >> edges.scale));
    }
  }
};

inline constexpr std::uint32_t sort_digits = 256;
inline constexpr std::uint32_t sort_warps_per_block = 4;

/// A warp's count or end of each digit, in shared memory.
struct digit_counters {
  std::uint64_t of[sort_warps_per_block][sort_digits];
};

/// How often each digit occurs in each tile: `counts[digit * warps + warp]`.
template <class M>
struct count_digits {
  tiling tiles;
  std::uint32_t warps;
  std::uint32_t shift;
  std::uint64_t const* keys;
  std::uint64_t* counts;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const rank = M::thread_rank() / 32, lane = warp.thread_rank();
    if (rank >= warps) return;
    auto& mine = M::this_block().template shared<digit_counters>().of[M::this_block().thread_rank() / 32];
    for (std::uint32_t d = lane; d < sort_digits; d += 32) mine[d] = 0;
    warp.sync();
    for (std::uint64_t i = tiles.begin(rank) + lane; i < tiles.end(rank); i += 32) {
      // relaxed: the warp's sync() below orders the counts before they are read.
      simt::atomic<M, simt::scope::block>(mine[keys[i] >> shift & (sort_digits - 1)])
          .fetch_add(1, simt::order::relaxed);
    }
    warp.sync();
    for (std::uint32_t d = lane; d < sort_digits; d += 32) counts[std::uint64_t{d} * warps + rank] = mine[d];
  }
};

/// Moves each key to its place by one digit. `first[digit * warps + warp]`: where the first such key of the tile goes.
template <class M>
struct scatter_keys {
  tiling tiles;
  std::uint32_t warps;
  std::uint32_t shift;
  std::uint64_t const* keys;
  std::uint64_t const* first;
  std::uint64_t* sorted;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const rank = M::thread_rank() / 32, lane = warp.thread_rank();
    if (rank >= warps) return;
    auto& next = M::this_block().template shared<digit_counters>().of[M::this_block().thread_rank() / 32];
    for (std::uint32_t d = lane; d < sort_digits; d += 32) next[d] = first[std::uint64_t{d} * warps + rank];
    warp.sync();
    std::uint64_t const end = tiles.end(rank);
    for (std::uint64_t at = tiles.begin(rank); at < end; at += 32) {
      bool const mine = at + lane < end;
      std::uint64_t const key = mine ? keys[at + lane] : 0;
      std::uint32_t const digit = mine ? static_cast<std::uint32_t>(key >> shift & (sort_digits - 1)) : sort_digits;
      std::uint32_t const same = warp.match_any(digit);
      std::uint32_t const before = simt::team<M>::ones(same & ((1u << lane) - 1));
      std::uint64_t const to = mine ? next[digit] + before : 0;
      warp.sync();
      if (mine && before == 0) next[digit] += simt::team<M>::ones(same);
      warp.sync();
      if (mine) sorted[to] = key;
    }
  }
};

/// Which sorted keys a graph keeps: the first of equal ones, and no key whose vertex is its own neighbour.
struct kept_keys {
  std::uint32_t scale;
  std::uint64_t const* keys;

  FOREBAY_DEVICE bool operator()(std::uint64_t i) const {
    std::uint64_t const key = keys[i], mask = (std::uint64_t{1} << scale) - 1;
    return key >> scale != (key & mask) && (i == 0 || keys[i - 1] != key);
  }
};

/// How many keys of each tile are kept.
template <class M>
struct count_kept {
  tiling tiles;
  std::uint32_t warps;
  kept_keys kept;
  std::uint64_t* counts;

  FOREBAY_DEVICE void operator()() const {
    auto const team = simt::team<M>::here();
    std::uint32_t const rank = M::thread_rank() / 32;
    if (rank >= warps) return;
    std::uint64_t sum = 0;
    for (std::uint64_t i = tiles.begin(rank) + team.rank(); i < tiles.end(rank); i += 32) sum += kept(i) ? 1 : 0;
    sum = team.sum(sum);
    if (team.leader()) counts[rank] = sum;
  }
};

/// Moves the kept keys together. `first[warp]`: where the first one of the tile goes.
template <class M>
struct pack_kept {
  tiling tiles;
  std::uint32_t warps;
  kept_keys kept;
  std::uint64_t const* first;
  std::uint64_t* packed;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const rank = M::thread_rank() / 32, lane = warp.thread_rank();
    if (rank >= warps) return;
    std::uint64_t to = first[rank];
    std::uint64_t const end = tiles.end(rank);
    for (std::uint64_t at = tiles.begin(rank); at < end; at += 32) {
      bool const keep = at + lane < end && kept(at + lane);
      std::uint32_t const keepers = warp.ballot(keep);
      if (keep) packed[to + simt::team<M>::ones(keepers & ((1u << lane) - 1))] = kept.keys[at + lane];
      to += simt::team<M>::ones(keepers);
    }
  }
};

/// The value of an edge, the same in both directions, in [0, 1).
FOREBAY_DEVICE float edge_value(std::uint64_t seed, std::uint64_t source, std::uint64_t target) {
  std::uint64_t const low = source < target ? source : target, high = source < target ? target : source;
  return static_cast<float>(apps::mix64(seed ^ apps::mix64(high << 32 | low)) >> 40) * 0x1p-24f;
}

/// Columns and values of the packed keys, and where each row begins.
template <class M>
struct make_csr {
  std::uint32_t scale;
  std::uint64_t seed;
  std::uint64_t count;
  std::uint64_t const* keys;
  std::uint64_t* row_begin;
  std::uint32_t* columns;
  float* values;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const mask = (std::uint64_t{1} << scale) - 1;
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) {
      std::uint64_t const key = keys[i];
      columns[i] = static_cast<std::uint32_t>(key & mask);
      values[i] = edge_value(seed, key >> scale, key & mask);
    }
    for (std::uint64_t v = M::thread_rank(); v <= mask + 1; v += M::thread_count()) {
      std::uint64_t low = 0, high = count;
      while (low < high) {
        std::uint64_t const middle = (low + high) / 2;
        if (keys[middle] >> scale < v) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      row_begin[v] = low;
    }
  }
};

}  // namespace forebay::bench
