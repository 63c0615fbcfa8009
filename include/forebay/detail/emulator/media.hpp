// SPDX-License-Identifier: Apache-2.0
//! \file
//! The bytes that an emulated drive stores.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/mover.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

class medium;

/// Words by which units ask the host to make writes durable. A unit raises `requested`; the host writes back and then
/// sets `completed` to the `requested` it had seen before.
struct sync_words {
  std::uint32_t requested = 0;
  std::uint32_t completed = 0;
  std::uint32_t failed = 0;  ///< not 0 once a write-back failed: every later Flush fails too
  /// How many controllers have switched their volatile write cache off. While there are any, a write completes when it
  /// is durable.
  std::uint32_t without_cache = 0;
  std::uint32_t refused_beyond_end = 0;  ///< not 0 once a write was refused for what it has beyond the file's end
};

/// Pages of a mapped file that were not available, because the disk was full or the file was cut shorter. What they
/// held is lost, and what is written to them is discarded.
struct lost_pages {
  static constexpr std::uint64_t page_bytes = 4096;
  std::uint32_t any = 0;          ///< not 0 once there is a lost page
  std::uint64_t* bits = nullptr;  ///< one for each page
};

/// One namespace. Trivially copyable; units reach `data`. All lanes of a team call a member together.
struct media {
  /// How many bytes (log2) one byte of `dirty` stands for.
  static constexpr std::uint32_t dirty_chunk_log2 = 16;

  std::byte* data = nullptr;  ///< null: commands are checked and timed, but move nothing (`data=none`), or see `pieces`
  std::uint64_t bytes = 0;    ///< a multiple of the block size
  std::uint32_t block_bytes = 512;
  sync_words* sync = nullptr;     ///< null if a write is as durable as it can be once it was executed
  std::uint8_t* dirty = nullptr;  ///< not null: 1 for each chunk that was written since the host cleared it
  bool read_only = false;         ///< the namespace is write protected: `data` may be mapped for reading only
  lost_pages* lost = nullptr;     ///< of a mapped file; null: no page can be lost
  /// Where the file of the drive ends, which may be within the last block. Bytes from there on read as zeros, and
  /// nothing else may be written to them.
  std::uint64_t end_bytes = ~std::uint64_t{0};
  medium* pieces = nullptr;  ///< not null: the bytes are there, and `data` is null

  FOREBAY_DEVICE std::uint64_t blocks() const { return bytes / block_bytes; }

  /// Whether units of this machine can lose pages at all: those on a GPU never reach a mapped file. Even if they never
  /// execute it, code for lost pages costs them registers, and a quarter of the commands that they serve.
  template <class M>
  static constexpr bool may_lose = M::reaches_files;

  /// Whether a page of [offset, offset + length), which the caller has just read or written, is lost. One lane calls
  /// it.
  template <class M>
  FOREBAY_DEVICE bool has_lost(std::uint64_t offset, std::uint64_t length) const {
    if (lost == nullptr || length == 0) return false;
    // Acquire: pairs with the handler's release before it puts zeros in a page's place. A thread that moved those zeros
    // sees the note, and the fence keeps this look after the access.
    M::fence(simt::scope::system, simt::order::acquire);
    if (simt::atomic<M, simt::scope::system>(lost->any).load(simt::order::acquire) == 0) return false;
    std::uint64_t const last = (offset + length - 1) / lost_pages::page_bytes;
    for (std::uint64_t page = offset / lost_pages::page_bytes; page <= last; ++page) {
      // Relaxed: see above.
      std::uint64_t const bits = simt::atomic<M, simt::scope::system>(lost->bits[page / 64]).load(simt::order::relaxed);
      if ((bits >> page % 64 & 1) != 0) return true;
    }
    return false;
  }

  /// Whether [offset, offset + length) reaches beyond the end of the drive's file.
  template <class M>
  FOREBAY_DEVICE bool reaches_beyond_end([[maybe_unused]] std::uint64_t offset,
                                         [[maybe_unused]] std::uint64_t length) const {
    if constexpr (M::reaches_files) {
      return offset + length > end_bytes;
    } else {
      return false;
    }
  }
  /// How many of `length` bytes at `offset` lie before the end of the drive's file.
  template <class M>
  FOREBAY_DEVICE std::uint64_t before_end(std::uint64_t offset, std::uint64_t length) const {
    if (!reaches_beyond_end<M>(offset, length)) return length;
    return offset < end_bytes ? end_bytes - offset : 0;
  }
  /// Whether the client's segments hold only zeros for what lies beyond the end of the drive's file.
  template <class M>
  FOREBAY_DEVICE bool ends_in_zeros(simt::team<M> const& lanes, std::uint64_t offset, dma_segment const* segments,
                                    std::uint32_t count) const {
    bool zeros = true;
    for (std::uint32_t i = 0; i < count; ++i) {
      auto const* const theirs = reinterpret_cast<std::uint8_t const*>(segments[i].address);
      std::uint64_t const first = before_end<M>(offset, segments[i].bytes);
      for (std::uint64_t at = first + lanes.rank(); zeros && at < segments[i].bytes; at += lanes.count()) {
        zeros = M::ld(theirs + at) == 0;
      }
      offset += segments[i].bytes;
    }
    return lanes.all(zeros);
  }

  /// Marks [offset, offset + length) as written. Called by one lane, after the data was stored and `before_marks`.
  template <class M>
  FOREBAY_DEVICE void mark(std::uint64_t offset, std::uint64_t length) const {
    if (dirty == nullptr || length == 0) return;
    std::uint64_t const last = (offset + length - 1) >> dirty_chunk_log2;
    for (std::uint64_t chunk = offset >> dirty_chunk_log2; chunk <= last; ++chunk) M::st(dirty + chunk, 1);
  }
  /// Orders the lanes' data before the marks of any of them: when a thread clears a mark and then copies the chunk, it
  /// gets the data.
  template <class M>
  FOREBAY_DEVICE void before_marks(simt::team<M> const& lanes) const {
    if (dirty == nullptr) return;
    lanes.sync();
    // Release: pairs with the host, which clears marks and copies chunks in one order.
    M::fence(simt::scope::system, simt::order::release);
  }

  /// From the drive to the client's segments.
  template <class M>
  FOREBAY_DEVICE void read(simt::team<M> const& lanes, std::uint64_t offset, dma_segment const* segments,
                           std::uint32_t count) const {
    if (data == nullptr) return;
    for (std::uint32_t i = 0; i < count; ++i) {
      move_bytes(lanes, reinterpret_cast<std::byte*>(segments[i].address), data + offset, segments[i].bytes);
      offset += segments[i].bytes;
    }
  }

  /// From the client's segments to the drive, up to the end of its file: a client that changes its memory meanwhile
  /// brings nothing beyond.
  template <class M>
  FOREBAY_DEVICE void write(simt::team<M> const& lanes, std::uint64_t offset, dma_segment const* segments,
                            std::uint32_t count) const {
    if (data == nullptr) return;
    for (std::uint32_t i = 0; i < count; ++i) {
      move_bytes(lanes, data + offset, reinterpret_cast<std::byte const*>(segments[i].address),
                 before_end<M>(offset, segments[i].bytes));
      offset += segments[i].bytes;
    }
  }

  /// Whether the drive holds what the client's segments hold.
  template <class M>
  FOREBAY_DEVICE bool equal(simt::team<M> const& lanes, std::uint64_t offset, dma_segment const* segments,
                            std::uint32_t count) const {
    if (data == nullptr) return true;
    bool same = true;
    for (std::uint32_t i = 0; i < count; ++i) {
      // PRP entries are aligned to four bytes, and lengths are multiples of a block.
      auto const* const theirs = reinterpret_cast<std::uint32_t const*>(segments[i].address);
      auto const* const ours = reinterpret_cast<std::uint32_t const*>(data + offset);
      for (std::uint64_t word = lanes.rank(); same && word < segments[i].bytes / 4; word += lanes.count()) {
        same = M::ld(theirs + word) == M::ld(ours + word);
      }
      offset += segments[i].bytes;
    }
    return lanes.all(same);
  }

  /// Makes [offset, offset + bytes) read as zeros. Does not store to pages of zeros, since stores would allocate memory
  /// for a sparse drive.
  template <class M>
  FOREBAY_DEVICE void zero(simt::team<M> const& lanes, std::uint64_t offset, std::uint64_t length) const {
    if (data == nullptr) return;
    auto* const words = reinterpret_cast<std::uint64_t*>(data + offset);
    for (std::uint64_t i = lanes.rank(); i < length / 8; i += lanes.count()) {
      if (M::ld(words + i) != 0) M::st(words + i, 0);
    }
  }
};

}  // namespace forebay::emulator
