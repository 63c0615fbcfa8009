// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/prp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "support/schedules.hpp"

namespace forebay::emulator {
namespace {

using nvme::generic_status;
using simt::native;

constexpr std::uint64_t page = 4096;

/// A transfer and where it goes.
struct drawn {
  std::vector<dma_segment> pieces;
  std::vector<std::uint64_t> entries;  ///< the places of the list's entries, including those that chain
  std::uint64_t prp2 = 0;
  std::uint64_t bytes = 0;
};

class prp : public ::testing::Test {
 protected:
  prp() : memory_(memory::host(), 1024 * page, page), regions_(memory::host(), 6) {
    regions_.add(memory_.data(), memory_.size_bytes());
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
  /// A transfer of random size to random pages, its list written.
  drawn draw(std::mt19937_64& random);
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
  EXPECT_FALSE(whole(address(1023), address(1023) + page, 8192)) << "the second page is not registered";
  EXPECT_FALSE(whole(address(1023, 2048), address(1023) + page, 4096)) << "nor is that one";
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
  EXPECT_EQ(code(walk(address(1023), address(1023) + page, 8192)), refused) << "the page after the last";
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

drawn prp::draw(std::mt19937_64& random) {
  std::vector<std::uint64_t> free(1024);
  std::iota(free.begin(), free.end(), 0);
  if (random() % 2 == 0) std::shuffle(free.begin(), free.end(), random);
  auto const next_page = [&] {
    std::uint64_t const index = free.back();
    free.pop_back();
    return index;
  };
  drawn transfer;
  transfer.bytes = 4 * (1 + random() % (random() % 4 == 0 ? 600 * page / 4 : 5 * page / 4));
  std::uint64_t const offset = random() % 2 == 0 ? 0 : 4 * (random() % (page / 4));
  std::vector<dma_segment>& pieces = transfer.pieces;
  std::uint64_t left = transfer.bytes;
  for (std::uint64_t at = offset; left != 0; at = 0) {
    std::uint64_t const length = std::min(page - at, left);
    pieces.push_back({address(next_page(), at), length});
    left -= length;
  }
  if (pieces.size() == 2) transfer.prp2 = pieces[1].address;
  if (pieces.size() > 2) {
    // Written as the specification says: fill the page; if more remain, the last slot chains.
    std::uint64_t list = address(next_page(), random() % 3 == 0 ? 8 * (random() % 512) : 0);
    transfer.prp2 = list;
    for (std::size_t i = 1; i < pieces.size(); ++i) {
      if (list % page == page - 8 && i + 1 < pieces.size()) {
        std::uint64_t const chained = address(next_page());
        word(list) = chained;
        transfer.entries.push_back(list);
        list = chained;
      }
      word(list) = pieces[i].address;
      transfer.entries.push_back(list);
      list += 8;
    }
  }
  return transfer;
}

TEST_F(prp, lists_agree_with_a_reference_over_random_shapes) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    auto const [pieces, entries, prp2, bytes] = draw(random);
    ASSERT_EQ(walk(pieces[0].address, prp2, bytes).status_field, 0) << bytes << " bytes in round " << round;
    ASSERT_EQ(segments_.size(), pieces.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      ASSERT_EQ(segments_[i].address, pieces[i].address);
      ASSERT_EQ(segments_[i].bytes, pieces[i].bytes);
    }
  }
}

class prp_of_a_team : public prp, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  static std::uint64_t sum_of(dma_segment const* segments, std::uint32_t count) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum = sum * 31 + segments[i].address + segments[i].bytes;
    return sum;
  }
  /// The walk of a team under schedule `seed`, beside `agents`; nothing if its lanes do not agree.
  std::optional<prp_walk> walk_together(std::uint64_t seed, std::uint64_t prp1, std::uint64_t prp2, std::uint64_t bytes,
                                        std::vector<simt::agent> const& agents = {}) {
    std::vector<prp_walk> walks(GetParam());
    std::vector<std::uint64_t> sums(GetParam());  // of the segments that each lane saw
    segments_.assign(max_segments(bytes, page), {});
    simt::run_result result;
    auto const walker = [&] {
      auto const lanes = simt::team<simt::fiber>::here();
      prp_walk& mine = walks[lanes.rank()];
      mine = walk_prps<simt::fiber>(lanes, regions_.table(), prp1, prp2, bytes, page, segments_.data());
      sums[lanes.rank()] = sum_of(segments_.data(), mine.count);
    };
    testing::with_schedule(seed, [&](simt::memory_model memory, simt::scheduler& schedule) {
      // Changes during the walk are no race of the walk's making.
      if (!agents.empty()) memory = simt::memory_model::sequential;
      result = simt::run({.memory = memory}, schedule, {.blocks = 1, .threads_per_block = GetParam()}, walker, agents);
    });
    EXPECT_TRUE(result.ok) << result.what;
    segments_.resize(walks[0].count);
    std::uint64_t const sum = sum_of(segments_.data(), walks[0].count);
    bool agree = result.ok;
    for (std::uint32_t lane = 0; lane < GetParam(); ++lane) {
      prp_walk const& one = walks[lane];
      agree = agree && one.status_field == walks[0].status_field && one.count == walks[0].count && sums[lane] == sum;
    }
    return agree ? std::optional(walks[0]) : std::nullopt;
  }
};
INSTANTIATE_TEST_SUITE_P(lanes, prp_of_a_team, ::testing::Values(1u, 5u, 32u));

TEST_P(prp_of_a_team, walks_as_one_thread_does) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  for (std::uint64_t round = 0; round < 120; ++round) {
    drawn transfer = draw(random);
    std::uint64_t prp1 = transfer.pieces[0].address;
    // Up to two entries are spoilt: which problem is reported must not depend on which lane finds one first.
    for (std::uint64_t spoilt = random() % 3; spoilt != 0; --spoilt) {
      std::uint64_t const bad = random() % 2 == 0 ? outside : address(random() % 1024, 4 * (1 + random() % 1023));
      std::size_t const which = random() % (transfer.entries.size() + 2);
      (which == 0 ? prp1 : which == 1 ? transfer.prp2 : word(transfer.entries[which - 2])) = bad;
    }
    prp_walk const expected = walk(prp1, transfer.prp2, transfer.bytes);
    auto const pieces = segments_;
    auto const found = walk_together(seed + round, prp1, transfer.prp2, transfer.bytes);
    ASSERT_TRUE(found) << "round " << round;
    ASSERT_EQ(found->status_field, expected.status_field) << "round " << round;
    ASSERT_EQ(segments_.size(), pieces.size()) << "round " << round;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      ASSERT_EQ(segments_[i].address, pieces[i].address) << "round " << round;
      ASSERT_EQ(segments_[i].bytes, pieces[i].bytes) << "round " << round;
    }
  }
}

TEST_P(prp_of_a_team, lanes_stay_together_when_the_client_changes_its_list) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a race on purpose";
#endif
  std::uint64_t& chain = word(address(10, page - 8));
  word(address(10, page - 16)) = address(5);
  word(address(11)) = address(6);
  word(address(11, 8)) = address(7);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    chain = address(11);
    auto const client = [&] {
      for (int i = 0; i < 20; ++i) simt::fiber::st(&chain, i % 2 == 0 ? address(11, 8) : address(11));
    };
    auto const found =
        walk_together(seed, address(3), address(10, page - 16), 4 * page, {{.name = "client", .body = client}});
    ASSERT_TRUE(found) << "seed " << seed;
    if (found->status_field == 0) {
      ASSERT_EQ(found->count, 4u);
    } else {
      ASSERT_EQ(code(*found), nvme::status_field(generic_status::prp_offset_invalid));
    }
  }
}

TEST_P(prp_of_a_team, lanes_stay_together_when_memory_is_unregistered) {
  word(address(10)) = address(5);
  word(address(10, 8)) = address(6);
  memory::allocation const other(memory::host(), 4 * page, page);
  auto const first = reinterpret_cast<std::uint64_t>(other.data());
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    auto const host = [&] {
      for (int i = 0; i < 4; ++i) {
        regions_.add(other.data(), other.size_bytes());
        std::uint32_t pause = 0;
        for (int k = 0; k < 5; ++k) (void)simt::fiber::ld(&pause);
        regions_.remove(other.data(), other.size_bytes());
      }
    };
    // The first page, the second, or the list.
    std::uint64_t const prp1 = seed % 3 == 0 ? first : address(3);
    std::uint64_t const prp2 = seed % 3 == 0 ? address(4) : seed % 3 == 1 ? first : first + page;
    std::uint64_t const bytes = seed % 3 == 2 ? 3 * page : 2 * page;
    auto* const list = reinterpret_cast<std::uint64_t*>(first + page);
    list[0] = address(5);
    list[1] = address(6);
    auto const found = walk_together(seed, prp1, prp2, bytes, {{.name = "host", .body = host}});
    ASSERT_TRUE(found) << "seed " << seed;
    if (found->status_field != 0) {
      ASSERT_EQ(code(*found), nvme::status_field(generic_status::data_transfer_error));
    }
  }
}

}  // namespace
}  // namespace forebay::emulator
