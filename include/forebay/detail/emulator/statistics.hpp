// SPDX-License-Identifier: Apache-2.0
//! \file
//! The counters of a drive. Each service unit has its own; a reader adds them up while the units run.
#pragma once

#include <cstdint>

#include "forebay/detail/emulator/flash_model.hpp"
#include "forebay/detail/emulator/timing_model.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Adds `n` to a counter of a unit. If a unit is one thread, only that thread writes the counter; others read it at any
/// time.
template <class M>
FOREBAY_DEVICE void count(std::uint64_t& counter, std::uint64_t n = 1) {
  // Relaxed: the counter orders nothing else; readers take the value that is there.
  auto const ref = simt::atomic<M, simt::scope::device>(counter);
  if constexpr (M::lanes_are_alone) {
    ref.store(ref.load(simt::order::relaxed) + n, simt::order::relaxed);
  } else {
    ref.fetch_add(n, simt::order::relaxed);
  }
}

/// Counts durations in log-linear bins, as fio does: 64 for each doubling, so a bin is at most 1.6 % wide.
struct histogram {
  static constexpr std::uint32_t log2_linear = 6;
  static constexpr std::uint32_t largest_exponent = 40;  ///< about 18 minutes; longer ones share the last bin
  static constexpr std::uint32_t bins = (largest_exponent - log2_linear + 2) << log2_linear;

  std::uint64_t bin[bins] = {};
  std::uint64_t sum_ns = 0;
  std::uint64_t max_ns = 0;

  FOREBAY_DEVICE static constexpr std::uint32_t bin_of(std::uint64_t ns) {
    constexpr std::uint64_t largest = (std::uint64_t{2} << largest_exponent) - 1;
    if (ns > largest) ns = largest;
    std::uint32_t const exponent = simt::bit_width(ns >> (log2_linear + 1));
    return (exponent << log2_linear) + static_cast<std::uint32_t>(ns >> exponent);
  }
  /// The largest duration that falls into bin `index`.
  FOREBAY_DEVICE static constexpr std::uint64_t upper_ns(std::uint32_t index) {
    std::uint32_t const linear = 1u << log2_linear;
    if (index < 2 * linear) return index;
    std::uint32_t const exponent = (index >> log2_linear) - 1;
    std::uint64_t const mantissa = index - (exponent << log2_linear);
    return ((mantissa + 1) << exponent) - 1;
  }

  /// Counts one duration for each lane that `has` one. All lanes call it.
  template <class M>
  FOREBAY_DEVICE void record(simt::team<M> const& lanes, bool has, std::uint64_t ns) {
    if (has) count<M>(bin[bin_of(ns)]);
    std::uint64_t const sum = lanes.sum(has ? ns : 0);
    std::uint64_t const longest = lanes.max(has ? ns : 0);
    if (longest != 0 && lanes.leader()) add<M>(sum, longest);
  }
  /// Counts one duration `n` times. Called by one lane.
  template <class M>
  FOREBAY_DEVICE void record_one(std::uint64_t ns, std::uint64_t n = 1) {
    count<M>(bin[bin_of(ns)], n);
    add<M>(ns * n, ns);
  }

  /// Adds what another unit counted; that unit may still be counting.
  template <class M>
  void merge(histogram& other) {
    auto const read = [](std::uint64_t& word) {
      return simt::atomic<M, simt::scope::system>(word).load(simt::order::relaxed);  // relaxed: as in `count`
    };
    for (std::uint32_t i = 0; i < bins; ++i) bin[i] += read(other.bin[i]);
    sum_ns += read(other.sum_ns);
    std::uint64_t const largest = read(other.max_ns);
    if (largest > max_ns) max_ns = largest;
  }

  /// Subtracts what an earlier reading of the same histogram had counted. The largest duration is then known only by
  /// its bin.
  void subtract(histogram const& earlier) {
    for (std::uint32_t i = 0; i < bins; ++i) bin[i] -= earlier.bin[i];
    sum_ns -= earlier.sum_ns;
    std::uint32_t last = bins;
    while (last != 0 && bin[last - 1] == 0) --last;
    std::uint64_t const bound_ns = last == 0 ? 0 : upper_ns(last - 1);
    if (bound_ns < max_ns) max_ns = bound_ns;
  }

  /// How many durations were counted.
  FOREBAY_DEVICE std::uint64_t total() const {
    std::uint64_t n = 0;
    for (std::uint64_t const in_bin : bin) n += in_bin;
    return n;
  }
  /// The smallest duration that at least `fraction` (0 to 1) of the counted ones do not exceed, rounded up to its bin
  /// and never above `max_ns`; 0 if empty.
  FOREBAY_DEVICE std::uint64_t percentile_ns(double fraction) const {
    double const wanted = fraction * static_cast<double>(total());
    std::uint64_t seen = 0;
    for (std::uint32_t i = 0; i < bins; ++i) {
      seen += bin[i];
      if (seen != 0 && static_cast<double>(seen) >= wanted) return upper_ns(i) < max_ns ? upper_ns(i) : max_ns;
    }
    return max_ns;
  }
  /// How many were longer than `bound_ns`; counts whole bins.
  FOREBAY_DEVICE std::uint64_t above(std::uint64_t bound_ns) const {
    std::uint64_t n = 0;
    for (std::uint32_t i = bin_of(bound_ns) + 1; i < bins; ++i) n += bin[i];
    return n;
  }

 private:
  template <class M>
  FOREBAY_DEVICE void add(std::uint64_t sum, std::uint64_t longest) {
    count<M>(sum_ns, sum);
    // Relaxed: as in `count`.
    auto const largest = simt::atomic<M, simt::scope::device>(max_ns);
    if constexpr (M::lanes_are_alone) {
      if (longest > largest.load(simt::order::relaxed)) largest.store(longest, simt::order::relaxed);
    } else {
      largest.fetch_max(longest, simt::order::relaxed);
    }
  }
};

/// Counters of one service unit.
struct counters {
  std::uint64_t read_commands = 0;
  std::uint64_t write_commands = 0;
  std::uint64_t flush_commands = 0;
  std::uint64_t other_commands = 0;   ///< Compare, Write Zeroes, Dataset Management
  std::uint64_t failed_commands = 0;  ///< of any kind, those of unknown opcodes included
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t fetches = 0;  ///< batches of submission entries
  std::uint64_t commands_fetched = 0;
  std::uint64_t completions_posted = 0;
  std::uint64_t completions_blocked = 0;  ///< visits that found a completion queue full
  std::uint64_t invalid_doorbells = 0;
  std::uint64_t injected_errors = 0;
  std::uint64_t injected_delays = 0;
  std::uint64_t withheld = 0;
  std::uint64_t dropped = 0;  ///< commands that a queue deletion or a reset left without a completion

  template <class Visit>
  static constexpr void for_each(Visit&& visit) {
    visit("read_commands", &counters::read_commands);
    visit("write_commands", &counters::write_commands);
    visit("flush_commands", &counters::flush_commands);
    visit("other_commands", &counters::other_commands);
    visit("failed_commands", &counters::failed_commands);
    visit("bytes_read", &counters::bytes_read);
    visit("bytes_written", &counters::bytes_written);
    visit("fetches", &counters::fetches);
    visit("commands_fetched", &counters::commands_fetched);
    visit("completions_posted", &counters::completions_posted);
    visit("completions_blocked", &counters::completions_blocked);
    visit("invalid_doorbells", &counters::invalid_doorbells);
    visit("injected_errors", &counters::injected_errors);
    visit("injected_delays", &counters::injected_delays);
    visit("withheld", &counters::withheld);
    visit("dropped", &counters::dropped);
  }
};

/// What one service unit, or all units together, observed.
struct statistics {
  counters commands;
  histogram target;      ///< from a command's arrival to its due time, injected delays included; empty without a model
  histogram processing;  ///< the time from a command's arrival until its data had moved: what the engine takes at least
  histogram
      lateness;  ///< the time from a command's target until a client could see its completion; empty without a model
  histogram poll_gap;    ///< the time from the last look that found no new entries to the poll that found some
  flash_counters flash;  ///< of all units together; 0 where the drive has no flash model

  /// Calls `visit` for the members that count durations.
  template <class Visit>
  static constexpr void for_each_histogram(Visit&& visit) {
    visit("target", &statistics::target);
    visit("processing", &statistics::processing);
    visit("lateness", &statistics::lateness);
    visit("poll_gap", &statistics::poll_gap);
  }

  /// Subtracts what an earlier reading of the same drive had counted.
  void subtract(statistics const& earlier) {
    counters::for_each(
        [&](char const*, std::uint64_t counters::* counter) { commands.*counter -= earlier.commands.*counter; });
    for_each_histogram([&](char const*, histogram statistics::* member) { (this->*member).subtract(earlier.*member); });
    flash_counters::for_each(
        [&](char const*, std::uint64_t flash_counters::* counter) { flash.*counter -= earlier.flash.*counter; });
  }
};

}  // namespace forebay::emulator
