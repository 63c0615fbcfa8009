// SPDX-License-Identifier: Apache-2.0
//! \file
//! The drive daemon: a process that serves emulated drives to other processes (`residency=served`).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace forebay::drive {

/// Where clients look for the daemon: FOREBAY_DAEMON, else `forebay.sock` in XDG_RUNTIME_DIR, else
/// /tmp/forebay-UID.sock.
std::string daemon_socket();

struct serve_options {
  std::string socket = daemon_socket();
  /// Drives to open at once; others are opened when a client names them. All stay open until the end.
  std::vector<std::string> drives;
  /// An open file. The daemon ends, as by a signal, when the process at the other end has closed it or has ended. -1:
  /// none. So a daemon does not outlive the program that started it, however that program ends.
  int lifeline = -1;
  /// Called when the daemon listens and its drives are open. Exceptions from this and from `notice` are caught: perhaps
  /// nobody reads the messages any more, and the drives go on.
  std::function<void()> ready;
  /// Called with each message for the operator, one line at a time: that the engine died, or that it is back.
  std::function<void(std::string const&)> notice;
};

/// Serves until SIGINT, SIGTERM or SIGHUP (unless that was ignored before, as `nohup` does). Returns the reports of its
/// drives, all written back, under `drives`, and how often the engine was started again under `restarts`. The drives
/// run in a process of their own. When that process dies, another takes its place, with the bytes of `backing=memory`
/// as they were and those of a file as they were last flushed. Clients that were attached to the process that died find
/// their controllers gone, and may open them again.
///
/// Forks, so call it from a process that has no other threads in this library and has not used a GPU. Throws
/// `refused_input` and `operation_failed` as `open` does, and also if a daemon already listens there.
nlohmann::json serve(serve_options const& options);

}  // namespace forebay::drive
