// SPDX-License-Identifier: Apache-2.0
//! \file
//! The CTC kernel on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "library/ctc.hpp"

namespace forebay::bench {

/// One block of threads and the drives that they read. Throws `refused_input`, `operation_failed`.
class ctc_on_gpu {
 public:
  static constexpr std::uint32_t threads = 1024;

  /// `work`: the largest run. Opens the drives and writes them.
  ctc_on_gpu(std::vector<std::string> const& drives, ctc_work const& work);
  ~ctc_on_gpu();
  ctc_on_gpu(ctc_on_gpu const&) = delete;
  ctc_on_gpu& operator=(ctc_on_gpu const&) = delete;

  std::uint64_t blocks() const;
  /// Returns how long one run takes; adds its counts to `result`.
  double seconds(ctc_work const& work, ctc_result& result);
  /// The same with threads that compute and do not read.
  double seconds_to_compute(ctc_work work);
  /// JSON of the storage, since its statistics were last reset.
  std::string report() const;
  void reset_statistics();
  std::uint32_t registers() const;
  std::uint64_t local_bytes() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
