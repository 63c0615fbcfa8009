// SPDX-License-Identifier: Apache-2.0
//! \file
//! Kernels that build a graph of generated edges: arcs as keys, a stable radix sort of them, and what a CSR graph needs
//! of the sorted keys. Keys are made in any order, and the sort gives them one: the same result on every machine and
//! for every number of warps.
//!
//! Each warp has a tile of consecutive keys, so that the order within a tile is that of the input.
#pragma once

#include <cstdint>

#include "apps/common/random.hpp"
#include "apps/graph/edge_source.hpp"
#include "forebay/machine.hpp"

namespace forebay::graph {

/// What an edge list holds of an edge.
template <class Entry>
struct entry_of;

template <>
struct entry_of<std::uint32_t> {
  static constexpr bool weighted = false;
  FOREBAY_DEVICE static std::uint32_t make(std::uint64_t target, std::uint32_t /*weight*/) {
    return static_cast<std::uint32_t>(target);
  }
};

template <>
struct entry_of<std::uint64_t> {
  static constexpr bool weighted = false;
  FOREBAY_DEVICE static std::uint64_t make(std::uint64_t target, std::uint32_t /*weight*/) { return target; }
};

/// A neighbour and the weight of the edge to it, as a `.wsg` file has them.
struct weighted_neighbour {
  std::uint32_t vertex;
  std::uint32_t weight;

  bool operator==(weighted_neighbour const&) const = default;
};

template <>
struct entry_of<weighted_neighbour> {
  static constexpr bool weighted = true;
  FOREBAY_DEVICE static weighted_neighbour make(std::uint64_t target, std::uint32_t weight) {
    return {static_cast<std::uint32_t>(target), weight};
  }
};

/// The keys of the arcs that leave some consecutive vertices: `(source - first) << scale | target`, and below it the
/// weight. Sorted keys are in the order of the edge list, and the first of equal arcs has the smallest weight.
struct key_format {
  std::uint32_t scale;
  std::uint32_t weight_bits;  ///< 8, or 0 in a graph without weights
  std::uint64_t first;        ///< vertex
  std::uint64_t vertices;

  FOREBAY_DEVICE bool has(std::uint64_t source) const { return source - first < vertices; }
  FOREBAY_DEVICE std::uint64_t key(std::uint64_t source, std::uint64_t target, std::uint32_t weight) const {
    return ((source - first) << scale | target) << weight_bits | weight;
  }
  FOREBAY_DEVICE std::uint64_t arc(std::uint64_t key) const { return key >> weight_bits; }
  /// Counted from `first`.
  FOREBAY_DEVICE std::uint64_t row(std::uint64_t key) const { return arc(key) >> scale; }
  FOREBAY_DEVICE std::uint64_t target(std::uint64_t key) const { return arc(key) & ((std::uint64_t{1} << scale) - 1); }
  FOREBAY_DEVICE std::uint32_t weight(std::uint64_t key) const {
    return static_cast<std::uint32_t>(key & ((1u << weight_bits) - 1));
  }
  /// How many low bits of the keys differ.
  std::uint32_t bits() const { return simt::bit_width(vertices - 1) + scale + weight_bits; }
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

/// How many arcs leave the vertices of each bucket of 2^`shift` consecutive ones. Loops do not count.
template <class M, class Edges>
struct count_arcs {
  Edges edges;
  std::uint32_t shift;
  std::uint64_t* counts;  ///< 0 at first

  FOREBAY_DEVICE void operator()() const {
    edges([&](bool there, drawn_edge const& edge) {
      if (!there || edge.source == edge.target) return;
      // relaxed: the end of the launch orders the counts before they are read.
      simt::atomic<M>(counts[edge.source >> shift]).fetch_add(1, simt::order::relaxed);
      simt::atomic<M>(counts[edge.target >> shift]).fetch_add(1, simt::order::relaxed);
    });
  }
};

/// Makes the keys of all arcs of a format, in any order: both directions of every edge that is no loop.
template <class M, class Edges>
struct append_keys {
  Edges edges;
  key_format format;
  std::uint64_t* keys;
  std::uint64_t* count;  ///< 0 at first

  FOREBAY_DEVICE void operator()() const {
    auto const team = simt::team<M>::here();
    edges([&](bool there, drawn_edge const& edge) {
      bool const kept = there && edge.source != edge.target;
      bool const leaves = kept && format.has(edge.source), returns = kept && format.has(edge.target);
      std::uint32_t const leaving = team.ballot(leaves), returning = team.ballot(returns);
      std::uint32_t const left = simt::team<M>::ones(leaving);
      std::uint64_t at = 0;
      if (team.leader()) {
        // relaxed: it gives out places only; the end of the launch orders the keys before they are read.
        at = simt::atomic<M>(*count).fetch_add(left + simt::team<M>::ones(returning), simt::order::relaxed);
      }
      at = team.broadcast(at);
      std::uint32_t const before = (1u << team.rank()) - 1;
      if (leaves) {
        keys[at + simt::team<M>::ones(leaving & before)] = format.key(edge.source, edge.target, edge.weight);
      }
      if (returns) {
        keys[at + left + simt::team<M>::ones(returning & before)] = format.key(edge.target, edge.source, edge.weight);
      }
    });
  }
};

inline constexpr std::uint32_t sort_digits = 256;

/// A warp's count or end of each digit, in shared memory.
struct digit_counters {
  std::uint64_t of[build_warps_per_block][sort_digits];
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

/// Which sorted keys a graph keeps: the first of those of one arc.
struct kept_keys {
  key_format format;
  std::uint64_t const* keys;

  FOREBAY_DEVICE bool operator()(std::uint64_t i) const {
    return i == 0 || format.arc(keys[i - 1]) != format.arc(keys[i]);
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

/// The entries of the packed keys, and where the row of each vertex of their format begins.
template <class M, class Entry>
struct make_rows {
  key_format format;
  std::uint64_t count;
  std::uint64_t const* keys;
  std::uint64_t before;      ///< entries of earlier vertices
  std::uint64_t* row_begin;  ///< of all vertices
  Entry* entries;            ///< of these

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) {
      entries[i] = entry_of<Entry>::make(format.target(keys[i]), format.weight(keys[i]));
    }
    for (std::uint64_t v = M::thread_rank(); v < format.vertices; v += M::thread_count()) {
      std::uint64_t low = 0, high = count;
      while (low < high) {
        std::uint64_t const middle = (low + high) / 2;
        if (format.row(keys[middle]) < v) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      row_begin[format.first + v] = before + low;
    }
  }
};

template <class M, class Entry>
struct copy_entries {
  Entry const* from;
  std::uint64_t count;
  Entry* to;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) to[i] = from[i];
  }
};

/// The value of each edge of finished rows. A warp goes through a row together.
template <class M, class Id>
struct make_values {
  std::uint64_t seed;
  std::uint64_t vertices;
  std::uint64_t const* row_begin;
  Id const* columns;
  float* values;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const lane = M::thread_rank() % 32;
    for (std::uint64_t v = M::thread_rank() / 32; v < vertices; v += M::thread_count() / 32) {
      std::uint64_t const end = row_begin[v + 1];
      for (std::uint64_t e = row_begin[v] + lane; e < end; e += 32) values[e] = edge_value(seed, v, columns[e]);
    }
  }
};

}  // namespace forebay::graph
