// SPDX-License-Identifier: Apache-2.0
//! \file
//! Daemons that serve the drives of a benchmark, and how clients share the GPU with them.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "harness/child_process.hpp"

namespace forebay::bench {

/// Serves drives, whose URIs have blanks between them, until the process is told to end, or its parent ends. Prints
/// `ready` when clients can come.
int serve_drives(std::string const& uris, std::string const& socket);

/// This program once more, as the daemon of some drives. It is ready when it has been constructed; its destructor ends
/// it. A daemon keeps its drives, and with them the multiprocessors that they have.
class drive_daemon {
 public:
  /// Throws `operation_failed`.
  explicit drive_daemon(std::vector<std::string> const& uris);

  std::string const& socket() const { return socket_; }

 private:
  std::string socket_;
  child_process process_;
};

/// Whether processes run on the GPU side by side. If not, this says on standard error what follows.
bool under_mps();

/// What a client under MPS may use of the GPU.
struct client_share {
  std::pair<std::string, std::string> variable;  ///< to be set before the client uses the GPU
  std::uint32_t sms;
};
/// `drive_sms`: multiprocessors of all drives, out of `all_sms`.
client_share share_beside(std::uint32_t drive_sms, std::uint32_t all_sms);

struct served_drive {
  std::string uri;
  std::uint32_t sms = 0;
  friend bool operator==(served_drive const&, served_drive const&) = default;
};

/// Runs this program twice for each drive: as its daemon, and as a client of that with `arguments` and `--json FILE
/// --residency served --drive URI`, and under MPS `--client-sms N`. Returns whether all went well. `store` gets all
/// results so far after each drive.
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
