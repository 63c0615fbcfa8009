// SPDX-License-Identifier: Apache-2.0
//! \file
//! Arithmetic for which a GPU has something quicker than what C++ asks for, if less exact.
#pragma once

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

/// a / b. On a GPU it is off by up to 2 units in the last place, and |b| must be in [2^-126, 2^126] (CUDA Math API,
/// "__fdividef"). Elsewhere it is rounded as C++ does.
FOREBAY_DEVICE float quick_quotient(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdividef(a, b);
#else
  return a / b;
#endif
}

}  // namespace forebay::simt
