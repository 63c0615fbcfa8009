// SPDX-License-Identifier: Apache-2.0
//! \file
//! How the bytes of a storage are spread over its drives, and which queue pairs belong to each drive.
#pragma once

#include <cstdint>

#include "forebay/detail/driver/file_extent.hpp"
#include "forebay/detail/queue/pair_range.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// How bytes are spread over drives, and how much a command may carry. Byte `b` lies in stripe `b / stripe_bytes`, and
/// stripe `s` is stripe `s / drive_count` of drive `s % drive_count`. If one stripe is as long as the used part of a
/// drive, the drives lie one after the other.
struct storage_layout {
  std::uint64_t size_bytes = 0;
  std::uint64_t stripe_bytes = 0;       ///< multiple of the block; not used where there is one drive
  std::uint64_t command_bytes_max = 0;  ///< multiple of the block
  std::uint32_t block_shift = 9;        ///< the block is `1 << block_shift` bytes on every drive
  std::uint32_t drive_count = 1;
  std::uint32_t pairs_per_drive = 1;  ///< pair `p` of drive `d` is pair `d * pairs_per_drive + p`
  std::uint32_t nsid = 1;
  /// If drives have different numbers of pairs, at most `pairs_per_drive`: the pairs of each drive, in memory that the
  /// submitting threads reach.
  pair_range const* drive_pairs = nullptr;
  /// If the storage is a file of a file system on the only drive: where its bytes lie, by `byte` and without a gap, in
  /// memory that the submitting threads reach.
  file_extent const* file_extents = nullptr;
  std::uint32_t file_extent_count = 0;

  FOREBAY_DEVICE pair_range pairs_of(std::uint32_t drive) const {
    if (drive_pairs != nullptr) return drive_pairs[drive];
    return {drive * pairs_per_drive, pairs_per_drive};
  }

  /// Whether drive `d` holds bytes [d * bytes_per_drive(), (d + 1) * bytes_per_drive()).
  FOREBAY_DEVICE bool one_after_the_other() const { return drive_count == 1 || stripe_bytes == bytes_per_drive(); }
  /// How many bytes of each drive are used.
  FOREBAY_DEVICE std::uint64_t bytes_per_drive() const { return size_bytes / drive_count; }

  /// Bytes of one drive.
  struct piece {
    std::uint32_t drive;
    std::uint64_t byte_on_drive;
    std::uint64_t bytes;
  };
  /// The longest run from byte `at` on that one command can carry, at most `left` bytes.
  FOREBAY_DEVICE piece piece_at(std::uint64_t at, std::uint64_t left) const {
    piece p{0, at, left};
    if (drive_count > 1) {
      std::uint64_t const stripe = at / stripe_bytes;
      std::uint64_t const within = at - stripe * stripe_bytes;
      p.drive = static_cast<std::uint32_t>(stripe % drive_count);
      p.byte_on_drive = stripe / drive_count * stripe_bytes + within;
      if (p.bytes > stripe_bytes - within) p.bytes = stripe_bytes - within;
    }
    if (p.bytes > command_bytes_max) p.bytes = command_bytes_max;
    return p;
  }
  /// The same for commands by `Rules`. Only those of `uneven_rules` know of files: to look extents up takes registers
  /// in every kernel that could do so.
  template <class Rules>
  FOREBAY_DEVICE piece piece_by(std::uint64_t at, std::uint64_t left) const {
    piece const p = piece_at(at, left);
    if constexpr (!Rules::even_pairs) {
      if (file_extents != nullptr) return simt::out_of_line(&piece_of_file)(file_extents, file_extent_count, p);
    }
    return p;
  }
  /// What lies on drive `drive` of bytes [at, at + bytes): one run of bytes there, which may be empty.
  FOREBAY_DEVICE piece part_on(std::uint32_t drive, std::uint64_t at, std::uint64_t bytes) const {
    if (drive_count == 1) return {0, at, bytes};
    std::uint64_t const first = bytes_before(drive, at);
    return {drive, first, bytes_before(drive, at + bytes) - first};
  }
  /// Byte `byte_on_drive` of drive `drive`, as a byte of the storage.
  FOREBAY_DEVICE std::uint64_t byte_at(std::uint32_t drive, std::uint64_t byte_on_drive) const {
    if (drive_count == 1) return byte_on_drive;
    std::uint64_t const stripe = byte_on_drive / stripe_bytes;
    return (stripe * drive_count + drive) * stripe_bytes + (byte_on_drive - stripe * stripe_bytes);
  }

 private:
  /// By values, so that a kernel's layout need not have an address.
  FOREBAY_COLD static piece piece_of_file(file_extent const* extents, std::uint32_t count, piece p) {
    std::uint32_t first = 0;
    // The extent that holds the byte: the last one that does not begin after it.
    for (std::uint32_t end = count; end - first > 1;) {
      std::uint32_t const middle = first + (end - first) / 2;
      (extents[middle].byte <= p.byte_on_drive ? first : end) = middle;
    }
    file_extent const its = extents[first];
    std::uint64_t const within = p.byte_on_drive - its.byte;
    if (p.bytes > its.bytes - within) p.bytes = its.bytes - within;
    p.byte_on_drive = its.byte_on_drive + within;
    return p;
  }

  /// How many of the storage's first `at` bytes lie on drive `drive`. It holds them in their order.
  FOREBAY_DEVICE std::uint64_t bytes_before(std::uint32_t drive, std::uint64_t at) const {
    std::uint64_t const row = stripe_bytes * drive_count;
    std::uint64_t const in_row = at % row, begins = drive * stripe_bytes;
    std::uint64_t const of_row = in_row <= begins ? 0 : in_row - begins;
    return at / row * stripe_bytes + (of_row < stripe_bytes ? of_row : stripe_bytes);
  }
};

/// Which of a drive's `pairs` pairs the calling thread's commands go to first. The lanes of a warp use the same one, so
/// that commands that are ready together share a doorbell write.
template <class M>
FOREBAY_DEVICE std::uint32_t home_pair(std::uint32_t pairs) {
  auto const block = M::this_block();
  std::uint32_t const warps_per_block = (block.size() + 31) / 32;
  return (block.rank * warps_per_block + block.thread_rank() / 32) % pairs;
}

}  // namespace forebay
