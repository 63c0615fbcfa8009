// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drive daemons for tests: in threads of this process, and in processes of their own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "drive/served/channel.hpp"
#include "drive/served/server.hpp"
#include "forebay/error.hpp"
#include "support/child_process.hpp"

namespace forebay::test {

namespace served = drive::served;

inline std::string temporary(std::string const& name) {
  return (std::filesystem::path(::testing::TempDir()) / ("forebay-" + std::to_string(getpid()) + "-" + name)).string();
}

template <class Step>
std::string refusal(Step&& step) {
  try {
    step();
  } catch (refused_input const& refused) {
    return refused.what();
  }
  return "accepted";
}

/// A daemon or a client.
struct process : child_process {
  explicit process(std::vector<std::string> const& arguments) : child_process("served_process", arguments) {}
};

/// Clients of this process and of those that it starts find their daemon at `path`.
struct socket_path {
  explicit socket_path(std::string const& name) : path(temporary(name)) { setenv("FOREBAY_DAEMON", path.c_str(), 1); }
  ~socket_path() { std::filesystem::remove(path); }
  std::string path;
};

/// A daemon in threads of this process.
struct local_daemon {
  explicit local_daemon(std::vector<std::string> const& drives = {}, served::client_limits const& limits = {})
      : listening(served::listen_at(socket.path)), server(listening.get(), nullptr, 0, limits) {
    for (std::string const& uri : drives) server.open(uri);
  }
  socket_path socket{"local.sock"};
  served::open_file listening;
  served::server server;
};

/// A daemon in a process of its own.
struct far_daemon {
  explicit far_daemon(std::vector<std::string> const& drives = {}, std::string const& how = "serve")
      : daemon(arguments(how, drives)) {
    if (daemon.line() != "ready") throw std::runtime_error("the daemon does not start");
  }
  std::vector<std::string> arguments(std::string const& how, std::vector<std::string> const& drives) const {
    std::vector<std::string> all = {how, socket.path};
    all.insert(all.end(), drives.begin(), drives.end());
    return all;
  }
  /// The process that has the drives.
  pid_t engine() const {
    std::ifstream children("/proc/" + std::to_string(daemon.id()) + "/task/" + std::to_string(daemon.id()) +
                           "/children");
    pid_t id = 0;
    children >> id;
    return id;
  }
  socket_path socket{"far.sock"};
  process daemon;
};

}  // namespace forebay::test
