// SPDX-License-Identifier: Apache-2.0
//! \file
//! Moves bytes between a drive and its clients' memory: one thread does so on the CPU, all lanes of a warp, with many
//! loads in flight, on a GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/simt/move_bytes.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

using simt::loads_in_flight;

/// `simt::move_bytes` by all lanes of a team.
template <class M>
FOREBAY_DEVICE void move_bytes(simt::team<M> const& lanes, std::byte* to, std::byte const* from, std::uint64_t bytes) {
  simt::move_bytes<M>(lanes.rank(), lanes.count(), to, from, bytes);
}

/// Copies that the lanes of a team make together. The lanes share the list.
class move_list {
 public:
  static constexpr std::uint32_t capacity = 32;

  /// Begins a new list.
  template <class M>
  FOREBAY_DEVICE void clear(simt::team<M> const& lanes) {
    lanes.sync();
    if (lanes.leader()) count_ = 0;
    lanes.sync();
  }

  /// Adds the copy of each lane that `has` one.
  template <class M>
  FOREBAY_DEVICE void append(simt::team<M> const& lanes, bool has, std::byte* to, std::byte const* from,
                             std::uint32_t bytes) {
    std::uint32_t const having = lanes.ballot(has);
    std::uint32_t const first = count_;
    if (has) {
      std::uint32_t const i = first + simt::team<M>::ones(having & ((1u << lanes.rank()) - 1));
      to_[i] = to;
      from_[i] = from;
      bytes_[i] = bytes;
    }
    lanes.sync();
    if (lanes.leader()) count_ = first + simt::team<M>::ones(having);
    lanes.sync();
  }

  /// Makes all copies.
  template <class M>
  FOREBAY_DEVICE void run(simt::team<M> const& lanes) const {
    if constexpr (M::lanes_are_alone) {
      constexpr std::uint32_t ahead = 4;
      for (std::uint32_t i = 0; i < ahead && i < count_; ++i) prefetch(i);
      for (std::uint32_t i = 0; i < count_; ++i) {
        if (i + ahead < count_) prefetch(i + ahead);
        M::copy(to_[i], from_[i], bytes_[i]);
      }
    } else {
      bool alike = true;
      for (std::uint32_t i = lanes.rank(); i < count_; i += lanes.count()) {
        auto const addresses = reinterpret_cast<std::uintptr_t>(to_[i]) | reinterpret_cast<std::uintptr_t>(from_[i]);
        alike = alike && (addresses | bytes_[i]) % 16 == 0 && bytes_[i] == bytes_[0];
      }
      if (lanes.all(alike) && count_ != 0) {
        std::uint32_t pieces_log2 = 0;
        while ((std::uint64_t{lanes.count()} * 16 << pieces_log2) < bytes_[0]) ++pieces_log2;
        if (pieces_log2 <= 3) return run_alike(lanes, pieces_log2);
      }
      for (std::uint32_t i = 0; i < count_; ++i) move_bytes(lanes, to_[i], from_[i], bytes_[i]);
    }
  }

 private:
  /// Copies of the same size, in pieces of one access for each lane: then small copies have as many loads in flight as
  /// large ones. `pieces_log2`: how many pieces each copy has.
  template <class M>
  FOREBAY_DEVICE void run_alike(simt::team<M> const& lanes, std::uint32_t pieces_log2) const {
    std::uint32_t const count = count_ << pieces_log2;
    std::uint32_t const bytes = bytes_[0];
    for (std::uint32_t first = 0; first < count; first += loads_in_flight) {
      simt::vec16 part[loads_in_flight];
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < loads_in_flight; ++j) {
        std::uint32_t const at = offset(lanes, first + j, pieces_log2);
        if (first + j < count && at < bytes) {
          part[j] = M::ld(reinterpret_cast<simt::vec16 const*>(from_[(first + j) >> pieces_log2] + at));
        }
      }
      FOREBAY_UNROLL
      for (std::uint32_t j = 0; j < loads_in_flight; ++j) {
        std::uint32_t const at = offset(lanes, first + j, pieces_log2);
        if (first + j < count && at < bytes) {
          M::st(reinterpret_cast<simt::vec16*>(to_[(first + j) >> pieces_log2] + at), part[j]);
        }
      }
    }
  }
  /// Where in its copy the calling lane's part of a piece lies.
  template <class M>
  FOREBAY_DEVICE static std::uint32_t offset(simt::team<M> const& lanes, std::uint32_t piece,
                                             std::uint32_t pieces_log2) {
    return ((piece & ((1u << pieces_log2) - 1)) * lanes.count() + lanes.rank()) * 16;
  }

  /// Prefetches the bytes that a copy reads into the caches of a CPU.
  FOREBAY_DEVICE void prefetch([[maybe_unused]] std::uint32_t i) const {
#if !defined(__CUDACC__)
    std::uint32_t const bytes = bytes_[i] < 512 ? bytes_[i] : 512;
    for (std::uint32_t at = 0; at < bytes; at += 64) __builtin_prefetch(from_[i] + at);
#endif
  }

  std::byte* to_[capacity];
  std::byte const* from_[capacity];
  std::uint32_t bytes_[capacity];
  std::uint32_t count_;
};

}  // namespace forebay::emulator
