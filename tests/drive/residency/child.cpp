// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

extern char** environ;

namespace forebay::residency {
namespace {

using clock = std::chrono::steady_clock;

int left_ms(clock::time_point until) {
  auto const left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

}  // namespace

child::child(std::vector<std::string> arguments, std::vector<std::pair<std::string, std::string>> const& variables) {
  arguments.insert(arguments.begin(), "/proc/" + std::to_string(::getpid()) + "/exe");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  std::vector<std::string> added;
  for (auto const& [name, value] : variables) added.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& a : added) environment.push_back(a.data());  // the first of a name counts
  for (char** e = environ; *e != nullptr; ++e) environment.push_back(*e);
  environment.push_back(nullptr);

  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) throw operation_failed("cannot make a pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  int const error = ::posix_spawn(&id_, argv[0], &actions, nullptr, argv.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = out[0];
  if (error != 0) throw operation_failed(fmt::format("cannot start a process: {}", std::strerror(error)));
}

child::~child() {
  if (id_ > 0) {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
  ::close(to_);
  ::close(from_);
}

void child::say(std::string const& line) {
  std::string const text = line + "\n";
  if (::write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw operation_failed(fmt::format("process {} does not listen", id_));
  }
}

std::string child::hear(std::string const& word, std::chrono::seconds limit) {
  if (auto const rest = try_hear(word, limit)) return *rest;
  throw operation_failed(fmt::format("process {} did not say '{}' within {} s", id_, word, limit.count()));
}

std::optional<std::string> child::try_hear(std::string const& word, std::chrono::seconds limit) {
  auto const until = clock::now() + limit;
  for (;;) {
    for (std::size_t end; (end = read_.find('\n')) != std::string::npos;) {
      std::string const line = read_.substr(0, end);
      read_.erase(0, end + 1);
      if (line == word) return "";
      if (line.starts_with(word + " ")) return line.substr(word.size() + 1);
      std::fprintf(stderr, "%s\n", line.c_str());
    }
    pollfd wanted{from_, POLLIN, 0};
    int const ready = ::poll(&wanted, 1, left_ms(until));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return std::nullopt;
    char piece[4096];
    ssize_t const n = ::read(from_, piece, sizeof piece);
    if (n <= 0) throw operation_failed(fmt::format("process {} ended before it said '{}'", id_, word));
    read_.append(piece, static_cast<std::size_t>(n));
  }
}

void child::signal(int number) const {
  if (id_ > 0) ::kill(id_, number);
}

int child::wait(std::chrono::seconds limit) {
  int status = 0;
  bool const ended = simt::native::wait_until(
      [&] { return ::waitpid(id_, &status, WNOHANG) != 0; },
      simt::native::clock_ns() + static_cast<std::uint64_t>(std::chrono::nanoseconds(limit).count()));
  if (!ended) throw operation_failed(fmt::format("process {} did not end within {} s", id_, limit.count()));
  id_ = 0;
  return status;
}

}  // namespace forebay::residency
