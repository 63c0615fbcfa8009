// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a benchmark of graphs on external memory must first show of that memory: that it is as slow as it says, and as
//! fast. Rows of single measurements, and the kernels that make them, for a GPU and for the CPU executor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "apps/common/device_array.hpp"
#include "apps/common/external_view.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/common/random.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/external_memory.hpp"
#include "graph/external_gates_rows.hpp"

namespace forebay::bench {

/// What lies at word `i` of every region. A node has 32 words; each of them, with its own number taken off, is the
/// number of the next node, of those that the region has. All nodes of a region whose size is a power of two form one
/// ring: the sequence is a linear congruence with the full period (Knuth, "The Art of Computer Programming", 3.2.1.2).
FOREBAY_DEVICE std::uint32_t gate_next(std::uint32_t node) {
  return node * 1664525u + 1013904223u;
}
FOREBAY_DEVICE std::uint32_t gate_mark(std::uint32_t word) {
  return (word % 32) * 0x9e3779b9u;
}
FOREBAY_DEVICE std::uint32_t gate_word(std::uint64_t i) {
  return gate_next(static_cast<std::uint32_t>(i / 32)) ^ gate_mark(static_cast<std::uint32_t>(i % 32));
}

/// What a kernel found out.
struct gate_found {
  std::uint64_t reads = 0;
  std::uint64_t wrong = 0;       ///< words that are not what lies there, and reads that failed
  std::uint64_t elapsed_ns = 0;  ///< of a chase
  std::uint64_t node = 0;        ///< where a chase ended
};

template <class M>
struct gate_fill {
  std::uint32_t* words;
  std::uint64_t count;

  FOREBAY_DEVICE void operator()() const {
    for (std::uint64_t i = M::thread_rank(); i < count; i += M::thread_count()) words[i] = gate_word(i);
  }
};

/// One warp follows the ring, a node of 128 bytes at a time.
template <class M, class View>
struct gate_chase {
  View view;
  std::uint32_t nodes;  ///< a power of two
  std::uint32_t hops;
  gate_found* found;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const lane = M::this_warp().thread_rank();
    auto cursor = view.warp_page();
    std::uint32_t node = 0;
    std::uint64_t wrong = 0;
    std::uint64_t const begin_ns = M::clock_ns();
    FOREBAY_ROLLED for (std::uint32_t i = 0; i < hops; ++i) {
      std::uint64_t const first = std::uint64_t{node} * 32;
      if (!cursor.seek(first, first + 32).ok()) ++wrong;
      node = (cursor[first + lane] ^ gate_mark(lane)) & (nodes - 1);
    }
    std::uint64_t const elapsed_ns = M::clock_ns() - begin_ns;
    // Relaxed, all: the host reads them after the grid.
    if (wrong != 0) simt::atomic<M>(found->wrong).fetch_add(wrong, simt::order::relaxed);
    // Each lane read words of its own.
    simt::atomic<M>(found->node).fetch_add(node, simt::order::relaxed);
    if (lane != 0) return;
    simt::atomic<M>(found->reads).fetch_add(hops, simt::order::relaxed);
    simt::atomic<M>(found->elapsed_ns).store(elapsed_ns, simt::order::relaxed);
  }
};

/// Random reads for a time, each of `words` words at a multiple of so many. `ByWarp`: a warp makes a read, else a
/// thread. Full warps.
template <class M, class View, bool ByWarp>
struct gate_reads {
  View view;
  std::uint32_t words;
  std::uint64_t positions;  ///< a power of two
  std::uint64_t run_ns;
  std::uint64_t seed;
  gate_found* found;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint32_t const lane = ByWarp ? warp.thread_rank() : 0, lanes = ByWarp ? 32 : 1;
    std::uint64_t const client = M::thread_rank() / lanes;
    std::uint64_t const stop_ns = M::clock_ns() + run_ns;
    std::uint64_t reads = 0, wrong = 0;
    auto cursor = [&] {
      if constexpr (ByWarp) {
        return view.warp_page();
      } else {
        return view.thread_page();
      }
    }();
    for (;;) {
      bool goes_on = M::clock_ns() < stop_ns;
      if constexpr (ByWarp) goes_on = warp.shfl(goes_on, 0);
      if (!goes_on) break;
      std::uint64_t const first = (apps::mix64(seed + (client << 32) + reads) & (positions - 1)) * words;
      ++reads;
      if (!cursor.seek(first, first + words).ok()) {
        ++wrong;
        continue;
      }
      FOREBAY_ROLLED for (std::uint32_t i = lane; i < words; i += lanes) {
        if (cursor[first + i] != gate_word(first + i)) ++wrong;
      }
    }
    // Relaxed, both: the host reads them after the grid.
    if (lane == 0) simt::atomic<M>(found->reads).fetch_add(reads, simt::order::relaxed);
    if (wrong != 0) simt::atomic<M>(found->wrong).fetch_add(wrong, simt::order::relaxed);
  }
};

/// The same without a view, as fast as the machine can: `words` neighbouring lanes, 8 to 32, make a read together, and
/// four at a time. Full warps.
template <class M>
struct gate_plain_reads {
  std::uint32_t const* data;
  std::uint32_t words;
  std::uint64_t positions;  ///< a power of two
  std::uint64_t run_ns;
  std::uint64_t seed;
  gate_found* found;

  FOREBAY_DEVICE void operator()() const {
    auto const warp = M::this_warp();
    std::uint64_t const client = M::thread_rank() / words;
    std::uint32_t const lane = M::thread_rank() % words;
    std::uint64_t const stop_ns = M::clock_ns() + run_ns;
    std::uint64_t reads = 0, wrong = 0;
    while (warp.shfl(M::clock_ns() < stop_ns, 0)) {
      std::uint64_t at[4];
      std::uint32_t seen[4];
      FOREBAY_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
        at[j] = (apps::mix64(seed + (client << 32) + reads + j) & (positions - 1)) * words + lane;
      }
      FOREBAY_UNROLL for (std::uint32_t j = 0; j < 4; ++j) seen[j] = M::ld(data + at[j]);
      FOREBAY_UNROLL for (std::uint32_t j = 0; j < 4; ++j) {
        if (seen[j] != gate_word(at[j])) ++wrong;
      }
      reads += 4;
    }
    // Relaxed, both: the host reads them after the grid.
    if (lane == 0) simt::atomic<M>(found->reads).fetch_add(reads, simt::order::relaxed);
    if (wrong != 0) simt::atomic<M>(found->wrong).fetch_add(wrong, simt::order::relaxed);
  }
};

/// Measures rows where `Executor` runs kernels. `device` and `pinned` hold what `gate_fill` wrote there.
template <class Executor>
class gate_runner {
 public:
  using machine = typename Executor::machine;
  using external = apps::external_view<std::uint32_t const, memory::external_memory_ref<machine>>;
  using plain = apps::memory_view<std::uint32_t const>;
  using thread_reads = gate_reads<machine, external, false>;
  using warp_reads = gate_reads<machine, external, true>;
  using plain_reads = gate_plain_reads<machine>;
  using external_chase = gate_chase<machine, external>;
  using plain_chase = gate_chase<machine, plain>;

  gate_runner(Executor const& run, std::uint32_t const* device, std::uint32_t const* pinned)
      : run_(run), device_(device), pinned_(pinned) {}

  /// `shape_of(kernel, reader)` is the shape of a launch that fills the machine, all of it resident. `seconds(launch)`
  /// calls `launch` and returns how long the kernel took.
  template <class ShapeOf, class Seconds>
  gate_run run(gate_row const& row, std::uint64_t seed, ShapeOf&& shape_of, Seconds&& seconds) const {
    apps::device_array<gate_found> found(run_.memory(), 1);
    std::uint32_t const* const data = row.data_pinned ? pinned_ : device_;
    std::uint64_t const words = row.region_bytes / 4;
    auto const launch = [&](simt::grid const& shape, auto const& kernel) {
      return seconds([&] { run_(shape, kernel); });
    };
    auto const fill = [&](auto& kernel) {
      kernel.words = row.bytes / 4;
      kernel.positions = row.region_bytes / row.bytes;
      kernel.run_ns = row.run_ns;
      kernel.seed = seed;
      kernel.found = found.data();
    };
    gate_run result;
    if (row.kind == gate_kind::plain_reads) {
      plain_reads kernel;
      fill(kernel);
      kernel.data = data;
      result.seconds = launch(shape_of(kernel, gate_reader::warp), kernel);
      return finished(row, result, found);
    }
    std::uint32_t const nodes = static_cast<std::uint32_t>(words / 32);
    if (row.kind == gate_kind::plain_chase) {
      result.seconds = launch({.blocks = 1, .threads_per_block = 32},
                              plain_chase{plain(data, words), nodes, row.hops(), found.data()});
      return finished(row, result, found);
    }
    memory::external_memory memory(row.options, run_.memory());
    result.shards = memory.options().shards;
    external const view(data, words, memory.template ref<machine>());
    if (row.kind == gate_kind::chase) {
      // The first run finds out how fast the cycles go.
      external_chase kernel{view, nodes, std::min(row.hops(), 1000u), found.data()};
      launch({.blocks = 1, .threads_per_block = 32}, kernel);
      found.assign(std::vector<gate_found>(1));
      std::uint64_t const late_before = memory.counts().late;
      kernel.hops = row.hops();
      result.seconds = launch({.blocks = 1, .threads_per_block = 32}, kernel);
      result.late = memory.counts().late - late_before;
      return finished(row, result, found);
    }
    auto const read = [&](auto kernel) {
      fill(kernel);
      kernel.view = view;
      result.seconds = launch(shape_of(kernel, row.reader), kernel);
    };
    if (row.reader == gate_reader::warp) {
      read(warp_reads{});
    } else {
      read(thread_reads{});
    }
    result.late = memory.counts().late;
    return finished(row, result, found);
  }

 private:
  static gate_run finished(gate_row const& row, gate_run result, apps::device_array<gate_found> const& found) {
    gate_found const seen = found.to_host()[0];
    result.reads = seen.reads;
    result.wrong = seen.wrong;
    if (row.chases()) {
      result.seconds = static_cast<double>(seen.elapsed_ns) * 1e-9;
      std::uint32_t node = 0;
      std::uint32_t const nodes = static_cast<std::uint32_t>(row.region_bytes / 128);
      for (std::uint32_t i = 0; i < row.hops(); ++i) node = gate_next(node) & (nodes - 1);
      if (seen.node != std::uint64_t{node} * 32) ++result.wrong;
    }
    return result;
  }

  Executor const& run_;
  std::uint32_t const* device_;
  std::uint32_t const* pinned_;
};

}  // namespace forebay::bench
