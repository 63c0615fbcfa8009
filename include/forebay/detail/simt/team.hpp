// SPDX-License-Identifier: Apache-2.0
//! \file
//! Lanes that work through a batch together: a whole warp on a GPU, one thread on the CPU, and the lanes of a block's
//! warp on fibers. Loops over a batch are written once: `for (i = team.rank; i < n; i += team.count)`.
#pragma once

#include <bit>
#include <cstdint>

#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::simt {

/// How many bits a number has without leading zeros.
FOREBAY_DEVICE constexpr std::uint32_t bit_width(std::uint64_t number) {
#if defined(__CUDA_ARCH__)
  return 64 - static_cast<std::uint32_t>(__clzll(static_cast<long long>(number)));
#else
  return static_cast<std::uint32_t>(std::bit_width(number));
#endif
}

/// The calling lane's view of its team. All lanes of a team call the same member together. If a machine has one lane in
/// a warp, every member is the identity.
template <class M>
class team {
 public:
  /// The team of all lanes of the calling thread's warp, which a GPU must have launched in full.
  FOREBAY_DEVICE static team here() { return team(M::this_warp()); }

  FOREBAY_DEVICE std::uint32_t rank() const { return alone ? 0 : warp_.thread_rank(); }
  FOREBAY_DEVICE std::uint32_t count() const {
    if constexpr (M::full_warp_lanes != 0) {
      return M::full_warp_lanes;
    } else {
      return ones(warp_.mask());
    }
  }
  FOREBAY_DEVICE bool leader() const { return rank() == 0; }
  /// Orders the lanes' accesses to memory that they share.
  FOREBAY_DEVICE void sync() const {
    if constexpr (!alone) warp_.sync();
  }
  FOREBAY_DEVICE std::uint32_t ballot(bool p) const { return alone ? (p ? 1u : 0u) : warp_.ballot(p); }
  FOREBAY_DEVICE bool any(bool p) const { return alone ? p : warp_.any(p); }
  FOREBAY_DEVICE bool all(bool p) const { return alone ? p : warp_.all(p); }
  /// The value that lane `from` passed.
  template <class T>
  FOREBAY_DEVICE T broadcast(T value, std::uint32_t from = 0) const {
    if constexpr (alone) return value;
    return warp_.shfl(value, from);
  }
  FOREBAY_DEVICE std::uint64_t sum(std::uint64_t value) const {
    if constexpr (has_reductions) {
      // 27 bits at a time: 32 of them fit a word.
      constexpr std::uint32_t part = (1u << 27) - 1;
      return warp_.reduce_add(static_cast<std::uint32_t>(value) & part) +
             (std::uint64_t{warp_.reduce_add(static_cast<std::uint32_t>(value >> 27) & part)} << 27) +
             (std::uint64_t{warp_.reduce_add(static_cast<std::uint32_t>(value >> 54))} << 54);
    } else {
      return reduce(value, [](std::uint64_t a, std::uint64_t b) { return a + b; });
    }
  }
  /// The same for sums below 2^32.
  FOREBAY_DEVICE std::uint32_t sum32(std::uint32_t value) const {
    if constexpr (has_reductions) {
      return warp_.reduce_add(value);
    } else {
      return static_cast<std::uint32_t>(sum(value));
    }
  }
  FOREBAY_DEVICE std::uint64_t min(std::uint64_t value) const {
    if constexpr (has_reductions) {
      return ~max(~value);
    } else {
      return reduce(value, [](std::uint64_t a, std::uint64_t b) { return a < b ? a : b; });
    }
  }
  FOREBAY_DEVICE std::uint64_t max(std::uint64_t value) const {
    if constexpr (has_reductions) {
      std::uint32_t const high = warp_.reduce_max(static_cast<std::uint32_t>(value >> 32));
      bool const leads = static_cast<std::uint32_t>(value >> 32) == high;
      return std::uint64_t{high} << 32 | warp_.reduce_max(leads ? static_cast<std::uint32_t>(value) : 0);
    } else {
      return reduce(value, [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; });
    }
  }
  /// The sum over the lanes up to the calling one, itself included.
  FOREBAY_DEVICE std::uint64_t inclusive_sum(std::uint64_t value) const {
    if constexpr (!alone) {
      for (std::uint32_t d = 1; d < count(); d *= 2) {
        std::uint64_t const before = warp_.shfl(value, rank() >= d ? rank() - d : rank());
        if (rank() >= d) value += before;
      }
    }
    return value;
  }

  FOREBAY_DEVICE static std::uint32_t ones(std::uint32_t mask) { return count_bits(mask); }
  /// Position of the lowest set bit; `mask` is not 0.
  FOREBAY_DEVICE static std::uint32_t lowest(std::uint32_t mask) { return lowest_bit(mask); }
  /// Position of the highest set bit; `mask` is not 0.
  FOREBAY_DEVICE static std::uint32_t highest(std::uint32_t mask) {
#if defined(__CUDA_ARCH__)
    return 31 - static_cast<std::uint32_t>(__clz(static_cast<int>(mask)));
#else
    return 31 - static_cast<std::uint32_t>(__builtin_clz(mask));
#endif
  }

 private:
  static constexpr bool alone = M::lanes_are_alone;
  /// Whether the machine sums and compares over a warp in one instruction.
  static constexpr bool has_reductions = M::reduces_warps;

  FOREBAY_DEVICE explicit team(typename M::warp warp) : warp_(warp) {}

  template <class Operation>
  FOREBAY_DEVICE std::uint64_t reduce(std::uint64_t value, Operation&& operation) const {
    if constexpr (!alone) {
      for (std::uint32_t d = 16; d != 0; d /= 2) {
        bool const has = rank() + d < count();
        std::uint64_t const other = warp_.shfl(value, has ? rank() + d : rank());
        if (has) value = operation(value, other);
      }
      value = warp_.shfl(value, 0);
    }
    return value;
  }

  typename M::warp warp_;
};

}  // namespace forebay::simt
