// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which extents of a file can be read past its file system.
#include "drive/files/placed_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "forebay/error.hpp"

namespace forebay::drive::files {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

fiemap_extent extent(std::uint64_t byte, std::uint64_t on_device, std::uint64_t bytes, std::uint32_t flags = 0) {
  fiemap_extent e{};
  e.fe_logical = byte;
  e.fe_physical = on_device;
  e.fe_length = bytes;
  e.fe_flags = flags;
  return e;
}

TEST(PlacedFile, ExtentsThatFollowEachOtherBecomeOne) {
  std::vector<fiemap_extent> const told{extent(0, 8192, 4096), extent(4096, 12288, 4096),
                                        extent(8192, 4096, 4096, FIEMAP_EXTENT_LAST)};
  EXPECT_THAT(checked_extents("f", 9000, told, 0, 4096),
              ElementsAre(file_extent{0, 8192, 8192}, file_extent{8192, 4096, 4096}));
  EXPECT_THAT(checked_extents("f", 9000, told, 1 << 20, 4096),
              ElementsAre(file_extent{0, (1 << 20) + 8192, 8192}, file_extent{8192, (1 << 20) + 4096, 4096}))
      << "a partition";
}

TEST(PlacedFile, WhatWasAllocatedBehindItsEndDoesNotMatter) {
  std::vector<fiemap_extent> const told{extent(0, 8192, 4096), extent(4096, 1 << 20, 4096, FIEMAP_EXTENT_UNWRITTEN)};
  EXPECT_THAT(checked_extents("f", 4096, told, 0, 4096), ElementsAre(file_extent{0, 8192, 4096}));
  EXPECT_THROW(checked_extents("f", 4097, told, 0, 4096), refused_input);
}

TEST(PlacedFile, AnExtentThatGoesOnBehindItsEndIsCutAtTheEndOfABlock) {
  std::vector<fiemap_extent> const told{extent(0, 8192, 1 << 20)};
  EXPECT_THAT(checked_extents("f", 5000, told, 0, 1024), ElementsAre(file_extent{0, 8192, 5120}));
  EXPECT_THAT(checked_extents("f", 4096, told, 0, 4096), ElementsAre(file_extent{0, 8192, 4096}));
}

TEST(PlacedFile, HolesAreRefusedWhereverTheyAre) {
  auto const refused = [](std::vector<fiemap_extent> const& told, std::string const& why) {
    EXPECT_THAT([&] { checked_extents("some/file", 12288, told, 0, 4096); },
                ThrowsMessage<refused_input>(AllOf(HasSubstr("file: 'some/file'"), HasSubstr(why))));
  };
  refused({}, "a hole at 0");
  refused({extent(4096, 4096, 8192)}, "a hole at 0");
  refused({extent(0, 4096, 4096), extent(8192, 12288, 4096)}, "a hole at 4096");
  refused({extent(0, 4096, 8192)}, "a hole at 8192");
  refused({extent(0, 4097, 12288)}, "do not begin on a block");
  refused({extent(0, 4096, 0)}, "do not begin on a block");
}

TEST(PlacedFile, EachKindOfExtentThatHidesItsBytesIsRefusedByItsReason) {
  struct refusal {
    std::uint32_t flags;
    char const* reason;
  };
  for (refusal const r : {refusal{FIEMAP_EXTENT_UNWRITTEN, "never written"},
                          {FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED, "in its inode"},
                          {FIEMAP_EXTENT_SHARED, "--reflink=never"},
                          {FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_ENCODED, "is encrypted"},
                          {FIEMAP_EXTENT_ENCODED, "is compressed"},
                          {FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN, "not on the device yet"},
                          {FIEMAP_EXTENT_UNKNOWN, "does not tell"},
                          {FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_NOT_ALIGNED, "shares a block"},
                          {FIEMAP_EXTENT_NOT_ALIGNED, "do not begin on a block"}}) {
    EXPECT_THAT(
        [&] {
          checked_extents("f", 8192, std::vector{extent(0, 0, 4096), extent(4096, 4096, 4096, r.flags)}, 0, 4096);
        },
        ThrowsMessage<refused_input>(HasSubstr(r.reason)));
  }
}

}  // namespace
}  // namespace forebay::drive::files
