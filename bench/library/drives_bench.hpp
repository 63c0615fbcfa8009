// SPDX-License-Identifier: Apache-2.0
//! \file
//! Random transfers over drives on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "forebay/storage.hpp"
#include "library/drives.hpp"

namespace forebay::bench {

/// Drives with or without a cache, as `options` say; every block of them is written. Throws `refused_input`,
/// `operation_failed`.
class drives_on_gpu {
 public:
  /// `client_sms`: multiprocessors that the client may use.
  drives_on_gpu(storage_options const& options, std::uint32_t client_sms, std::uint32_t block_bytes);
  ~drives_on_gpu();
  drives_on_gpu(drives_on_gpu const&) = delete;
  drives_on_gpu& operator=(drives_on_gpu const&) = delete;

  struct timing {
    double seconds;
    drives_result seen;
  };
  /// For about `run_ns`. Reads of drives with a cache go through an array view.
  timing run(bool writes, std::uint64_t run_ns, std::uint64_t seed);
  /// Reads every block once. Returns how many are wrong or cannot be read.
  std::uint64_t wrong_blocks();

  storage& drives();
  std::uint32_t threads() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
