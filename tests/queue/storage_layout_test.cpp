// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where the bytes of a storage lie: on one drive, striped, and on drives one after the other.
#include "forebay/detail/queue/storage_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "forebay/queue_rules.hpp"

namespace forebay {
namespace {

storage_layout layout_of(std::uint32_t drives, std::uint64_t stripe_bytes, std::uint64_t bytes_per_drive) {
  storage_layout l;
  l.drive_count = drives;
  l.stripe_bytes = stripe_bytes;
  l.size_bytes = bytes_per_drive * drives;
  l.command_bytes_max = 5 * 512;
  return l;
}

/// Every block has a place of its own, which names the block in turn, and no command goes beyond what it may.
void expect_whole(storage_layout const& l) {
  std::set<std::pair<std::uint32_t, std::uint64_t>> places;
  for (std::uint64_t at = 0; at < l.size_bytes; at += 512) {
    storage_layout::piece const p = l.piece_at(at, 512);
    EXPECT_EQ(p.bytes, 512u);
    EXPECT_LT(p.drive, l.drive_count);
    EXPECT_LT(p.byte_on_drive, l.bytes_per_drive());
    EXPECT_EQ(l.byte_at(p.drive, p.byte_on_drive), at);
    EXPECT_TRUE(places.emplace(p.drive, p.byte_on_drive).second) << "byte " << at;
    storage_layout::piece const longest = l.piece_at(at, l.size_bytes - at);
    EXPECT_LE(longest.bytes, std::min(l.command_bytes_max, l.size_bytes - at));
    for (std::uint64_t k = 0; k < longest.bytes; k += 512) {
      storage_layout::piece const next = l.piece_at(at + k, 512);
      ASSERT_EQ(next.drive, p.drive);
      ASSERT_EQ(next.byte_on_drive, p.byte_on_drive + k);
    }
  }
}

TEST(StorageLayout, OneDrive) {
  // The stripe is not used.
  storage_layout const l = layout_of(1, 1024, 40 * 512);
  expect_whole(l);
  EXPECT_TRUE(l.one_after_the_other());
  EXPECT_EQ(l.bytes_per_drive(), 40u * 512);
  EXPECT_EQ(l.piece_at(1000, 1 << 20).bytes, l.command_bytes_max);
}

TEST(StorageLayout, Striped) {
  storage_layout const l = layout_of(3, 3 * 512, 12 * 512);
  expect_whole(l);
  EXPECT_FALSE(l.one_after_the_other());
  EXPECT_EQ(l.piece_at(0, 1 << 20).bytes, 3u * 512);
  EXPECT_EQ(l.piece_at(3 * 512, 512).drive, 1u);
  EXPECT_EQ(l.piece_at(9 * 512, 512).byte_on_drive, 3u * 512);
}

TEST(StorageLayout, DrivesOneAfterTheOther) {
  storage_layout const l = layout_of(3, 12 * 512, 12 * 512);
  expect_whole(l);
  EXPECT_TRUE(l.one_after_the_other());
  for (std::uint32_t d = 0; d < 3; ++d) {
    EXPECT_EQ(l.byte_at(d, 0), d * l.bytes_per_drive());
    EXPECT_EQ(l.piece_at(d * l.bytes_per_drive(), 512).drive, d);
  }
  // What crosses into the next drive is split there.
  storage_layout::piece const last = l.piece_at(11 * 512, 4 * 512);
  EXPECT_EQ(last.drive, 0u);
  EXPECT_EQ(last.bytes, 512u);
}

/// Block by block, for every range: what `part_on` names is what `piece_at` names.
TEST(StorageLayout, PartsOnDrivesAreThePiecesOfTheRange) {
  for (storage_layout const& l :
       {layout_of(1, 1024, 12 * 512), layout_of(3, 2 * 512, 8 * 512), layout_of(3, 6 * 512, 6 * 512)}) {
    for (std::uint64_t at = 0; at <= l.size_bytes; at += 512) {
      for (std::uint64_t bytes = 0; bytes <= l.size_bytes - at; bytes += 512) {
        std::set<std::pair<std::uint32_t, std::uint64_t>> pieces, parts;
        for (std::uint64_t k = 0; k < bytes; k += 512) {
          storage_layout::piece const p = l.piece_at(at + k, 512);
          pieces.emplace(p.drive, p.byte_on_drive);
        }
        for (std::uint32_t d = 0; d < l.drive_count; ++d) {
          storage_layout::piece const p = l.part_on(d, at, bytes);
          for (std::uint64_t k = 0; k < p.bytes; k += 512) parts.emplace(p.drive, p.byte_on_drive + k);
        }
        ASSERT_EQ(parts, pieces) << bytes << " bytes at " << at << " of " << l.drive_count << " drives";
      }
    }
  }
}

TEST(StorageLayout, PairsOfDrives) {
  storage_layout l = layout_of(3, 512, 512);
  l.pairs_per_drive = 4;
  EXPECT_EQ(l.pairs_of(2).first, 8u);
  EXPECT_EQ(l.pairs_of(2).count, 4u);
  pair_range const table[] = {{0, 4}, {4, 1}, {5, 2}};
  l.drive_pairs = table;
  EXPECT_EQ(l.pairs_of(2).first, 5u);
  EXPECT_EQ(l.pairs_of(2).count, 2u);
}

TEST(StorageLayout, OfAFileEveryBlockLiesWhereItsExtentsSay) {
  file_extent const extents[] = {{0, 70 * 512, 3 * 512}, {3 * 512, 10 * 512, 512}, {4 * 512, 100 * 512, 20 * 512}};
  storage_layout l = layout_of(1, 0, 24 * 512);
  l.file_extents = extents;
  l.file_extent_count = 3;
  for (std::uint64_t block = 0; block < 24; ++block) {
    storage_layout::piece const p = l.piece_by<uneven_rules<>>(block * 512, (24 - block) * 512);
    std::uint64_t const place = block < 3 ? 70 + block : block == 3 ? 10 : 96 + block;
    std::uint64_t const left = block < 3 ? 3 - block : block == 3 ? 1 : std::min<std::uint64_t>(24 - block, 5);
    EXPECT_EQ(p.byte_on_drive, place * 512) << block;
    EXPECT_EQ(p.bytes, left * 512) << block;
    EXPECT_EQ(p.drive, 0u);
  }
  EXPECT_EQ(l.piece_by<queue_rules>(512, 512).byte_on_drive, 512u) << "rules that know of no files";
  l.file_extent_count = 1;
  EXPECT_EQ(l.piece_by<uneven_rules<>>(512, 512).byte_on_drive, 71u * 512);
}

}  // namespace
}  // namespace forebay
