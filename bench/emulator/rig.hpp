// SPDX-License-Identifier: Apache-2.0
//! \file
//! A drive with its queues, and the client's side of them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "emulator/cases.hpp"
#include "emulator/raw_workload.hpp"

namespace forebay::bench {

/// Multiprocessors of the client's GPU, as this process sees it.
std::uint32_t multiprocessors();

class rig {
 public:
  /// Opens the drive of `c`, and takes all its queues. The client's kernels may use `client_sms` multiprocessors.
  rig(bench_case const& c, std::string const& residency, std::uint32_t client_sms);
  ~rig();
  rig(rig const&) = delete;
  rig& operator=(rig const&) = delete;

  std::string const& key() const { return key_; }
  nlohmann::json report();
  void reset_statistics();

  /// The client's workload in a case of the same key, without its duration.
  raw_workload workload(bench_case const& c) const;
  std::uint32_t blocks(bench_case const& c) const;
  std::uint64_t threads(bench_case const& c) const;
  /// Whether all threads of a case run from its beginning on.
  bool fit_at_a_time(bench_case const& c) const;
  /// To be called if the client has fewer multiprocessors than it was told.
  void leave_a_multiprocessor() { --client_sms_; }

  /// Writes the whole drive, and reads blocks of it back, every byte of them. Returns whether all was right.
  bool fill(bench_case const& c, raw_result& seen);
  /// Runs the client; returns the seconds that it took.
  double run(bench_case const& c, raw_workload const& work, raw_result& seen);

 private:
  class implementation;
  std::string key_;
  std::uint32_t client_sms_;
  std::unique_ptr<implementation> implementation_;
};

/// Whether a client saw nothing that it should not see.
inline bool clean(raw_result const& seen) {
  return seen.failed == 0 && seen.wrong == 0 && seen.timed_out == 0;
}

}  // namespace forebay::bench
