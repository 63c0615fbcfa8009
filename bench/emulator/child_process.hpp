// SPDX-License-Identifier: Apache-2.0
//! \file
//! This program once more, in a process of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace forebay::bench {

/// Ended (SIGTERM) and waited for when destroyed.
class child_process {
 public:
  /// Starts it with `arguments`, and `variables` in its environment beside the caller's. What it prints can be read
  /// with `line()` where `listens`, and goes where the caller's goes otherwise. Throws `operation_failed`.
  child_process(std::vector<std::string> const& arguments,
                std::vector<std::pair<std::string, std::string>> const& variables, bool listens);
  ~child_process();
  child_process(child_process const&) = delete;
  child_process& operator=(child_process const&) = delete;

  /// The next line of what it prints, without its end; empty once it has ended.
  std::string line();
  /// Its exit status, or 128 and the signal that ended it.
  int wait();
  /// Asks it to end.
  void terminate() noexcept;

 private:
  int pid_ = -1;
  int output_ = -1;
};

}  // namespace forebay::bench
