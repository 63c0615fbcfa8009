// SPDX-License-Identifier: Apache-2.0
//! \file
//! The orders for the clients of the benchmarks, the memory that they share with the drive, and their results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::bench {

/// The part of a queue pair that a thread keeps in registers.
struct raw_rings {
  nvme::submission_entry* sq = nullptr;
  nvme::completion_entry* cq = nullptr;
  std::uint32_t* tail_doorbell = nullptr;
  std::uint32_t* head_doorbell = nullptr;
  std::uint32_t entries = 0;     ///< a power of two, at least 64
  std::uint32_t cq_entries = 0;  ///< a power of two, at least `entries`

  FOREBAY_DEVICE nvme::submission_entry* slot(std::uint32_t ticket) const { return sq + (ticket & (entries - 1)); }
  /// The word of a completion that has the phase tag.
  FOREBAY_DEVICE std::uint32_t& place(std::uint32_t ticket) const { return cq[ticket & (cq_entries - 1)].dw3; }
  /// Whether the completion that was found at that place is of this lap through the ring.
  FOREBAY_DEVICE bool posted(std::uint32_t ticket, std::uint32_t dw3) const {
    return (dw3 >> 16 & 1) == ((ticket & cq_entries) == 0 ? 1u : 0u);
  }
};

/// A queue pair and what its clients share. A launch of one client continues where the launch of another ended.
struct raw_queue : raw_rings {
  /// Commands ever put into the queue, and batches of them.
  struct reservation {
    std::uint64_t word = 0;  ///< batches in the high half, commands in the low one
    FOREBAY_DEVICE std::uint32_t tickets() const { return static_cast<std::uint32_t>(word); }
    FOREBAY_DEVICE std::uint32_t batches() const { return static_cast<std::uint32_t>(word >> 32); }
  };
  alignas(128) reservation reserved;
  /// The batch that the doorbell is to cover next in the high half; in the low one, for each batch by its number modulo
  /// 32, whether its entries are written and not covered.
  alignas(128) std::uint64_t written = 0;
  alignas(128) std::uint32_t consumed =
      0;  ///< commands whose completions the client is through with, all before them too
  alignas(128) std::uint32_t collecting = 0;  ///< whether somebody is at the words below
  std::uint32_t collected = 0;                ///< batches, as `consumed`
  static constexpr std::uint32_t marks = 128;
  alignas(128) std::uint32_t through[marks] = {};  ///< by batch: its number plus 1 once its completions are read
};

struct raw_workload {
  std::uint64_t blocks = 0;
  std::uint32_t block_bytes = 512;  ///< of a command; a power of two, at least the drive's block, at most 1 MiB
  std::uint32_t lba_bytes = 512;
  std::uint32_t write_percent = 0;
  std::uint32_t rounds = 1;  ///< commands of each thread, at most
  std::uint64_t run_ns = 0;  ///< not 0: after so long a thread submits no more
  bool in_order = false;     ///< thread t's nth command is block n * threads + t, in place of any block
  bool check_all = false;    ///< every word of every block, in place of the first
  std::uint32_t lanes = 32;  ///< threads of each warp that submit; the others idle
  std::uint64_t seed = 1;
  std::uint64_t deadline_ns = 10'000'000'000;
};

/// The client's results. Zeroed by the host.
struct raw_result {
  std::uint64_t commands = 0;
  std::uint64_t writes = 0;
  std::uint64_t failed = 0;
  std::uint64_t wrong = 0;  ///< words
  std::uint64_t timed_out = 0;
  /// From just before a command is stored into the queue, or the doorbell is rung if it lies there already, until its
  /// thread saw that it is complete.
  std::uint64_t latency_sum_ns = 0;
  std::uint64_t latency_min_ns = ~std::uint64_t{0};
  std::uint64_t latency_max_ns = 0;
  /// As many bins of 32 ns as of 1,024 ns; the last one holds the rest.
  static constexpr std::uint32_t bins = 8192;
  std::uint32_t latency_bin[bins] = {};

  FOREBAY_DEVICE static constexpr std::uint32_t bin_of(std::uint64_t ns) {
    std::uint64_t const bin = ns < bins / 2 * 32 ? ns / 32 : bins / 2 + (ns - bins / 2 * 32) / 1024;
    return static_cast<std::uint32_t>(bin < bins ? bin : bins - 1);
  }
  /// All that a bin counts are shorter.
  static constexpr std::uint64_t end_ns(std::uint32_t bin) {
    return bin < bins / 2 ? (bin + 1) * 32 : bins / 2 * 32 + (bin - bins / 2 + 1) * 1024;
  }
};

/// Memory of the client that the drive reaches: two buffers for each thread, and for each of them a list of the pages
/// that a command has beyond the first, where these are more than one.
struct raw_area {
  static constexpr std::uint32_t page_bytes = 4096;

  std::byte* start = nullptr;   ///< a page
  std::int64_t bus_offset = 0;  ///< from an address to what the drive calls it
  std::uint64_t threads = 0;

  FOREBAY_DEVICE static constexpr std::uint32_t listed_pages(std::uint32_t block_bytes) {
    return block_bytes > 2 * page_bytes ? block_bytes / page_bytes - 1 : 0;
  }
  FOREBAY_DEVICE static constexpr std::uint64_t list_bytes(std::uint32_t block_bytes) {
    // No part of it crosses a page: the entries, and one entry that is not used.
    return listed_pages(block_bytes) == 0 ? 0 : block_bytes / page_bytes * sizeof(std::uint64_t);
  }
  FOREBAY_DEVICE static constexpr std::uint64_t bytes(std::uint64_t threads, std::uint32_t block_bytes) {
    std::uint64_t const all = 2 * threads * (block_bytes + list_bytes(block_bytes));
    return (all + page_bytes - 1) / page_bytes * page_bytes;
  }

  FOREBAY_DEVICE std::byte* buffer(std::uint64_t thread, std::uint32_t which, std::uint32_t block_bytes) const {
    return start + (2 * thread + which) * block_bytes;
  }
  FOREBAY_DEVICE std::uint64_t* list(std::uint64_t thread, std::uint32_t which, std::uint32_t block_bytes) const {
    return reinterpret_cast<std::uint64_t*>(start + 2 * threads * block_bytes +
                                            (2 * thread + which) * list_bytes(block_bytes));
  }
  FOREBAY_DEVICE std::uint64_t on_bus(void const* address) const {
    return reinterpret_cast<std::uint64_t>(address) + static_cast<std::uint64_t>(bus_offset);
  }
};

FOREBAY_DEVICE std::uint32_t pattern(std::uint64_t block, std::uint32_t word) {
  std::uint64_t const z = (block * 0x9e3779b97f4a7c15u) ^ (std::uint64_t{word} * 0xc2b2ae3d27d4eb4fu);
  return static_cast<std::uint32_t>(z >> 32 ^ z);
}

/// Fills a drive's memory with the pattern that the client expects.
template <class M>
struct fill_pattern {
  std::uint32_t* words = nullptr;
  std::uint64_t blocks = 0;
  std::uint32_t block_bytes = 512;

  FOREBAY_DEVICE void operator()() const {
    std::uint32_t const in_block = block_bytes / 4;
    std::uint64_t const total = blocks * in_block;
    for (std::uint64_t i = M::thread_rank(); i < total; i += M::thread_count()) {
      words[i] = pattern(i / in_block, static_cast<std::uint32_t>(i % in_block));
    }
  }
};

}  // namespace forebay::bench
