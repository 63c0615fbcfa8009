// SPDX-License-Identifier: Apache-2.0
//! \file
//! Measures drives that are served by a daemon. Each drive has a daemon of its own, since a daemon keeps its drives,
//! and with them the multiprocessors that they have.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace forebay::bench {

struct served_drive {
  std::string uri;
  std::uint32_t sms = 0;
  friend bool operator==(served_drive const&, served_drive const&) = default;
};

/// Serves a drive until the process is told to end. Prints `ready` when clients can come.
int serve_drive(std::string const& uri, std::string const& socket);

/// Runs this program twice for each drive: with `--serve URI --socket PATH`, and as a client of that with `arguments`
/// and `--json FILE --residency served --drive URI`, and under MPS `--client-sms N`. Returns whether all went well.
/// `store` gets all results so far after each drive.
bool measure_served(std::vector<served_drive> const& drives, std::string const& json_path,
                    std::vector<std::string> const& arguments, std::function<void(nlohmann::json const&)> const& store);

/// Under MPS some of the multiprocessors that a process may use can be those of the drive. A block that has no place at
/// first runs when the others have ended, and a run takes twice as long. `run(ns)` returns the seconds that a run of
/// that length took. `leave_one()` makes the client use one multiprocessor less, or returns false.
template <class Run, class Leave>
void make_fit(Run&& run, Leave&& leave_one) {
  constexpr std::uint64_t probe_ns = 10'000'000;
  while (run(probe_ns) * 1e9 > 1.5 * probe_ns && leave_one()) {
  }
}

}  // namespace forebay::bench
