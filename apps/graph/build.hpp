// SPDX-License-Identifier: Apache-2.0
//! \file
//! A graph in CSR form, generated where its kernels run, in as much memory as it may take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/device_array.hpp"
#include "apps/graph/build_kernels.hpp"
#include "apps/graph/edge_source.hpp"
#include "forebay/error.hpp"

namespace forebay::graph {

struct graph_options {
  graph_kind kind = graph_kind::kronecker;
  std::uint32_t scale = 22;        ///< 2^scale vertices; 1 to 30
  std::uint32_t edge_factor = 16;  ///< undirected edges a vertex, before duplicates and loops are dropped; 1 to 2^20
  std::uint64_t seed = 1;          ///< of our edges, and of values; GAP's edges and weights have a seed of their own
  /// For the keys of the arcs while they are sorted: 16 bytes an arc, 32 bytes for each undirected edge. If those of
  /// the whole graph do not fit, the graph is built in ranges of vertices, and all edges are generated once more for
  /// each of them. Beside the keys there are the row pointers, 8 bytes a vertex, and 2 KiB a warp; and the edge list
  /// itself, unless a sink takes it elsewhere. Of 2^27 vertices and 2^31 edges the keys take 69 GB in one range, and
  /// 18 GB in four.
  std::uint64_t memory_max_bytes = ~std::uint64_t{0};
};

/// Finished entries of the edge list, in the memory of the executor. They are valid while the sink runs, and for what
/// it starts on that executor.
template <class Entry>
struct edge_list_piece {
  Entry const* entries;
  std::uint64_t first;  ///< where in the edge list they begin: where those of the piece before ended
  std::uint64_t count;  ///< may be 0
  bool last;            ///< whether the edge list ends with it
};

/// The edge list of a graph, of ids of 4 bytes (`std::uint32_t`) or 8 (`std::uint64_t`), or of `weighted_neighbour`.
template <class Entry>
struct edge_lists {
  apps::device_array<std::uint64_t> row_begin;  ///< one more than vertices
  apps::device_array<Entry> columns;

  std::uint64_t vertices() const { return row_begin.size() - 1; }
  std::uint64_t entries() const { return columns.size(); }
};

/// Undirected: each edge stands in the rows of both its vertices. Rows are sorted, without duplicates and loops. The
/// value of an edge is in [0, 1).
template <class Id>
struct basic_csr_graph {
  apps::device_array<std::uint64_t> row_begin;  ///< one more than vertices
  apps::device_array<Id> columns;
  apps::device_array<float> values;

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(row_begin.size() - 1); }
  std::uint64_t entries() const { return columns.size(); }
};

using csr_graph = basic_csr_graph<std::uint32_t>;

namespace detail {

/// Turns counts into where each begins; returns their sum.
inline std::uint64_t exclusive_sum(apps::device_array<std::uint64_t>& counts) {
  std::vector<std::uint64_t> host = counts.to_host();
  std::uint64_t sum = 0;
  for (std::uint64_t& n : host) n = std::exchange(sum, sum + n);
  counts.assign(host);
  return sum;
}

/// Consecutive vertices whose arcs are sorted together.
struct source_range {
  std::uint64_t first;
  std::uint64_t vertices;
  std::uint64_t arcs;
};

inline constexpr std::uint64_t key_bytes = 16;  ///< of an arc: the sort has two arrays of keys
inline constexpr std::uint32_t weight_bits = 8;
inline constexpr std::uint32_t bucket_bits = 16;  ///< the arcs are counted in so many parts of the vertices

/// Divides buckets of vertices, by how many arcs each has, into as few ranges as fit. Throws `refused_input`.
inline std::vector<source_range> ranges_of(std::vector<std::uint64_t> const& arcs, std::uint64_t bucket_vertices,
                                           std::uint64_t vertices_max, std::uint64_t memory_max_bytes) {
  std::uint64_t const most = *std::max_element(arcs.begin(), arcs.end());
  if (most > memory_max_bytes / key_bytes) {
    throw refused_input("memory_max_bytes", std::to_string(memory_max_bytes),
                        "is at least " + std::to_string(most * key_bytes) +
                            " for this graph: 16 bytes for each of the " + std::to_string(most) + " arcs of " +
                            std::to_string(bucket_vertices) + " vertices");
  }
  std::vector<source_range> ranges;
  for (std::uint64_t bucket = 0; bucket < arcs.size(); ++bucket) {
    if (ranges.empty() || ranges.back().vertices + bucket_vertices > vertices_max ||
        ranges.back().arcs + arcs[bucket] > memory_max_bytes / key_bytes) {
      ranges.push_back({bucket * bucket_vertices, 0, 0});
    }
    ranges.back().vertices += bucket_vertices;
    ranges.back().arcs += arcs[bucket];
  }
  return ranges;
}

/// Builds rows of one graph, range after range.
template <class Entry, class Executor>
class row_builder {
  using M = typename Executor::machine;
  static constexpr bool weighted = entry_of<Entry>::weighted;

 public:
  row_builder(Executor const& run, graph_options const& options) : run_(run), options_(options) {
    if (options.scale < 1 || options.scale > 30) {
      throw refused_input("scale", std::to_string(options.scale), "is 1 to 30");
    }
    if (options.edge_factor < 1 || options.edge_factor > 1u << 20) {
      throw refused_input("edge_factor", std::to_string(options.edge_factor), "is 1 to 1048576");
    }
  }

  template <class Sink>
  apps::device_array<std::uint64_t> operator()(Sink&& sink) const {
    apps::device_array<std::uint64_t> row_begin(run_.memory(), vertices() + 1);
    std::vector<source_range> const parts = ranges();
    std::uint64_t capacity = 0;
    for (source_range const& part : parts) capacity = std::max(capacity, part.arcs);
    apps::device_array<std::uint64_t> keys(run_.memory(), capacity), other(run_.memory(), capacity);
    std::uint64_t entries = 0;
    for (source_range const& part : parts) {
      key_format const format{options_.scale, weighted ? weight_bits : 0, part.first, part.vertices};
      std::uint64_t const arcs = make_keys(format, keys);
      sort(format, arcs, keys, other);
      std::uint64_t const kept = pack(format, arcs, keys, other);
      // An entry is no larger than a key, so the entries fit where the sorted keys were.
      static_assert(sizeof(Entry) <= sizeof(std::uint64_t) && alignof(Entry) <= alignof(std::uint64_t));
      auto* const made = reinterpret_cast<Entry*>(keys.data());
      run_(all(), make_rows<M, Entry>{format, kept, other.data(), entries, row_begin.data(), made});
      run_.synchronize();
      sink(edge_list_piece<Entry>{made, entries, kept, &part == &parts.back()});
      entries += kept;
    }
    run_.synchronize();  // what the sink has started
    run_.memory().copy_in(row_begin.data() + vertices(), &entries, sizeof entries);
    return row_begin;
  }

  std::uint64_t vertices() const { return std::uint64_t{1} << options_.scale; }
  std::uint64_t edges() const { return vertices() * options_.edge_factor; }
  simt::grid all() const {
    return {.blocks = (run_.warps() + build_warps_per_block - 1) / build_warps_per_block,
            .threads_per_block = build_warps_per_block * 32};
  }

 private:
  /// Calls `with` with the edges of the graph's generator.
  template <class With>
  void with_edges(With&& with) const {
    if (is_gap(options_.kind)) {
      with(gap_edges<M, weighted>{options_.kind, options_.scale, edges()});
    } else {
      with(own_edges<M, weighted>{{options_.kind, options_.scale, options_.seed}, edges()});
    }
  }

  template <class Edges, class Kernel>
  void run_over(Edges const&, Kernel const& kernel) const {
    simt::grid shape = all();
    shape.shared_bytes = Edges::shared_bytes;
    run_(shape, kernel);
    run_.synchronize();
  }

  std::vector<source_range> ranges() const {
    // Keys have 64 bits.
    std::uint64_t const vertices_max =
        std::uint64_t{1} << std::min<std::uint32_t>(63, 64 - options_.scale - (weighted ? weight_bits : 0));
    if (2 * edges() <= options_.memory_max_bytes / key_bytes && vertices() <= vertices_max) {
      return {{0, vertices(), 2 * edges()}};
    }
    std::uint32_t const shift = options_.scale > bucket_bits ? options_.scale - bucket_bits : 0;
    apps::device_array<std::uint64_t> const arcs(run_.memory(), vertices() >> shift);
    with_edges([&](auto const& from) {
      run_over(from, count_arcs<M, std::remove_cvref_t<decltype(from)>>{from, shift, arcs.data()});
    });
    return ranges_of(arcs.to_host(), std::uint64_t{1} << shift, vertices_max, options_.memory_max_bytes);
  }

  /// Returns how many there are: at most as many as the range says.
  std::uint64_t make_keys(key_format const& format, apps::device_array<std::uint64_t> const& keys) const {
    apps::device_array<std::uint64_t> const count(run_.memory(), 1);
    with_edges([&](auto const& from) {
      run_over(from, append_keys<M, std::remove_cvref_t<decltype(from)>>{from, format, keys.data(), count.data()});
    });
    return count.to_host()[0];
  }

  /// Sorts `keys`, with `other` for room.
  void sort(key_format const& format, std::uint64_t arcs, apps::device_array<std::uint64_t>& keys,
            apps::device_array<std::uint64_t>& other) const {
    tiling const tiles = tiling::of(arcs, run_.warps());
    std::uint32_t const warps = tiles.warps();
    simt::grid shape = over(tiles);
    shape.shared_bytes = sizeof(digit_counters);
    apps::device_array<std::uint64_t> counts(run_.memory(), std::size_t{sort_digits} * warps);
    for (std::uint32_t shift = 0; shift < format.bits(); shift += 8) {
      run_(shape, count_digits<M>{tiles, warps, shift, keys.data(), counts.data()});
      run_.synchronize();
      exclusive_sum(counts);
      run_(shape, scatter_keys<M>{tiles, warps, shift, keys.data(), counts.data(), other.data()});
      run_.synchronize();
      std::swap(keys, other);
    }
  }

  /// Moves the sorted keys that the graph keeps to `packed`; returns how many they are.
  std::uint64_t pack(key_format const& format, std::uint64_t arcs, apps::device_array<std::uint64_t> const& keys,
                     apps::device_array<std::uint64_t> const& packed) const {
    tiling const tiles = tiling::of(arcs, run_.warps());
    kept_keys const kept{format, keys.data()};
    apps::device_array<std::uint64_t> firsts(run_.memory(), tiles.warps());
    run_(over(tiles), count_kept<M>{tiles, tiles.warps(), kept, firsts.data()});
    run_.synchronize();
    std::uint64_t const entries = exclusive_sum(firsts);
    run_(over(tiles), pack_kept<M>{tiles, tiles.warps(), kept, firsts.data(), packed.data()});
    run_.synchronize();
    return entries;
  }

  static simt::grid over(tiling const& tiles) {
    return {.blocks = (tiles.warps() + build_warps_per_block - 1) / build_warps_per_block,
            .threads_per_block = build_warps_per_block * 32};
  }

  Executor const& run_;
  graph_options const& options_;
};

}  // namespace detail

/// Builds the rows of a graph and gives its edge list to `sink(edge_list_piece<Entry>)`, piece after piece in their
/// order, in calls of this thread, at least one. The pieces may go to other memory or to a drive. Returns where each
/// row begins. The same graph for the same options on every machine, for every number of warps and of ranges. Throws
/// `refused_input`, and what the sink throws.
template <class Entry, class Executor, class Sink>
apps::device_array<std::uint64_t> build_rows(Executor const& run, graph_options const& options, Sink&& sink) {
  return detail::row_builder<Entry, Executor>(run, options)(sink);
}

/// The same with the edge list in the memory of `run`. If there are several ranges, duplicates keep their memory.
template <class Entry, class Executor>
edge_lists<Entry> build_edge_lists(Executor const& run, graph_options const& options) {
  using M = typename Executor::machine;
  detail::row_builder<Entry, Executor> const build(run, options);
  apps::device_array<Entry> columns(run.memory(), 0);
  std::uint64_t entries = 0;
  apps::device_array<std::uint64_t> row_begin = build([&](edge_list_piece<Entry> const& piece) {
    if (piece.first == 0) {
      // How many entries there will be is known only with the last piece.
      columns = apps::device_array<Entry>(run.memory(), piece.last ? piece.count : 2 * build.edges());
    }
    run(build.all(), copy_entries<M, Entry>{piece.entries, piece.count, columns.data() + piece.first});
    entries = piece.first + piece.count;
  });
  columns.truncate(entries);
  return {std::move(row_begin), std::move(columns)};
}

/// The same with values.
template <class Id = std::uint32_t, class Executor>
basic_csr_graph<Id> build_graph(Executor const& run, graph_options const& options) {
  using M = typename Executor::machine;
  edge_lists<Id> lists = build_edge_lists<Id>(run, options);
  apps::device_array<float> values(run.memory(), lists.entries());
  run({.blocks = (run.warps() + build_warps_per_block - 1) / build_warps_per_block,
       .threads_per_block = build_warps_per_block * 32},
      make_values<M, Id>{options.seed, lists.vertices(), lists.row_begin.data(), lists.columns.data(), values.data()});
  run.synchronize();
  return {std::move(lists.row_begin), std::move(lists.columns), std::move(values)};
}

}  // namespace forebay::graph
