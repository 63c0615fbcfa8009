// SPDX-License-Identifier: Apache-2.0
//! \file
//! The replacement policies under test, each with the textbook's version of it.
#pragma once

#include <cstdint>
#include <memory>

#include "docs/examples/lru.hpp"
#include "forebay/clock.hpp"
#include "forebay/s3_fifo.hpp"
#include "policy_reference.hpp"

namespace forebay::test {

template <class Policy>
std::unique_ptr<reference_policy> reference_of(std::uint32_t ways);

template <>
inline std::unique_ptr<reference_policy> reference_of<replacement::clock>(std::uint32_t ways) {
  return std::make_unique<reference_clock>(ways);
}
template <>
inline std::unique_ptr<reference_policy> reference_of<replacement::s3_fifo>(std::uint32_t ways) {
  return std::make_unique<reference_s3_fifo>(s3_fifo_shape{.small_share = 1, .hits_to_stay = 2, .ghosts = ways});
}
template <>
inline std::unique_ptr<reference_policy> reference_of<lru>(std::uint32_t) {
  return std::make_unique<reference_lru>();
}

}  // namespace forebay::test
