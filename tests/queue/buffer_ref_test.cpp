// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/prp.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/schedulers.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/memory.hpp"

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

/// A buffer of scattered pages, its list, and a controller that reads what `build_prps` wrote.
class built_and_walked : public ::testing::Test {
 protected:
  /// As many pages as one list names, and one more for each end.
  void use_pages_of(std::uint64_t page_bytes) {
    page_bytes_ = page_bytes;
    std::uint64_t const count = page_bytes / 8 + 2;
    memory_ = memory::allocation(memory::host(), (count + 1) * page_bytes + 8192, 4096);
    regions_.emplace(memory::host(), 6);
    regions_->add(memory_.data(), memory_.size_bytes());
    auto const first = reinterpret_cast<std::uint64_t>(memory_.data());
    pages_.clear();
    for (std::uint64_t i = 0; i <= count; ++i) pages_.push_back(first + i * page_bytes);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(page_bytes));
    list_ = pages_.back();
    pages_.pop_back();
  }
  std::uint64_t longest(std::uint64_t offset) const { return page_bytes_ - offset + page_bytes_ / 8 * page_bytes_; }

  void check(std::uint64_t offset, std::uint64_t bytes) {
    buffer_ref const buffer = buffer_ref(nullptr, pages_.size() * page_bytes_, pages_.data(),
                                         static_cast<std::uint32_t>(std::countr_zero(page_bytes_)), 0)
                                  .subspan(offset, bytes);
    std::uint32_t free = 1;
    prp_page_pool const pool{buffer_ref(reinterpret_cast<std::byte*>(list_), page_bytes_, list_),
                             static_cast<std::uint32_t>(page_bytes_), slot_pool{&free, 1}};
    bool const wants_list = needs_prp_list(buffer, bytes, pool.page_bytes);
    prp_pair const prps = build_prps<simt::native>(buffer, bytes, pool, wants_list ? 0 : prp_page_pool::none);
    segments_.resize(emulator::max_segments(bytes, page_bytes_));
    emulator::prp_walk const walk =
        emulator::walk_prps<simt::native>(simt::team<simt::native>::here(), regions_->table(), prps.prp1, prps.prp2,
                                          bytes, page_bytes_, segments_.data());
    ASSERT_EQ(walk.status_field, 0) << "page " << page_bytes_ << ", offset " << offset << ", " << bytes << " bytes";
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < walk.count; ++i) {
      std::uint64_t const in_page = i == 0 ? offset : 0;
      std::uint64_t const expected = std::min(page_bytes_ - in_page, bytes - at);
      if (segments_[i].address != pages_[i] + in_page || segments_[i].bytes != expected) {
        FAIL() << "page " << page_bytes_ << ", offset " << offset << ", " << bytes << " bytes, segment " << i;
      }
      at += expected;
    }
    ASSERT_EQ(at, bytes) << "page " << page_bytes_ << ", offset " << offset;
  }

 private:
  std::uint64_t page_bytes_ = 0;
  memory::allocation memory_;
  std::optional<emulator::dma_regions> regions_;
  std::vector<std::uint64_t> pages_;
  std::uint64_t list_ = 0;
  std::vector<emulator::dma_segment> segments_;
};

TEST_F(built_and_walked, every_offset_and_length_that_one_list_page_names) {
  // Small pages, so that these are few enough to take them all.
  for (std::uint64_t const page_bytes : {64, 128, 256, 512}) {
    use_pages_of(page_bytes);
    for (std::uint64_t offset = 0; offset < page_bytes; offset += 4) {
      for (std::uint64_t bytes = 4; bytes <= longest(offset); bytes += 4) ASSERT_NO_FATAL_FAILURE(check(offset, bytes));
    }
  }
}

TEST_F(built_and_walked, every_border_of_pages_of_4096_bytes) {
  constexpr std::uint64_t page_bytes = 4096, pages = 1 + page_bytes / 8;
  use_pages_of(page_bytes);
  auto const check_borders = [&](std::uint64_t offset, std::uint64_t page) {
    std::uint64_t const border = page * page_bytes - offset;
    for (std::uint64_t const bytes : {border - 4, border, border + 4}) {
      if (bytes != 0 && bytes <= longest(offset)) {
        ASSERT_NO_FATAL_FAILURE(check(offset, bytes));
      }
    }
  };
  for (std::uint64_t offset = 0; offset < page_bytes; offset += 4) {
    for (std::uint64_t const page : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, pages - 1, pages}) {
      ASSERT_NO_FATAL_FAILURE(check_borders(offset, page));
    }
  }
  for (std::uint64_t const offset : {0, 4, 508, 512, 2048, 4088, 4092}) {
    for (std::uint64_t page = 1; page <= pages; ++page) ASSERT_NO_FATAL_FAILURE(check_borders(offset, page));
  }
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
