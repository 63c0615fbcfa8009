// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/ring_position.hpp"

#include <gtest/gtest.h>

namespace forebay {
namespace {

constexpr std::uint32_t entries_to_try[] = {2, 3, 4, 5, 31, 32, 33, 1023, 1024, 4095, 4096, 65535, 65536};

TEST(RingPosition, StepsGoThroughSlotsAndLapsAsTicketsDo) {
  for (std::uint32_t const entries : entries_to_try) {
    for (std::uint64_t const around : {std::uint64_t{0}, std::uint64_t{1} << 32, (std::uint64_t{1} << 32) * entries}) {
      std::uint64_t const first = around < 3000 ? 0 : around - 3000;
      for (std::uint64_t ticket = first; ticket < first + 6000; ++ticket) {
        auto const at = ring_position::of(ticket, entries);
        ASSERT_EQ(at.slot, ticket % entries) << entries << " entries, ticket " << ticket;
        ASSERT_EQ(at.lap, static_cast<std::uint32_t>(ticket / entries)) << entries << " entries, ticket " << ticket;
        for (std::uint32_t const steps : {1u, 2u, entries - 1, entries}) {
          if (steps > entries) continue;
          ASSERT_EQ(at.after(steps, entries).word(), ring_position::of(ticket + steps, entries).word());
        }
      }
    }
  }
}

TEST(RingPosition, CountsFollowEachOtherAcrossEveryWrap) {
  for (std::uint32_t const entries : entries_to_try) {
    for (std::uint64_t const laps : {std::uint64_t{0}, (std::uint64_t{1} << 32) / entries, std::uint64_t{1} << 32}) {
      std::uint64_t const around = laps * entries;
      std::uint64_t const first = around < 70000 ? 0 : around - 70000;
      for (std::uint64_t ticket = first; ticket < around + 70000; ++ticket) {
        auto const at = ring_position::of(ticket, entries);
        ASSERT_EQ(at.after(1, entries).count(entries) - at.count(entries), 1u)
            << entries << " entries, ticket " << ticket;
      }
    }
  }
}

TEST(RingPosition, AWordHoldsItAll) {
  ring_position const at{65535, 0xfffffffe};
  EXPECT_EQ(ring_position::from_word(at.word()).slot, at.slot);
  EXPECT_EQ(ring_position::from_word(at.word()).lap, at.lap);
}

}  // namespace
}  // namespace forebay
