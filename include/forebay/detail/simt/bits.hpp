// SPDX-License-Identifier: Apache-2.0
//! \file
//! Integer operations for which machines have instructions and C++ has no operator.
#pragma once

#include <bit>
#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

/// The position of the lowest set bit of `bits`, which is not 0.
FOREBAY_DEVICE std::uint32_t lowest_bit(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__ffs(static_cast<int>(bits))) - 1;
#else
  return static_cast<std::uint32_t>(std::countr_zero(bits));
#endif
}

/// How many bits of `bits` are set.
FOREBAY_DEVICE std::uint32_t count_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(bits));
#else
  return static_cast<std::uint32_t>(std::popcount(bits));
#endif
}

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
