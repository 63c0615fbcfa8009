// SPDX-License-Identifier: Apache-2.0
//! \file
//! Traces of runs on a GPU, from the activity records of NVIDIA's CUPTI. Only where CUDA is built in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/transfer/attribution.hpp"

namespace forebay::transfer {

/// What unified memory did in a run.
struct page_moves {
  std::uint64_t bytes_in = 0;    ///< that moved from the host to a GPU
  std::uint64_t bytes_out = 0;   ///< that moved from a GPU to the host
  std::uint64_t cpu_faults = 0;  ///< records of faults of the host
  std::uint64_t gpu_faults = 0;  ///< groups of faults of a GPU
};

struct activity_trace {
  std::vector<activity> activities;  ///< on the steady clock: kernels, copies and calls of CUDA
  std::optional<page_moves> pages;   ///< where pages were asked for, and CUPTI can count them
  std::string note;                  ///< why it cannot, if so
};

/// Traces what the process does on GPUs, from construction to destruction. A process has at most one at a time, and
/// nothing is traced without one. Not thread-safe. Members throw `operation_failed`, with the reason why there is no
/// trace: a trace that lacks anything is none.
class activity_recorder {
 public:
  /// Loads CUPTI, from `folders` if the loader and the toolkit's folders have none. `with_pages`: also records what
  /// unified memory does on GPU `ordinal`.
  activity_recorder(std::vector<std::string> const& folders, bool with_pages, int ordinal);
  activity_recorder(activity_recorder const&) = delete;
  activity_recorder& operator=(activity_recorder const&) = delete;
  ~activity_recorder();

  /// Forgets what was recorded.
  void begin();
  /// What was recorded since `begin`. The GPU must have finished it.
  activity_trace end();

 private:
  class implementation;
  std::unique_ptr<implementation> here_;
};

}  // namespace forebay::transfer
