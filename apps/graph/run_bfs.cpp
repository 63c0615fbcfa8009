// SPDX-License-Identifier: Apache-2.0
#include "apps/graph/run_bfs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "apps/graph/run_on.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"

namespace forebay::graph {
namespace {

/// A run of neighbours is at most 32768 long (`bfs_paging`).
constexpr std::uint64_t request_bytes_max = 128 << 10;

bfs_request validated(storage const& drives, extent const& edges, std::span<std::uint64_t const> row_begin,
                      std::uint32_t source, bfs_options const& o) {
  auto const refuse_unless = [](bool holds, char const* field, auto value, std::string const& remedy) {
    if (!holds) throw refused_input(field, fmt::to_string(value), remedy);
  };
  std::uint64_t const lba = drives.block_bytes();
  std::uint64_t const request_bytes = o.request_bytes == 0 ? lba : o.request_bytes;
  refuse_unless(row_begin.size() >= 2 && row_begin.size() - 1 < bfs_unreached, "vertices", row_begin.size() - 1,
                "a search needs 1 to 2^32 - 2 vertices");
  refuse_unless(row_begin[0] == 0 && std::is_sorted(row_begin.begin(), row_begin.end()), "row_begin", row_begin[0],
                "must begin with 0 and never fall");
  refuse_unless(source < row_begin.size() - 1, "source", source,
                fmt::format("must be a vertex, 0 to {}", row_begin.size() - 2));
  std::uint64_t const needed = row_begin.back() * sizeof(std::uint32_t);
  refuse_unless(needed <= edges.size_bytes, "extent", edges.name,
                fmt::format("has {} bytes, and {} edges need {}; write the edge list again", edges.size_bytes,
                            row_begin.back(), needed));
  refuse_unless(
      request_bytes >= lba && request_bytes <= request_bytes_max && std::has_single_bit(request_bytes), "request_bytes",
      request_bytes,
      fmt::format("must be the drive's block, {} bytes, times a power of two, at most {}", lba, request_bytes_max));
  refuse_unless(o.iodepth >= 1 && o.iodepth <= 1u << 20, "--iodepth", o.iodepth, "must be 1 to 1048576");
  return {.edges = edges,
          .row_begin = row_begin,
          .source = source,
          .iodepth = o.iodepth,
          .request_bytes = request_bytes,
          .timeout_ns = static_cast<std::uint64_t>(o.timeout_s * 1e9)};
}

bfs_outcome launch(storage& drives, bfs_request const& request, bfs_progress const& tell) {
#ifdef FOREBAY_HAS_CUDA
  if (drives.on_gpu()) return run_on_gpu(drives, request, tell);
#endif
  return run_on<simt::fiber>(drives, request, tell);
}

}  // namespace

bfs_result run_bfs(storage& drives, extent const& edges, std::span<std::uint64_t const> row_begin, std::uint32_t source,
                   bfs_options const& wanted, bfs_progress const& tell) {
  bfs_request const request = validated(drives, edges, row_begin, source, wanted);
  bfs_outcome outcome = launch(drives, request, tell);
  if (outcome.errors != 0) {
    throw operation_failed(fmt::format("breadth-first search: {} reads failed, one of them with {}", outcome.errors,
                                       to_string(outcome.error)));
  }
  if (outcome.bad_neighbour != 0) {
    throw operation_failed(
        fmt::format("breadth-first search: the drive holds neighbour {}, the graph has {} vertices: "
                    "write the edge list again",
                    outcome.bad_neighbour, request.row_begin.size() - 1));
  }
  return std::move(outcome.result);
}

}  // namespace forebay::graph
