// SPDX-License-Identifier: Apache-2.0
//! \file
//! Deterministic runs of device code on `simt::fiber`: one OS thread, a scheduler that makes every choice, a memory
//! model, virtual time. Several runs may go on in parallel on different OS threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/detail/simt/schedulers.hpp"

namespace forebay::simt {

/// How memory behaves in a run. docs/internals/executor.md says which defects each model can and cannot find.
enum class memory_model : std::uint8_t {
  sequential,     ///< every access takes effect at once, in one order
  store_buffers,  ///< stores of a lane become visible late and out of order, as its releases and fences allow
  race_detector,  ///< sequential values; conflicting accesses that nothing orders, scopes included, fail the run
  stale_reads,    ///< race_detector, and a load may return any value that no store known to the lane replaced
};

struct run_options {
  memory_model memory = memory_model::sequential;
  /// How many scheduling points a run may have before it fails.
  std::uint64_t max_steps = 5'000'000;
  /// Blocks that run at a time; the next one starts when one has ended.
  std::uint32_t resident_blocks = ~0u;
  std::uint32_t stack_bytes = 64 * 1024;
  /// Fill `run_result::trace`.
  bool record = true;
};

/// A participant in addition to the grid: a drive, or a host thread. It is scheduled as the lanes are, as a warp and
/// block of its own.
struct agent {
  std::string name;
  std::function<void()> body;
  /// Whether the run may end before the agent does. An exception that is no `std::exception`, thrown from its wait,
  /// then unwinds its body; or the agent sees `fiber::stopping()` and returns.
  bool daemon = false;
  /// Agents of one domain see each other at device scope; agents of different domains, and lanes, at system scope.
  std::uint32_t domain = 0;
};

struct run_result {
  bool ok = true;
  /// Empty, or one paragraph that says what failed, in which lane, where, and under which scheduler.
  std::string what;
  std::uint64_t steps = 0;     ///< scheduling points
  std::uint64_t switches = 0;  ///< from one lane to another
  std::uint64_t time_ns = 0;   ///< virtual time at the end
  /// How many waits of lanes and of agents reached their deadline. If no injected fault explains why a lane reached its
  /// deadline, the deadline hides a deadlock.
  std::uint64_t timeouts = 0;
  std::uint64_t agent_timeouts = 0;
  simt::trace trace;

  explicit operator bool() const { return ok; }
};

/// Runs `kernel` on every lane of `shape`, and `agents` beside it, until all lanes and all agents but daemons have
/// ended, or one has failed: a check or an exception in a lane or agent, a deadlock, a livelock, a misused collective,
/// a data race (under a model that detects it), the step limit. After a failure the lanes' stacks are dropped without
/// running destructors. \throws refused_input if the shape is empty or has more than 65,535 lanes and agents.
run_result run(run_options const& options, scheduler& schedule, grid const& shape, std::function<void()> kernel,
               std::vector<agent> agents = {});
inline run_result run(run_options const& options, scheduler&& schedule, grid const& shape, std::function<void()> kernel,
                      std::vector<agent> agents = {}) {
  return run(options, schedule, shape, static_cast<std::function<void()>&&>(kernel),
             static_cast<std::vector<agent>&&>(agents));
}

}  // namespace forebay::simt
