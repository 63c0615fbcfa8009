// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a block workload is beside its launch: its checks, the pattern that is laid down before it, and the pass that
//! reads the data back. It knows nothing of what holds the data.
#pragma once

#include <cstdint>
#include <functional>

#include "apps/block_io/block_io.hpp"
#include "apps/block_io/kernel.hpp"
#include "apps/block_io/launch_result.hpp"

namespace forebay::block_io {

/// What holds the data.
struct medium {
  char const* name;  ///< as a refusal names it: "drives"
  std::uint64_t size_bytes;
  std::uint64_t block_bytes;  ///< the least that can be transferred
};

/// Throws `refused_input`, with fields named as on the command line, if `on` cannot do what is wanted.
workload validated(options const& wanted, medium const& on);

/// How a workload is launched, and how the host reads and writes its data between launches. They throw
/// `operation_failed`. Buffers begin at a multiple of 4096 bytes.
struct job {
  std::function<void(void* to, std::uint64_t bytes, std::uint64_t offset_bytes)> read;
  std::function<void(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes)> write;
  std::function<launch_result()> launch;
};

/// Lays the pattern down, launches and reads back, as `work` says.
result run(job const& what, workload const& work, progress const& tell);

}  // namespace forebay::block_io
