// SPDX-License-Identifier: Apache-2.0
//! \file
//! Copies by one thread and by teams of lanes: every byte of the targets, and none beside them.
#include "forebay/detail/emulator/mover.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "support/schedules.hpp"

namespace forebay::emulator {
namespace {

struct one_copy {
  std::uint64_t to, from;
  std::uint32_t bytes;
};

/// Two areas of which one is copied to the other, piece by piece.
class areas {
 public:
  areas(std::mt19937_64& random, std::size_t bytes) : from_(bytes / 16), to_(bytes / 16) {
    for (simt::vec16& word : from_) word = {random(), random()};
    for (simt::vec16& word : to_) word = {random(), random()};
    expected_ = to_;
    kept_ = from_;
  }
  std::byte* to(std::uint64_t at = 0) { return reinterpret_cast<std::byte*>(to_.data()) + at; }
  std::byte const* from(std::uint64_t at = 0) const { return reinterpret_cast<std::byte const*>(from_.data()) + at; }

  void expect(one_copy const& copy) {
    std::memcpy(reinterpret_cast<std::byte*>(expected_.data()) + copy.to, from(copy.from), copy.bytes);
  }
  bool agree() const {
    std::size_t const bytes = to_.size() * sizeof(simt::vec16);
    return std::memcmp(to_.data(), expected_.data(), bytes) == 0 && std::memcmp(from_.data(), kept_.data(), bytes) == 0;
  }

 private:
  std::vector<simt::vec16> from_, to_, expected_, kept_;
};

/// Sizes that drives see, and sizes around what a team copies at a time.
std::uint32_t draw_bytes(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      return static_cast<std::uint32_t>(4 * (random() % 200));
    case 1:
      return static_cast<std::uint32_t>(16 * (random() % 600));
    case 2:
      return 16u * 32 * loads_in_flight + static_cast<std::uint32_t>(16 * (random() % 3)) - 16;
    case 3:
      return 131072;
    default:
      return 512u << random() % 6;
  }
}

one_copy draw_copy(std::mt19937_64& random, bool aligned) {
  std::uint64_t const step = aligned ? 16 : 4;
  one_copy copy{step * (1 + random() % 64), step * (1 + random() % 64), draw_bytes(random)};
  if (aligned) copy.bytes = copy.bytes / 16 * 16;
  return copy;
}

constexpr std::size_t room = 131072 + 4096;

TEST(mover, a_thread_moves_every_byte_and_no_other) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 200; ++round) {
    areas memory(random, room);
    one_copy const copy = draw_copy(random, round % 2 == 0);
    memory.expect(copy);
    move_bytes(simt::team<simt::native>::here(), memory.to(copy.to), memory.from(copy.from), copy.bytes);
    ASSERT_TRUE(memory.agree()) << copy.bytes << " bytes from " << copy.from << " to " << copy.to;
  }
}

/// Lists as the dispatcher makes them: copies come a team's worth at a time, and not every lane has one.
struct drawn_list {
  std::vector<one_copy> copies;
  std::vector<bool> has;
};

drawn_list draw_list(std::mt19937_64& random) {
  drawn_list list;
  std::uint32_t const kind = static_cast<std::uint32_t>(random() % 4);
  std::uint32_t const alike_bytes = 16 * static_cast<std::uint32_t>(1 + random() % (random() % 2 == 0 ? 32 : 600));
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < move_list::capacity; ++i) {
    one_copy copy = draw_copy(random, kind < 3);
    if (copy.bytes > 8192) copy.bytes = 4096;
    if (kind < 2) copy.bytes = alike_bytes;
    copy.to += at;  // apart from the others
    at = (copy.to + copy.bytes + 31) / 16 * 16;
    list.copies.push_back(copy);
    list.has.push_back(random() % 16 < (kind == 1 ? 4u : 15u));
  }
  return list;
}

template <class M>
void run(drawn_list const& list, areas& memory, move_list& moves) {
  auto const lanes = simt::team<M>::here();
  moves.clear(lanes);
  for (std::uint32_t first = 0; first < move_list::capacity; first += lanes.count()) {
    std::uint32_t const i = first + lanes.rank();
    bool const has = i < move_list::capacity && list.has[i];
    one_copy const copy = has ? list.copies[i] : one_copy{};
    moves.append(lanes, has, memory.to(copy.to), memory.from(copy.from), copy.bytes);
  }
  moves.run(lanes);
}

constexpr std::size_t list_room = move_list::capacity * (9600 + 2048);

void expect_list(drawn_list const& list, areas& memory) {
  for (std::size_t i = 0; i < list.copies.size(); ++i) {
    if (list.has[i]) memory.expect(list.copies[i]);
  }
}

TEST(mover, a_thread_makes_the_copies_of_a_list) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  auto const moves = std::make_unique<move_list>();
  for (int round = 0; round < 100; ++round) {
    areas memory(random, list_room);
    drawn_list const list = draw_list(random);
    expect_list(list, memory);
    run<simt::native>(list, memory, *moves);
    ASSERT_TRUE(memory.agree()) << "round " << round;
  }
}

class mover_of_a_team : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(lanes, mover_of_a_team, ::testing::Values(1u, 2u, 5u, 32u));

TEST_P(mover_of_a_team, moves_every_byte_and_no_other) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  for (std::uint64_t round = 0; round < 60; ++round) {
    areas memory(random, room);
    one_copy const copy = draw_copy(random, round % 2 == 0);
    memory.expect(copy);
    testing::on_team(GetParam(), seed + round, [&] {
      move_bytes(simt::team<simt::fiber>::here(), memory.to(copy.to), memory.from(copy.from), copy.bytes);
    });
    ASSERT_TRUE(memory.agree()) << copy.bytes << " bytes from " << copy.from << " to " << copy.to;
  }
}

TEST_P(mover_of_a_team, makes_the_copies_of_a_list) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  auto const moves = std::make_unique<move_list>();
  for (std::uint64_t round = 0; round < 16; ++round) {
    areas first(random, list_room), second(random, list_room);
    drawn_list const one = draw_list(random), other = draw_list(random);
    expect_list(one, first);
    expect_list(other, second);
    testing::on_team(GetParam(), seed + round, [&] {
      run<simt::fiber>(one, first, *moves);
      run<simt::fiber>(other, second, *moves);
    });
    ASSERT_TRUE(first.agree()) << "first list of round " << round;
    ASSERT_TRUE(second.agree()) << "second list of round " << round;
  }
}

}  // namespace
}  // namespace forebay::emulator
