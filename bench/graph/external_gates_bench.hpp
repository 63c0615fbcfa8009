// SPDX-License-Identifier: Apache-2.0
//! \file
//! The measurements of external memory on a GPU, for sources that nvcc does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/external_gates_rows.hpp"

namespace forebay::bench {

/// The compiler's figures for a kernel.
struct gate_kernel {
  std::string name;
  std::uint32_t registers = 0;
  std::uint64_t local_bytes = 0;
  std::uint32_t threads_per_sm = 0;
};

/// GPU 0, with data in its memory and in page-locked host memory. Throws `operation_failed`.
class gates_on_gpu {
 public:
  gates_on_gpu(std::uint64_t device_bytes, std::uint64_t pinned_bytes);
  ~gates_on_gpu();
  gates_on_gpu(gates_on_gpu const&) = delete;
  gates_on_gpu& operator=(gates_on_gpu const&) = delete;

  gate_run run(gate_row const& row, std::uint64_t seed);
  /// In blocks as they are launched.
  static std::vector<gate_kernel> kernels();

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
