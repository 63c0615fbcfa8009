// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/prp.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/schedulers.hpp"

namespace forebay {
namespace {

/// A client's view of scattered pages: byte i of the buffer has the bus address `pages[i >> shift] + (i & mask)`.
struct scattered {
  scattered(simt::random_source& random, std::uint32_t shift_, std::uint32_t count) : shift(shift_) {
    for (std::uint32_t i = 0; i < count; ++i) {
      // No two pages adjacent, none in order.
      pages.push_back((std::uint64_t{random.below(1u << 20)} * 2 + 1) << shift);
    }
  }
  std::uint64_t bus_address(std::uint64_t byte) const {
    return pages[byte >> shift] + (byte & ((std::uint64_t{1} << shift) - 1));
  }
  std::uint32_t shift;
  std::vector<std::uint64_t> pages;
};

/// Byte `at` of a transfer, as the specification reads the PRP entries of a command (Base 1.4, section 4.3).
std::uint64_t address_in_prps(prp_pair prps, std::vector<std::uint64_t> const& list, std::uint64_t bytes,
                              std::uint64_t page_bytes, std::uint64_t at) {
  std::uint64_t const offset = prps.prp1 % page_bytes;
  std::uint64_t const page = (offset + at) / page_bytes;
  std::uint64_t const in_page = (offset + at) % page_bytes;
  if (page == 0) return prps.prp1 + at;
  std::uint64_t const base = nvme::prp_count(offset, bytes, page_bytes) > 2 ? list[page - 1] : prps.prp2;
  EXPECT_EQ(base % page_bytes, 0u) << "only the first PRP entry may have an offset";
  return base + in_page;
}

TEST(BufferRef, PrpsNameEveryByteOfTheBuffer) {
  simt::random_source random(1);
  constexpr std::uint64_t untouched = 0xabababababababab;
  for (int round = 0; round < 4000; ++round) {
    std::uint32_t const page_bytes = round % 2 == 0 ? 4096 : 256;
    std::uint32_t const page_shift = page_bytes == 4096 ? 12 : 8;
    // The registration's pages may be larger than the controller's.
    scattered const memory(random, page_shift + random.below(3) * 2, 70);
    std::uint64_t const offset = std::uint64_t{random.below(page_bytes * 4 / 4)} * 4;
    std::uint64_t const bytes = (1 + random.below(round % 5 == 0 ? page_bytes * 24 / 4 : page_bytes * 3 / 4)) * 4;
    buffer_ref const buffer =
        buffer_ref(nullptr, memory.pages.size() << memory.shift, memory.pages.data(), memory.shift, 0)
            .subspan(offset, bytes);
    ASSERT_EQ(buffer.size_bytes(), bytes);

    std::uint64_t const words = page_bytes / 8;
    std::vector<std::uint64_t> lists(3 * words, untouched);
    std::uint32_t free = 7;
    prp_page_pool const pool{
        buffer_ref(reinterpret_cast<std::byte*>(lists.data()), 3 * page_bytes, std::uint64_t{page_bytes} * 1000),
        page_bytes, slot_pool{&free, 1}};
    bool const wants_list = needs_prp_list(buffer, bytes, page_bytes);
    ASSERT_EQ(wants_list, nvme::prp_count(memory.bus_address(offset) % page_bytes, bytes, page_bytes) > 2);
    prp_pair const prps = build_prps<simt::native>(buffer, bytes, pool, wants_list ? 1 : prp_page_pool::none);
    if (wants_list) {
      ASSERT_EQ(prps.prp2, std::uint64_t{page_bytes} * 1001);
    }
    std::vector<std::uint64_t> const list(lists.begin() + static_cast<std::ptrdiff_t>(words),
                                          lists.begin() + static_cast<std::ptrdiff_t>(2 * words));
    for (std::uint64_t at = 0; at < bytes; at += 4) {
      ASSERT_EQ(address_in_prps(prps, list, bytes, page_bytes, at), memory.bus_address(offset + at))
          << "offset " << offset << ", " << bytes << " bytes, byte " << at;
    }
    for (std::uint64_t i = 0; i < words; ++i) {
      ASSERT_EQ(lists[i], untouched);
      ASSERT_EQ(lists[2 * words + i], untouched);
    }
  }
}

TEST(BufferRef, OneListPageNamesWhatItSays) {
  constexpr std::uint32_t page_bytes = 256;
  std::vector<std::uint64_t> list(page_bytes / 8);
  std::uint32_t free = 1;
  prp_page_pool const pool{buffer_ref(reinterpret_cast<std::byte*>(list.data()), page_bytes, 0x10000), page_bytes,
                           slot_pool{&free, 1}};
  std::uint64_t const bytes = pool.bytes_named_by_one_page() + page_bytes;
  buffer_ref const buffer(nullptr, bytes, 0x100000);
  prp_pair const prps = build_prps<simt::native>(buffer, bytes, pool, 0);
  EXPECT_EQ(address_in_prps(prps, list, bytes, page_bytes, bytes - 4), 0x100000 + bytes - 4);
}

TEST(BufferRef, AContiguousRangeHasContiguousBusAddresses) {
  std::vector<std::byte> bytes(100);
  buffer_ref const buffer(bytes.data(), 100, 5000);
  EXPECT_EQ(buffer.bus_address(42), 5042u);
  buffer_ref const part = buffer.subspan(10, 20);
  EXPECT_EQ(part.data(), bytes.data() + 10);
  EXPECT_EQ(part.bus_address(3), 5013u);
}

TEST(BufferRef, ASubspanBeyondTheRangeIsEmpty) {
  buffer_ref const buffer(nullptr, 100, 5000);
  EXPECT_EQ(buffer.subspan(0, 100).size_bytes(), 100u);
  EXPECT_EQ(buffer.subspan(100, 0).size_bytes(), 0u);
  EXPECT_EQ(buffer.subspan(0, 101).size_bytes(), 0u);
  EXPECT_EQ(buffer.subspan(101, 1).size_bytes(), 0u);
  EXPECT_EQ(buffer.subspan(50, ~std::uint64_t{0}).size_bytes(), 0u);
}

}  // namespace
}  // namespace forebay
