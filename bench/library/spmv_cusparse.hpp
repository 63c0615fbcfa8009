// SPDX-License-Identifier: Apache-2.0
//! \file
//! cuSPARSE's product of a CSR matrix and a vector, for comparison. The library is looked for when the first product is
//! made.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "forebay/memory.hpp"

namespace forebay::bench {

/// Device memory. The row offsets have 32 bits, with which cuSPARSE is fastest.
struct cusparse_matrix {
  std::int64_t rows;
  std::int64_t entries;
  std::int32_t const* row_begin;
  std::uint32_t const* columns;
  float const* values;
};

enum class cusparse_algorithm { csr_1, csr_2 };

/// One product, analysed once and computed any number of times. Throws `operation_failed`.
class cusparse_spmv {
 public:
  cusparse_spmv(cudaStream_t stream, memory::resource& workspace_from, cusparse_matrix const& a, float const* x,
                float* y, cusparse_algorithm algorithm);
  ~cusparse_spmv();
  cusparse_spmv(cusparse_spmv const&) = delete;
  cusparse_spmv& operator=(cusparse_spmv const&) = delete;

  /// Starts y = A x.
  void operator()() const;

  static int version();

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::bench
