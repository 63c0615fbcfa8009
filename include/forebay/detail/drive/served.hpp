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
  /// An open file: the daemon ends, as by a signal, when whoever holds its other end has gone. -1: none. So a daemon
  /// does not outlive the program that started it, however that ends.
  int lifeline = -1;
  /// Told when the daemon listens and its drives are open. What this and `notice` throw is caught: nobody may be there
  /// to read it any more, and the drives go on.
  std::function<void()> ready;
  /// Told, a line at a time, what an operator must know: that the engine died, and is back.
  std::function<void(std::string const&)> notice;
};

/// Serves until SIGINT, SIGTERM or SIGHUP (unless that was ignored before, as `nohup` does); returns the reports of its
/// drives, all written back, under `drives`, and how often the engine was started again under `restarts`. The drives
/// run in a process of their own: when it dies, another takes its place, with the bytes of `backing=memory` as they
/// were and those of a file as they were last flushed. Clients attached to the one that died find their controllers
/// gone, and may open them again.
///
/// Forks: call it from a process that has no other threads in this library, and has not used a GPU. Throws
/// `refused_input` and `operation_failed` as `open` does, and where a daemon listens there already.
nlohmann::json serve(serve_options const& options);

}  // namespace forebay::drive
