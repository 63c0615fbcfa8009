// SPDX-License-Identifier: Apache-2.0
#include "forebay/emulator/prp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "emulator/seed.hpp"

namespace forebay::emulator {
namespace {

using nvme::generic_status;
using simt::native;

constexpr std::uint64_t page = 4096;

class prp : public ::testing::Test {
 protected:
  prp() : memory_(memory::host(), 1024 * page, page), regions_(memory::host(), 6) {
    regions_.add(memory_.data(), memory_.bytes());
  }
  std::uint64_t address(std::uint64_t page_index, std::uint64_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(memory_.data()) + page_index * page + offset;
  }
  std::uint64_t& word(std::uint64_t at) const { return *reinterpret_cast<std::uint64_t*>(at); }
  prp_walk walk(std::uint64_t prp1, std::uint64_t prp2, std::uint64_t bytes) {
    segments_.assign(max_segments(bytes, page), {});
    prp_walk const result =
        walk_prps<native>(simt::team<native>::here(), regions_.table(), prp1, prp2, bytes, page, segments_.data());
    segments_.resize(result.count);
    return result;
  }
  static std::uint16_t code(prp_walk const& walk) {
    return static_cast<std::uint16_t>(walk.status_field & nvme::status_code_mask);
  }

  memory::allocation memory_;
  dma_regions regions_;
  std::vector<dma_segment> segments_;
};

constexpr std::uint64_t outside = 0x1000;  // a page that no one registered

TEST_F(prp, one_page) {
  EXPECT_EQ(walk(address(3, 512), 0, 512).status_field, 0);
  ASSERT_EQ(segments_.size(), 1u);
  EXPECT_EQ(segments_[0].address, address(3, 512));
  EXPECT_EQ(segments_[0].bytes, 512u);
}

TEST_F(prp, two_pages_apart_and_adjacent) {
  EXPECT_EQ(walk(address(3, 2048), address(9), 4096).status_field, 0);
  ASSERT_EQ(segments_.size(), 2u);
  EXPECT_EQ(segments_[1].bytes, 2048u);
}

TEST_F(prp, one_piece_needs_no_list) {
  auto const whole = [&](std::uint64_t prp1, std::uint64_t prp2, std::uint64_t bytes) {
    dma_segment piece;
    bool const is = one_piece<native>(regions_.table(), prp1, prp2, bytes, page, piece);
    EXPECT_TRUE(!is || (piece.address == prp1 && piece.bytes == bytes));
    return is;
  };
  EXPECT_TRUE(whole(address(3, 512), 0, 512));
  EXPECT_TRUE(whole(address(3), outside, 4096));
  EXPECT_TRUE(whole(address(3, 2048), address(4), 4096));
  EXPECT_TRUE(whole(address(3), address(4), 8192));
  EXPECT_FALSE(whole(address(3, 2048), address(9), 4096)) << "elsewhere";
  EXPECT_FALSE(whole(address(3), address(4), 8704)) << "a list";
  EXPECT_FALSE(whole(address(3, 2), 0, 512)) << "an offset that is refused";
  EXPECT_FALSE(whole(outside, 0, 512)) << "not registered";
}

TEST_F(prp, bad_offsets) {
  auto const invalid = nvme::status_field(generic_status::prp_offset_invalid);
  EXPECT_EQ(code(walk(address(3, 2), 0, 512)), invalid);
  EXPECT_EQ(code(walk(address(3), address(4, 4), 8192)), invalid);
  EXPECT_EQ(code(walk(address(3), address(4, 4), 3 * page)), invalid) << "a list must be aligned to 8";
  word(address(10)) = address(5);
  word(address(10, 8)) = address(6, 512);
  EXPECT_EQ(code(walk(address(3), address(10), 3 * page)), invalid) << "an entry of a list has an offset";
}

TEST_F(prp, memory_that_is_not_registered) {
  auto const refused = nvme::status_field(generic_status::data_transfer_error);
  EXPECT_EQ(code(walk(outside, 0, 512)), refused);
  EXPECT_EQ(code(walk(address(3), outside, 8192)), refused);
  EXPECT_EQ(code(walk(address(3), outside, 3 * page)), refused) << "the list";
  EXPECT_EQ(code(walk(address(1023), 0, 512)), 0);
  word(address(10)) = address(5);
  word(address(10, 8)) = outside;
  EXPECT_EQ(code(walk(address(3), address(10), 3 * page)), refused) << "an entry of the list";
  EXPECT_EQ(code(walk(address(3), 0, 8192)), refused) << "no second entry";
}

TEST_F(prp, a_chain_must_go_to_the_start_of_a_page) {
  // Room for one pointer only: the chain.
  word(address(10, page - 8)) = address(11, 8);
  EXPECT_EQ(code(walk(address(3), address(10, page - 8), 3 * page)),
            nvme::status_field(generic_status::prp_offset_invalid));
}

TEST_F(prp, lists_agree_with_a_reference_over_random_shapes) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint64_t> free(1024);
    std::iota(free.begin(), free.end(), 0);
    if (random() % 2 == 0) std::shuffle(free.begin(), free.end(), random);
    auto const next_page = [&] {
      std::uint64_t const index = free.back();
      free.pop_back();
      return index;
    };
    std::uint64_t const bytes = 4 * (1 + random() % (random() % 4 == 0 ? 600 * page / 4 : 5 * page / 4));
    std::uint64_t const offset = random() % 2 == 0 ? 0 : 4 * (random() % (page / 4));
    std::vector<dma_segment> pieces;
    std::uint64_t left = bytes;
    for (std::uint64_t at = offset; left != 0; at = 0) {
      std::uint64_t const length = std::min(page - at, left);
      pieces.push_back({address(next_page(), at), length});
      left -= length;
    }
    std::uint64_t prp2 = 0;
    if (pieces.size() == 2) prp2 = pieces[1].address;
    if (pieces.size() > 2) {
      // Written the way the specification says it: fill the page; when more remain, the last slot chains.
      std::uint64_t list = address(next_page(), random() % 3 == 0 ? 8 * (random() % 512) : 0);
      prp2 = list;
      for (std::size_t i = 1; i < pieces.size(); ++i) {
        if (list % page == page - 8 && i + 1 < pieces.size()) {
          std::uint64_t const chained = address(next_page());
          word(list) = chained;
          list = chained;
        }
        word(list) = pieces[i].address;
        list += 8;
      }
    }
    ASSERT_EQ(walk(pieces[0].address, prp2, bytes).status_field, 0) << bytes << " bytes at offset " << offset;
    ASSERT_EQ(segments_.size(), pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      ASSERT_EQ(segments_[i].address, pieces[i].address);
      ASSERT_EQ(segments_[i].bytes, pieces[i].bytes);
    }
  }
}

}  // namespace
}  // namespace forebay::emulator
