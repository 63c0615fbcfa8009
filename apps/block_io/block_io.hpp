// SPDX-License-Identifier: Apache-2.0
//! \file
//! A block workload on a storage, in fio's words: what `forebay bench` runs.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "apps/common/command_latencies.hpp"
#include "apps/common/processor_time.hpp"
#include "forebay/status.hpp"
#include "forebay/storage.hpp"

namespace forebay::block_io {

struct options {
  bool random = true;
  std::uint32_t read_percent = 100;
  std::uint64_t block_bytes = 512;
  std::uint32_t iodepth = 1;      ///< commands in flight, of all threads together
  std::uint32_t gpu_threads = 1;  ///< no more than `iodepth` are used
  std::uint64_t size_bytes = 0;   ///< of the region from the storage's start; 0: all of it
  double runtime_s = 0;           ///< 0: until `size_bytes` bytes have moved
  double ramp_time_s = 0;         ///< before the measured interval; only with `runtime_s`
  double timeout_s = 10;          ///< for one command
  std::uint64_t seed = 1;
  bool verify = false;
  /// On a GPU: reads end and writes begin in its memory. If the drives do not reach that, the threads copy.
  bool lands = false;
  bool lay_down = true;  ///< with `verify`: write the pattern first; else the storage holds it from an earlier run
};

/// The measurements: of the commands whose completion was seen within the interval. Those in the ramp and in the drain
/// are left out, so that mean latency times IOPS is the number in flight.
struct result {
  apps::command_latencies read;
  apps::command_latencies write;
  double seconds = 0;  ///< length of the interval
  apps::processor_share processor;
  std::uint32_t threads = 0;
  bool populated = true;  ///< false: memory for first accesses was allocated during the measurement
  std::uint64_t size_bytes = 0;
  std::uint64_t verified_blocks = 0;
  std::uint64_t mismatches = 0;
  std::uint64_t first_mismatch_byte = 0;  ///< valid where `mismatches` is not 0
  std::uint64_t errors = 0;
  status first_error;
};

/// Called with the phase ("lay down", "run", "read back") and the share of it that is done.
using progress = std::function<void(std::string_view phase, double share)>;

/// Runs the workload; the counts of the drives restart with it. Throws `refused_input` (fields named as on the command
/// line) before anything is written, and `operation_failed` if the pattern cannot be laid down or read back. Errors of
/// the workload's own commands are in the result. Two host threads must not run it on one storage if `verify` is set.
result run(storage& drives, options const& wanted, progress const& tell = {});

}  // namespace forebay::block_io
