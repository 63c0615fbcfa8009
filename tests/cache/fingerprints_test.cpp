// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/cache/fingerprints.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace forebay {
namespace {

/// The words of a set whose ways have these tags.
std::array<std::uint64_t, 2> words_of(std::array<std::uint32_t, 16> const& tags) {
  std::array<std::uint64_t, 2> words{};
  for (std::uint32_t way = 0; way < 16; ++way) {
    words[way / 8] |= fingerprints::byte_of(way, fingerprints::of(tags[way]));
  }
  return words;
}

TEST(Fingerprints, NameEveryWayWithTheTagAndOnlyThoseWithItsByte) {
  std::mt19937 random(17);
  for (int round = 0; round < 20'000; ++round) {
    std::array<std::uint32_t, 16> tags{};
    // Few, so that some are equal; and now and then any.
    for (std::uint32_t& tag : tags) {
      tag = static_cast<std::uint32_t>(random() % 4 != 0 ? random() % 24 : random() >> 4);
    }
    std::uint32_t const wanted = tags[random() % 16];
    auto const words = words_of(tags);
    std::uint32_t expected = 0;
    for (std::uint32_t way = 0; way < 16; ++way) {
      if (fingerprints::of(tags[way]) == fingerprints::of(wanted)) expected |= 1u << way;
    }
    ASSERT_EQ(fingerprints::ways_of(words[0], words[1], wanted), expected) << "round " << round;
  }
}

TEST(Fingerprints, OfNeighboursDiffer) {
  for (std::uint32_t tag = 0; tag < 1u << 20; ++tag) {
    ASSERT_NE(fingerprints::of(tag), fingerprints::of(tag + 1)) << tag;
  }
}

TEST(Fingerprints, TheBytesOfTheWaysOfAWordDoNotOverlap) {
  std::uint64_t all = 0;
  for (std::uint32_t way = 8; way < 16; ++way) {
    EXPECT_EQ(all & fingerprints::byte_of(way, 0xff), 0u);
    all |= fingerprints::byte_of(way, 0xff);
  }
  EXPECT_EQ(all, ~std::uint64_t{0});
}

}  // namespace
}  // namespace forebay
