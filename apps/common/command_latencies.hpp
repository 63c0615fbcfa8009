// SPDX-License-Identifier: Apache-2.0
//! \file
//! fio's three latencies of the commands of one kind: slat, clat and lat.
#pragma once

#include "apps/common/latency_histogram.hpp"

namespace forebay::apps {

/// What one thread recorded; the bins of `completion` are shared.
struct command_summary {
  latency_summary submission;  ///< slat: how long the call that submits took
  latency_summary completion;  ///< clat: from the return of that call until the thread sees the completion
  latency_summary total;       ///< lat: both
};

/// What all threads recorded together.
struct command_latencies {
  latency_summary submission;
  latency_distribution completion;
  latency_summary total;

  /// Adds all that one thread recorded except the bins.
  void merge(command_summary const& of_thread) {
    submission.merge(of_thread.submission);
    completion.summary.merge(of_thread.completion);
    total.merge(of_thread.total);
  }
};

}  // namespace forebay::apps
