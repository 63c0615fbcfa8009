// SPDX-License-Identifier: Apache-2.0
//! \file
//! The neighbour lists of a graph in one of the places where they can lie, and the algorithms that read them there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "apps/common/latency_histogram.hpp"
#include "apps/graph/bfs.hpp"
#include "apps/graph/pagerank.hpp"
#include "forebay/extent.hpp"
#include "forebay/external_memory.hpp"
#include "forebay/storage.hpp"

namespace forebay::graph {

/// What an entry of a list is.
enum class entry_kind : std::uint8_t {
  id,        ///< of 4 bytes
  wide_id,   ///< of 8 bytes, for searches of lists in memory
  weighted,  ///< a `weighted_neighbour`, for shortest paths
};
std::uint32_t bytes_of(entry_kind entry);

/// A graph in memory of the host. The entries of vertex v are [row_begin[v], row_begin[v + 1]).
struct csr_lists {
  std::span<std::uint64_t const> row_begin;  ///< one more than there are vertices
  entry_kind entry = entry_kind::id;
  std::span<std::byte const> entries;  ///< of lists in memory
  std::span<float const> values = {};  ///< of lists in memory: one for each entry, or none, and then all are 1
};

enum class memory_place : std::uint8_t {
  hbm,       ///< the GPU's own memory
  host,      ///< page-locked host memory, which the GPU reads across its link; for the CPU, memory
  uvm,       ///< managed memory, whose pages move to the GPU
  external,  ///< memory whose reads take the time that a model says
};

struct lists_in_memory {
  memory_place place = memory_place::host;
  int gpu = -1;   ///< whose threads read; negative: the CPU executor
  int node = -1;  ///< the NUMA node of host memory; negative: any
  memory::external_memory_options external = {};
};

struct lists_on_drives {
  extent entries;
  std::optional<extent> values = {};  ///< 4-byte numbers, one for each entry; none: all are 1
  std::uint32_t iodepth = 256;        ///< past the cache: reads in flight at most, 1 to 2^20
  std::uint64_t request_bytes = 0;  ///< past the cache: longest read, a block times a power of two, to 128 KiB; 0: one
  double timeout_s = 10;            ///< for one read
};

/// What a run took. What its place does not count is missing.
struct run_figures {
  double seconds = 0;  ///< from the first launch to the end of the last
  std::uint64_t useful_bytes = 0;
  std::optional<std::uint64_t> requests = {};
  std::optional<std::uint64_t> read_bytes = {};
  std::optional<std::uint64_t> loads = {};  ///< of external memory: calls that read, of one request or more
  std::optional<std::uint64_t> late = {};   ///< of them, those that were later than the model says
  std::optional<apps::latency_distribution> latency = {};
};

struct found_level {
  std::uint64_t vertices;
  std::uint64_t entries;
  bool from_below;
  double seconds;  ///< in which it was found
};
struct found_bfs {
  run_figures figures;
  std::vector<std::uint32_t> distances;     ///< `bfs_unreached` where no path leads
  std::vector<std::uint32_t> predecessors;  ///< likewise, and for the source
  std::vector<found_level> levels;
};
struct found_sssp {
  run_figures figures;
  std::vector<std::uint64_t> distances;     ///< `sssp_unreached` where no path leads
  std::vector<std::uint32_t> predecessors;  ///< `no_predecessor` likewise, and for the source
  std::uint64_t buckets = 0;
  std::uint64_t phases = 0;
};
struct found_pagerank {
  run_figures figures;
  std::vector<float> scores;
  std::uint32_t iterations = 0;
  double change = 0;
};
struct found_components {
  run_figures figures;
  std::vector<std::uint32_t> labels;  ///< the smallest vertex of each vertex's component
  std::uint64_t components = 0;
};
struct found_triangles {
  run_figures figures;
  std::uint64_t triangles = 0;
};
struct found_product {
  run_figures figures;
  std::vector<float> y;
};

struct placed_lists;

/// Called when a level is known, with its number and how many vertices it has.
using level_listener = std::function<void(std::uint32_t level, std::uint64_t vertices)>;

/// Move-only. Its functions may be called by any thread, one at a time. They throw `refused_input` before anything
/// starts, also for an algorithm that does not take these entries, and `operation_failed` if a read fails or a list
/// holds what it must not.
class lists {
 public:
  /// Copies the lists. Throws `refused_input`: there is no such GPU or node, or the place has no room.
  lists(csr_lists const& graph, lists_in_memory const& where);
  /// Of lists that lie in extents already. If the storage has a cache, they are read through it, else past it. The
  /// storage outlives this. Throws `refused_input`: an extent is too short, or an option is out of range.
  lists(csr_lists const& graph, storage& drives, lists_on_drives const& where);
  lists(lists&&) noexcept;
  lists& operator=(lists&&) noexcept;
  ~lists();

  /// Takes the lists' pages out of the cache of their storage, if there is one.
  void make_cold();

  /// `how` may switch the direction only for an undirected graph.
  found_bfs bfs(std::uint32_t source, bfs_direction how, level_listener const& tell = {});
  /// The same search from above in its plainest form: `neighbours[i]` for each neighbour. Not past the cache, and of
  /// ids of 4 bytes.
  found_bfs plain_bfs(std::uint32_t source);
  found_sssp sssp(std::uint32_t source, std::uint32_t delta);
  /// Of incoming lists. `outgoing`: the out-degree of each vertex; none for an undirected graph.
  found_pagerank pagerank(std::span<std::uint32_t const> outgoing, pagerank_options const& options);
  /// Weakly connected ones.
  found_components components();
  /// Of an undirected graph with sorted lists.
  found_triangles triangles();
  /// y = A x, where the entries are columns. `x` has an element for each vertex.
  found_product multiply(std::span<float const> x);

  /// These count what cannot be right, on the device, and 0 says that all is. They take lists in memory only.
  std::uint64_t wrong_in_bfs(std::uint32_t source, std::span<std::uint32_t const> distances,
                             std::span<std::uint32_t const> predecessors);
  std::uint64_t wrong_in_sssp(std::uint32_t source, std::span<std::uint64_t const> distances,
                              std::span<std::uint32_t const> predecessors);
  std::uint64_t wrong_in_components(std::span<std::uint32_t const> labels);
  /// By how much the scores differ from what one more iteration makes of them, all together.
  double residual_of_pagerank(std::span<std::uint32_t const> outgoing, std::span<float const> scores,
                              pagerank_options const& options);

 private:
  std::unique_ptr<placed_lists> placed_;
};

}  // namespace forebay::graph
