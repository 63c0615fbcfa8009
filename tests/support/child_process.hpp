// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "support/folders.hpp"

extern char** environ;

namespace forebay::test {

/// A program that was built with the running test. This process reads its standard output a line at a time. The child's
/// standard input ends when this object is destroyed or lets go of it. The destructor kills the child.
class child_process {
 public:
  child_process(std::string const& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), built_program(program));
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    int ends[2], in[2];
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe2(in, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    in_ = in[1];
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
    close(in[0]);
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
    if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
  }
  ~child_process() {
    if (id_ > 0) kill_and_wait(SIGKILL);
    stop_reading();
    let_go();
  }
  child_process(child_process const&) = delete;
  child_process& operator=(child_process const&) = delete;

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
  void let_go() {
    if (int const in = std::exchange(in_, -1); in >= 0) close(in);
  }
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
  int in_ = -1;
};

}  // namespace forebay::test
