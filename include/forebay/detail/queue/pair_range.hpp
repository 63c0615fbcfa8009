// SPDX-License-Identifier: Apache-2.0
//! \file
//! Some of the queue pairs of a storage.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// `count` queue pairs, `stride` apart, from `first`.
struct pair_range {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t stride = 1;

  FOREBAY_DEVICE constexpr std::uint32_t at(std::uint32_t k) const { return first + k * stride; }
};

}  // namespace forebay
