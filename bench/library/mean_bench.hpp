// SPDX-License-Identifier: Apache-2.0
//! \file
//! The mean of a vector on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>

namespace forebay::bench {

/// A vector in the memory of GPU 0. Throws `operation_failed`.
class mean_in_memory {
 public:
  explicit mean_in_memory(std::uint64_t elements);
  ~mean_in_memory();
  mean_in_memory(mean_in_memory const&) = delete;
  mean_in_memory& operator=(mean_in_memory const&) = delete;

  /// One pass over the vector.
  double seconds();
  /// Reads the same bytes with a kernel that does nothing else.
  double seconds_to_read();
  /// The mean of the last pass, and the exact mean.
  double value() const;
  double exact() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
