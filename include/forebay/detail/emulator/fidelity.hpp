// SPDX-License-Identifier: Apache-2.0
//! \file
//! The verdict on a measurement of an emulated drive: did the emulator keep the drive's times?
#pragma once

#include <algorithm>
#include <cstdint>

#include "forebay/detail/emulator/statistics.hpp"
#include "forebay/detail/emulator/timing_model.hpp"

namespace forebay::emulator {

/// What late completions did to a measurement, and whether its figures are the drive's.
struct fidelity {
  std::uint64_t bound_ns = 0;    ///< p99 lateness up to this is always kept: max(5 us, least latency / 10)
  bool has_model = false;        ///< whether any command had a target; without one, there is nothing to keep
  bool loaded = false;           ///< commands took twice the least latency or more, on average, by the model alone
  double of_target = 0;          ///< mean lateness over mean target latency
  double rate_lost_at_most = 0;  ///< the largest part of the rate that a closed loop lost by lateness, 0 to 1
  bool kept = true;              ///< the verdict
};

/// The largest p99 lateness that is kept at any load: max(5 us, latency_min / 10), for the faster of reads and writes.
constexpr std::uint64_t lateness_bound_ns(timing_parameters const& timing) {
  std::uint64_t const least_ps = std::min(timing.read.latency_min_ps, timing.write.latency_min_ps);
  return std::max<std::uint64_t>(5000, least_ps / 10'000);
}

/// Judges what one drive observed.
///
/// The times are kept if the p99 lateness is at most `bound_ns`. Where a drive is loaded, a command waits for other
/// commands, or is long itself: a few microseconds then change nothing that a client can see. There the times
/// are also kept if the mean lateness is at most 1 % of the mean target latency T, and the p99 lateness at most a tenth
/// of T.
///
/// With N commands in flight, a closed loop has the rate N / (T + L), where L is the mean lateness (Little's law). On
/// time it would have had at most N / T, since commands that come later never wait longer in the model. So it lost at
/// most the part L / (T + L).
inline fidelity judge(statistics const& observed, timing_parameters const& timing) {
  fidelity result;
  result.bound_ns = lateness_bound_ns(timing);
  std::uint64_t const p99_ns = observed.lateness.percentile_ns(0.99);
  result.kept = p99_ns <= result.bound_ns;
  std::uint64_t const commands = observed.target.total();
  std::uint64_t const late = observed.lateness.total();
  if (commands == 0 || late == 0 || observed.target.sum_ns == 0) return result;
  result.has_model = true;
  double const target_ns = static_cast<double>(observed.target.sum_ns) / static_cast<double>(commands);
  double const lateness_ns = static_cast<double>(observed.lateness.sum_ns) / static_cast<double>(late);
  result.of_target = lateness_ns / target_ns;
  result.rate_lost_at_most = lateness_ns / (target_ns + lateness_ns);
  std::uint64_t const slower_ps = std::max(timing.read.latency_min_ps, timing.write.latency_min_ps);
  result.loaded = target_ns >= 2 * static_cast<double>(slower_ps) / 1e3;
  if (result.loaded && result.of_target <= 0.01 && static_cast<double>(p99_ns) <= target_ns / 10) result.kept = true;
  return result;
}

}  // namespace forebay::emulator
