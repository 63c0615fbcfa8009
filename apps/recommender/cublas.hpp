// SPDX-License-Identifier: Apache-2.0
//! \file
//! A recommender's matrix products by cuBLAS. The library is looked for when the first product object is made.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "forebay/memory.hpp"

namespace forebay::recommender {

enum class cublas_math { fp32, tf32 };

/// As `dlrm_naive_products`, in a stream of a GPU. It has a workspace of its own, so that it allocates nothing later.
/// Throws `operation_failed`.
class dlrm_cublas {
 public:
  dlrm_cublas(cudaStream_t stream, memory::resource& workspace_from, cublas_math math);
  ~dlrm_cublas();
  dlrm_cublas(dlrm_cublas const&) = delete;
  dlrm_cublas& operator=(dlrm_cublas const&) = delete;

  void multiply(float const* x, float const* w, float* y, std::uint32_t samples, std::uint32_t inputs,
                std::uint32_t outputs, std::uint32_t stride) const;
  void gram(float const* vector, float* products, std::uint32_t samples, std::uint32_t vectors,
            std::uint32_t floats) const;

  int version() const;

 private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay::recommender
