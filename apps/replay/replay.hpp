// SPDX-License-Identifier: Apache-2.0
//! \file
//! A block trace replayed on a storage: what `forebay replay` runs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "apps/common/command_latencies.hpp"
#include "apps/common/processor_time.hpp"
#include "apps/replay/operation.hpp"
#include "forebay/status.hpp"
#include "forebay/storage.hpp"

namespace forebay::replay {

/// A replay whose 99th percentile of lag is above this did not keep up with its trace.
inline constexpr std::uint64_t lag_bound_ns = 1'000'000;

struct options {
  std::string trace_name;         ///< for errors: they say `trace_name:line`
  bool open_loop = false;         ///< each operation at its time; else always `iodepth` in flight, in trace order
  std::uint32_t iodepth = 1;      ///< operations in flight, of all threads together
  std::uint32_t gpu_threads = 1;  ///< no more than `iodepth` are used
  bool wrap = false;              ///< bring operations that lie outside the drive into it, and align them to its blocks
  bool verify = false;            ///< check the data of reads from blocks that the replay wrote before
  double timeout_s = 10;          ///< for one operation
  std::uint64_t seed = 1;
};

/// How many operations of each kind, the bytes they move, and the commands that a storage makes of them.
struct operation_counts {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t write_bytes = 0;

  bool operator==(operation_counts const&) const = default;
};
struct command_counts {
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t flushes = 0;
};

struct result {
  operation_counts asked;
  operation_counts completed;  ///< with success
  command_counts commands;     ///< what the drives must have seen of `asked`, if each command was sent once
  std::uint64_t wrapped = 0;   ///< operations that `wrap` moved, or made longer to whole blocks
  apps::command_latencies read;
  apps::command_latencies write;
  apps::command_latencies flush;
  apps::latency_distribution lag;  ///< in an open loop: from when an operation was due to the call that submits it
  std::uint64_t above_bound = 0;   ///< operations whose lag exceeds `lag_bound_ns`
  double seconds = 0;              ///< from the first submission to the last completion
  apps::processor_share processor;
  std::uint32_t threads = 0;
  std::uint64_t verified_blocks = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t first_mismatch_byte = 0;  ///< valid where `mismatches` is not 0
  std::uint64_t errors = 0;
  status first_error;
  std::uint32_t first_error_line = 0;
};

/// Replays `operations` in their order, which in an open loop is that of `at_ns`; the counts of the drives restart with
/// it. The first error ends the replay: operations in flight are waited for, and nothing more is submitted. Throws
/// `refused_input` (fields named as on the command line) before anything is submitted.
result run(storage& drives, std::span<operation const> operations, options const& wanted);

}  // namespace forebay::replay
