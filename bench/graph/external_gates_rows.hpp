// SPDX-License-Identifier: Apache-2.0
//! \file
//! The rows of the benchmark of external memory, what each should measure, and how it is reported.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forebay/external_memory.hpp"

namespace forebay::bench {

enum class gate_kind : std::uint8_t {
  plain_chase,  ///< the machine's own memory, one read after the other
  plain_reads,  ///< the machine's own memory, as many reads as it can
  chase,        ///< external memory, one read after the other
  reads,        ///< external memory, more clients than it serves
};
/// What makes a read.
enum class gate_reader : std::uint8_t { thread, warp };

/// One measurement.
struct gate_row {
  std::string group, name;
  gate_kind kind = gate_kind::reads;
  gate_reader reader = gate_reader::warp;
  bool data_pinned = false;                 ///< the data lie in page-locked host memory
  memory::external_memory_options options;  ///< of the external memory
  std::uint32_t bytes = 128;                ///< of a read: a power of two
  std::uint64_t region_bytes = 1 << 28;     ///< of the data: a power of two
  std::uint64_t run_ns = 30'000'000;

  bool chases() const { return kind == gate_kind::chase || kind == gate_kind::plain_chase; }
  bool is_plain() const { return kind == gate_kind::plain_chase || kind == gate_kind::plain_reads; }
  /// How many steps a chase takes.
  std::uint32_t hops() const;
  /// Nanoseconds of a step, or reads a second by equation 2 (docs/reference/graph-model.md); 0: nobody knows.
  double expected() const;
  /// The part of it by which a measurement may miss.
  double tolerance() const { return chases() ? 0.03 : 0.05; }
};

/// A measurement of a row.
struct gate_run {
  double seconds = 0;
  std::uint64_t reads = 0;
  std::uint64_t wrong = 0;
  std::uint64_t late = 0;
  std::uint32_t shards = 0;  ///< that the memory had

  /// In the unit of `gate_row::expected`.
  double value(gate_row const& row) const;
};

struct gate_choice {
  bool quick = false;
  std::uint64_t run_ns = 30'000'000;
  std::uint64_t largest_bytes = std::uint64_t{8} << 30;  ///< of a region
  double lead_us = 0.32;  ///< of external memory; chases are also made without one, and with half of that
  std::string only;       ///< in the name of its group, or empty
};
/// All rows that are to be measured, in order.
std::vector<gate_row> gate_rows(gate_choice const& choice);

/// The row with the median of its runs.
nlohmann::json describe(gate_row const& row, std::vector<gate_run> runs);
/// Adds what compares rows: how many requests the machine's memory has in flight, and what data behind the link have of
/// the rate of the same memory whose data are at hand.
void compare(nlohmann::json& rows);
/// One line for people.
std::string line_of(nlohmann::json const& row);

}  // namespace forebay::bench
