// SPDX-License-Identifier: Apache-2.0
#include "harness/child_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "forebay/error.hpp"

namespace forebay::bench {
namespace {

/// In the form that `execve` needs.
std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all;
  for (std::string& string : strings) all.push_back(string.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

child_process::child_process(std::vector<std::string> const& arguments,
                             std::vector<std::pair<std::string, std::string>> const& variables, bool listens) {
  std::string const self = "/proc/self/exe";
  std::vector<std::string> command{self};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment;
  for (auto const& [name, value] : variables) environment.push_back(name + '=' + value);
  for (char** at = environ; *at != nullptr; ++at) environment.emplace_back(*at);  // the first of a name counts
  int ends[2] = {-1, -1};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (listens) {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw operation_failed(std::string("pipe: ") + std::strerror(errno));
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  }
  std::vector<char*> const argv = pointers(command), envp = pointers(environment);
  int const error = posix_spawn(&pid_, self.c_str(), &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (ends[1] >= 0) ::close(ends[1]);
  output_ = ends[0];
  if (error == 0) return;
  pid_ = -1;
  if (output_ >= 0) ::close(output_);
  throw operation_failed(std::string("cannot start another process of this program: ") + std::strerror(error));
}

child_process::~child_process() {
  terminate();
  wait();
  if (output_ >= 0) ::close(output_);
}

std::string child_process::line() {
  std::string text;
  for (char c = 0; ::read(output_, &c, 1) == 1 && c != '\n';) text += c;
  return text;
}

int child_process::wait() {
  if (pid_ < 0) return 0;
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void child_process::terminate() noexcept {
  if (pid_ >= 0) ::kill(pid_, SIGTERM);
}

}  // namespace forebay::bench
