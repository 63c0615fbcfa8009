// SPDX-License-Identifier: Apache-2.0
//! \file
//! The bytes that an emulated drive stores, and moving them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/emulator/prp.hpp"
#include "forebay/simt/vocabulary.hpp"

namespace forebay::emulator {

/// Words by which units ask the host to make writes durable. A unit raises `requested`; the host writes back and then
/// sets `completed` to the `requested` it had seen before.
struct sync_words {
  std::uint32_t requested = 0;
  std::uint32_t completed = 0;
  std::uint32_t failed = 0;  ///< not 0 once a write-back failed: every later Flush fails too
};

/// One namespace. Trivially copyable; units reach `data`.
struct media {
  std::byte* data = nullptr;  ///< null: commands are checked and timed, but move nothing (`data=none`)
  std::uint64_t bytes = 0;    ///< a multiple of the block size
  std::uint32_t block_bytes = 512;
  sync_words* sync = nullptr;  ///< null where a write is as durable as it gets when it was executed

  FOREBAY_DEVICE std::uint64_t blocks() const { return bytes / block_bytes; }

  /// From the drive to the client's segments.
  template <class M>
  FOREBAY_DEVICE void read(std::uint64_t offset, dma_segment const* segments, std::uint32_t count) const {
    if (data == nullptr) return;
    for (std::uint32_t i = 0; i < count; ++i) {
      M::copy(reinterpret_cast<void*>(segments[i].address), data + offset, segments[i].bytes);
      offset += segments[i].bytes;
    }
  }

  /// From the client's segments to the drive.
  template <class M>
  FOREBAY_DEVICE void write(std::uint64_t offset, dma_segment const* segments, std::uint32_t count) const {
    if (data == nullptr) return;
    for (std::uint32_t i = 0; i < count; ++i) {
      M::copy(data + offset, reinterpret_cast<void const*>(segments[i].address), segments[i].bytes);
      offset += segments[i].bytes;
    }
  }

  /// Whether the drive holds what the client's segments hold.
  template <class M>
  FOREBAY_DEVICE bool equal(std::uint64_t offset, dma_segment const* segments, std::uint32_t count) const {
    if (data == nullptr) return true;
    for (std::uint32_t i = 0; i < count; ++i) {
      // PRP entries are aligned to four bytes, and lengths are multiples of a block.
      auto const* const theirs = reinterpret_cast<std::uint32_t const*>(segments[i].address);
      auto const* const ours = reinterpret_cast<std::uint32_t const*>(data + offset);
      for (std::uint64_t word = 0; word < segments[i].bytes / 4; ++word) {
        if (M::ld(theirs + word) != M::ld(ours + word)) return false;
      }
      offset += segments[i].bytes;
    }
    return true;
  }

  /// Makes [offset, offset + bytes) read as zeros. Pages of zeros are left alone: storing to them would make a sparse
  /// drive real.
  template <class M>
  FOREBAY_DEVICE void zero(std::uint64_t offset, std::uint64_t length) const {
    if (data == nullptr) return;
    auto* const words = reinterpret_cast<std::uint64_t*>(data + offset);
    for (std::uint64_t i = 0; i < length / 8; ++i) {
      if (M::ld(words + i) != 0) M::st(words + i, 0);
    }
  }
};

}  // namespace forebay::emulator
