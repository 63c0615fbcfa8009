// SPDX-License-Identifier: Apache-2.0
//! \file
//! Integer arithmetic that machines have instructions for and C++ has no operator.
#pragma once

#include <cstdint>

#include "forebay/simt/vocabulary.hpp"

namespace forebay::simt {

/// The upper 64 bits of the product.
FOREBAY_DEVICE constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  __extension__ using wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<wide>(a) * b >> 64);
#endif
}

}  // namespace forebay::simt
