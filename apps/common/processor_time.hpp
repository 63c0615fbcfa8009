// SPDX-License-Identifier: Apache-2.0
//! \file
//! How much processor time a run took, in fio's terms.
#pragma once

#include <sys/resource.h>

#include <chrono>

namespace forebay::apps {

/// Percent of one CPU over the whole process: the threads of an emulated drive count.
struct processor_share {
  double user_percent = 0;
  double system_percent = 0;
};

/// Measures from its construction.
class processor_time {
 public:
  processor_time() : began_(std::chrono::steady_clock::now()) {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    user_s_ = seconds(used.ru_utime);
    system_s_ = seconds(used.ru_stime);
  }
  processor_share share() const {
    processor_time const now;
    double const wall_s = std::chrono::duration<double>(now.began_ - began_).count();
    return {100 * (now.user_s_ - user_s_) / wall_s, 100 * (now.system_s_ - system_s_) / wall_s};
  }

 private:
  static double seconds(timeval t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }

  std::chrono::steady_clock::time_point began_;
  double user_s_ = 0;
  double system_s_ = 0;
};

}  // namespace forebay::apps
