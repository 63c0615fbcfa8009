// SPDX-License-Identifier: Apache-2.0
//! \file
//! Processes that this program starts; each wait for one has a limit.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace forebay::residency {

/// Another run of this program, killed at the end. Speaks in lines.
class child {
 public:
  /// `variables`: added to the environment.
  explicit child(std::vector<std::string> arguments,
                 std::vector<std::pair<std::string, std::string>> const& variables = {});
  ~child();
  child(child const&) = delete;
  child& operator=(child const&) = delete;

  pid_t id() const { return id_; }
  void say(std::string const& line);
  /// Returns the rest of its next line that begins with `word` and a space, or is `word`; other lines go to standard
  /// error. Throws `operation_failed` if none comes in time, or the process ends.
  std::string hear(std::string const& word, std::chrono::seconds limit);
  /// The same; none where none comes in time.
  std::optional<std::string> try_hear(std::string const& word, std::chrono::seconds limit);
  void signal(int number) const;
  /// Its wait status. Throws `operation_failed` if it does not end in time.
  int wait(std::chrono::seconds limit);

 private:
  pid_t id_ = 0;
  int to_ = -1, from_ = -1;
  std::string read_;
};

}  // namespace forebay::residency
