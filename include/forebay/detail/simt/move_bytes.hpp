// SPDX-License-Identifier: Apache-2.0
//! \file
//! Copies bytes by several lanes together, with many loads in flight.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

/// How many 16-byte accesses a lane has in flight.
inline constexpr std::uint32_t loads_in_flight = 8;

/// Copies `bytes` bytes between areas that do not overlap; `bytes` and the addresses are multiples of 4. `count` lanes
/// call it with the same other arguments, and each with its own `rank` below `count`. Nothing orders their accesses.
template <class M>
FOREBAY_DEVICE void move_bytes(std::uint32_t rank, std::uint32_t count, std::byte* to, std::byte const* from,
                               std::uint64_t bytes) {
  if constexpr (M::lanes_are_alone) {
    M::copy(to, from, bytes);
  } else if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes) % 16 == 0) {
    std::uint64_t const step = std::uint64_t{count} * 16;
    for (std::uint64_t at = rank * 16; at < bytes; at += step * loads_in_flight) {
      vec16 part[loads_in_flight];
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < loads_in_flight; ++j) {
        if (at + j * step < bytes) part[j] = M::ld(reinterpret_cast<vec16 const*>(from + at + j * step));
      }
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < loads_in_flight; ++j) {
        if (at + j * step < bytes) M::st(reinterpret_cast<vec16*>(to + at + j * step), part[j]);
      }
    }
  } else {
    for (std::uint64_t at = rank * 4; at < bytes; at += std::uint64_t{count} * 4) {
      M::st(reinterpret_cast<std::uint32_t*>(to + at), M::ld(reinterpret_cast<std::uint32_t const*>(from + at)));
    }
  }
}

}  // namespace forebay::simt
