// SPDX-License-Identifier: Apache-2.0
//! \file
//! Several jobs of a workload, one after another, in the arms of `pipeline_schedule.hpp`: first verified, then timed.
//! Only where CUDA is built in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/transfer/pipeline_schedule.hpp"
#include "apps/transfer/workload.hpp"

namespace forebay::transfer {

struct pipeline_options {
  std::uint32_t jobs = 16;
  allocation_kind allocation = allocation_kind::malloc;  ///< `malloc` or `chunked`: of the arms that have no pool
  std::uint64_t seed = 1;
  int ordinal = 0;
};

struct pipeline_run {
  std::string mismatch;             ///< "" if the results of all jobs are right; else which job's are wrong
  std::uint32_t verified_jobs = 0;  ///< whose results are right, in the pass before those that are timed
  std::uint32_t compared_jobs =
      0;  ///< of those: compared with the reference. The others' results are equal to the last bit
  std::vector<double> seconds;             ///< of all jobs, from the first allocation until all is free, a repetition
  std::vector<double> allocation_seconds;  ///< in calls that allocate or free, by any thread; may be hidden by others
  double page_locking_seconds = 0;         ///< of what no arm before this one had; in no other time
};

/// All jobs compute the same, from one page-locked input that is made once. Results go to page-locked memory too, and
/// the verifying pass looks at those of every job. In that pass device buffers are overwritten before each job, so that
/// input that does not come in time is missed. Not thread-safe.
class pipeline {
 public:
  /// Allocates nothing but a context of the GPU. Throws `operation_failed`.
  pipeline(std::unique_ptr<workload> work, pipeline_options options);
  pipeline(pipeline const&) = delete;
  pipeline& operator=(pipeline const&) = delete;
  ~pipeline();

  /// Throws `refused_input`, before anything is allocated, if the arm is not of this GPU or allocation, or if its sets
  /// of buffers do not fit; `operation_failed` if CUDA fails. That the host has memory for `facts_of(arm).outputs` sets
  /// of results is for the caller to see.
  pipeline_run run(pipeline_arm arm, std::uint32_t repetitions);

 private:
  class implementation;
  std::unique_ptr<implementation> here_;
};

}  // namespace forebay::transfer
