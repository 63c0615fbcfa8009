// SPDX-License-Identifier: Apache-2.0
//! \file
//! This program once more, in a process of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace forebay::bench {

/// Its destructor ends it (SIGTERM) and waits for it.
class child_process {
 public:
  /// Starts it with `arguments`, and `variables` in its environment beside the caller's. If `listens`, `line()` reads
  /// its output; otherwise the output goes where the caller's goes. Throws `operation_failed`.
  child_process(std::vector<std::string> const& arguments,
                std::vector<std::pair<std::string, std::string>> const& variables, bool listens);
  ~child_process();
  child_process(child_process const&) = delete;
  child_process& operator=(child_process const&) = delete;

  /// The next line of its output, without its end; empty once it has ended.
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
