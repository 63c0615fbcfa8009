// SPDX-License-Identifier: Apache-2.0
//! \file
//! Breadth-first search of a graph whose edge list lies on a drive.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "apps/common/latency_histogram.hpp"
#include "forebay/status.hpp"
#include "forebay/storage.hpp"

namespace forebay::graph {

struct bfs_options {
  std::uint32_t iodepth = 256;      ///< reads in flight at most, 1 to 2^20: each is of a thread of its own
  std::uint64_t request_bytes = 0;  ///< longest read: the drive's block times a power of two, to 128 KiB; 0: one block
  double timeout_s = 10;            ///< for one read
};

struct bfs_result {
  std::vector<std::uint32_t> distances;     ///< `bfs_unreached` (2^32 - 1) where no path leads
  std::vector<std::uint32_t> predecessors;  ///< the vertex before on a shortest path; `bfs_unreached` where none is
  std::vector<std::uint64_t> frontiers;     ///< vertices at distance 0, 1, ...
  apps::latency_distribution latency;       ///< of the reads, submission to completion seen
  double seconds = 0;                       ///< from the first level's launch to the last one's end
  std::uint64_t reads = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t useful_bytes = 0;  ///< neighbour ids of the vertices reached
  std::uint64_t request_bytes = 0;
};

/// Called before each level with its number and the size of its frontier.
using bfs_progress = std::function<void(std::uint32_t level, std::uint64_t frontier)>;

/// Searches from `source`. The neighbours of v are the 4-byte ids `[row_begin[v], row_begin[v + 1])` of the edge list
/// in extent `edges` of `drives`. Throws `refused_input` before anything starts, `operation_failed` when a read fails
/// or the drive holds an id that is no vertex.
bfs_result run_bfs(storage& drives, extent const& edges, std::span<std::uint64_t const> row_begin, std::uint32_t source,
                   bfs_options const& wanted = {}, bfs_progress const& tell = {});

}  // namespace forebay::graph
