// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drive daemons for tests: in threads of this process, and in processes of their own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "drive/served/channel.hpp"
#include "drive/served/server.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "support/folders.hpp"

extern char** environ;

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

/// A child process. This process reads its standard output a line at a time. The child's standard input ends when this
/// object is destroyed or lets go of it. The destructor kills the child.
class process {
 public:
  explicit process(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), built_program("served_process"));
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    int ends[2], in[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe2(in, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    in_ = served::open_file(in[1]);
    served::open_file const theirs(in[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    // The parent of the tests may have set these signals to be ignored, as `nohup` does.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    int const error = posix_spawn(&id_, argv[0], &actions, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
    if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
  }
  ~process() {
    if (id_ > 0) kill_and_wait(SIGKILL);
    stop_reading();
  }
  process(process const&) = delete;
  process& operator=(process const&) = delete;

  pid_t id() const { return id_; }
  /// Empty at the end.
  std::string line() {
    std::string text;
    for (int c = std::fgetc(out_); c != EOF && c != '\n'; c = std::fgetc(out_)) text.push_back(static_cast<char>(c));
    return text;
  }
  /// Nobody has the other end of its standard output any more.
  void stop_reading() {
    if (FILE* const out = std::exchange(out_, nullptr)) std::fclose(out);
  }
  /// Nobody has the other end of its standard input any more.
  void let_go() { in_ = served::open_file(); }
  int kill_and_wait(int signal) {
    kill(id_, signal);
    return wait();
  }
  int wait() {
    int status = -1;
    waitpid(std::exchange(id_, 0), &status, 0);
    return status;
  }
  /// Returns its status once it has ended; none if that takes too long.
  std::optional<int> wait_for(std::uint64_t limit_ns) {
    int status = -1;
    bool const ended = simt::native::wait_until([&] { return waitpid(id_, &status, WNOHANG) == id_; },
                                                simt::native::clock_ns() + limit_ns);
    if (!ended) return std::nullopt;
    id_ = 0;
    return status;
  }

 private:
  pid_t id_ = 0;
  FILE* out_ = nullptr;
  served::open_file in_;
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
