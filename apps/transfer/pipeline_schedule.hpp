// SPDX-License-Identifier: Apache-2.0
//! \file
//! The order of several jobs that run one after another: which step goes where, and what it waits for.
//!
//! A job is one run of a workload: memory for its buffers, input to the device, kernels, results to the host, and the
//! memory back. The arms differ in what of that overlaps. Nothing here needs CUDA: `pipeline.cpp` executes a schedule.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "apps/transfer/modes.hpp"

namespace forebay::transfer {

enum class pipeline_arm : std::uint8_t {
  malloc,              ///< each job takes its memory, and gives it back before the next
  pool_threshold_0,    ///< the same from a pool that keeps nothing
  pool_threshold_max,  ///< the same from a pool that keeps everything
  pool_side_stream,    ///< a pool; a stream beside the job takes the next one's memory, and gives the last one's back
  host_thread,         ///< another thread of the host takes the next job's memory meanwhile
  triple_buffering,    ///< three sets of buffers: input of one job, kernels of another and results of a third overlap
};
inline constexpr std::string_view arm_names[] = {"malloc",           "pool_threshold_0", "pool_threshold_max",
                                                 "pool_side_stream", "host_thread",      "triple_buffering"};
inline constexpr pipeline_arm all_arms[] = {
    pipeline_arm::malloc,           pipeline_arm::pool_threshold_0, pipeline_arm::pool_threshold_max,
    pipeline_arm::pool_side_stream, pipeline_arm::host_thread,      pipeline_arm::triple_buffering};

struct arm_facts {
  std::uint32_t sets;     ///< of device buffers that there are at a time, at most
  std::uint32_t outputs;  ///< sets of buffers for results that the host has
  bool is_pool;           ///< else memory is of `malloc` or `chunked`
  std::string_view summary;
};
arm_facts facts_of(pipeline_arm arm);

enum class step_kind : std::uint8_t {
  allocate,  ///< memory for a set of buffers
  fill,      ///< input to the device
  run,       ///< kernels
  fetch,     ///< results to the host
  deliver,   ///< the host has the results, and may look at them
  release,   ///< gives the memory of a set back
};

/// Where a step goes. A lane does its steps one after another, in the order of the schedule.
enum class lane : std::uint8_t {
  host,    ///< the thread that executes the schedule
  helper,  ///< another thread of the host
  work,    ///< a stream of the GPU, as those that follow
  side,
  in,
  out,
};
inline constexpr std::uint32_t lane_count = 6;
constexpr bool is_stream(lane of) {
  return of >= lane::work;
}

struct step {
  step_kind what;
  std::uint32_t job;  ///< of `allocate` and `release`: the first and the last that has the set
  std::uint32_t set;  ///< of device buffers
  lane at;
  std::vector<std::uint32_t> after;  ///< places of earlier steps that must have ended, also those of the same lane
};

/// The steps in the order in which the host starts them.
std::vector<step> schedule_of(pipeline_arm arm, std::uint32_t jobs);

/// For each step, whether a step of another lane comes after it.
std::vector<bool> awaited_steps(std::span<step const> steps);

/// Starts all steps. It returns when those of the host have ended; others may not have. `Machine` has
///
///     void perform(std::uint32_t at);           // starts a step in its lane; a step of the host has ended on return
///     void order(lane later, std::uint32_t at); // what `later` gets from now on waits for that step of another stream
///     void wait(std::uint32_t at);              // returns when that step, of a stream or of the helper, has ended
template <class Machine>
void execute(std::span<step const> steps, Machine& machine) {
  for (std::uint32_t at = 0; at < steps.size(); ++at) {
    lane const here = steps[at].at;
    for (std::uint32_t const earlier : steps[at].after) {
      lane const there = steps[earlier].at;
      if (there == here || there == lane::host) continue;  // it has its turn before this one
      if (is_stream(here) && is_stream(there)) {
        machine.order(here, earlier);
      } else {
        machine.wait(earlier);
      }
    }
    machine.perform(at);
  }
}

}  // namespace forebay::transfer
