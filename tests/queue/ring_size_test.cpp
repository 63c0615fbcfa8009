// SPDX-License-Identifier: Apache-2.0
#include "forebay/queue/ring_size.hpp"

#include <gtest/gtest.h>

namespace forebay {
namespace {

constexpr std::uint32_t entries_to_try[] = {1, 2, 3, 4, 5, 31, 32, 33, 1023, 1024, 4095, 4096, 65535, 65536};
constexpr std::uint64_t tickets_to_try[] = {0,
                                            std::uint64_t{1} << 31,
                                            std::uint64_t{1} << 32,
                                            std::uint64_t{1} << 33,
                                            std::uint64_t{1} << 48,
                                            ~std::uint64_t{0} - 70000};

TEST(RingSize, SlotAndLapAreRemainderAndQuotient) {
  for (std::uint32_t const entries : entries_to_try) {
    ring_size const ring(entries);
    EXPECT_EQ(ring.entries(), entries);
    for (std::uint64_t const around : tickets_to_try) {
      for (std::uint64_t ticket = around < 3000 ? 0 : around - 3000; ticket < around + 3000; ++ticket) {
        ASSERT_EQ(ring.slot(ticket), ticket % entries) << entries << " entries, ticket " << ticket;
        ASSERT_EQ(ring.lap(ticket), ticket / entries) << entries << " entries, ticket " << ticket;
      }
    }
  }
}

TEST(RingSize, SlotsFollowEachOtherAcrossEveryWrap) {
  for (std::uint32_t const entries : entries_to_try) {
    ring_size const ring(entries);
    for (std::uint64_t const around : tickets_to_try) {
      std::uint64_t const first = around < 3000 ? 0 : around - 3000;
      for (std::uint64_t ticket = first; ticket < first + 6000; ++ticket) {
        bool const wraps = ring.slot(ticket) + 1 == entries;
        ASSERT_EQ(ring.slot(ticket + 1), wraps ? 0 : ring.slot(ticket) + 1);
        ASSERT_EQ(ring.lap(ticket + 1), ring.lap(ticket) + (wraps ? 1 : 0));
      }
    }
  }
}

static_assert(ring_size(1023).slot((std::uint64_t{1} << 33) + 5) == ((std::uint64_t{1} << 33) + 5) % 1023);
static_assert(ring_size(1024).lap((std::uint64_t{1} << 33) + 5) == std::uint64_t{1} << 23);

}  // namespace
}  // namespace forebay
