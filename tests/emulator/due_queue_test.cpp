// SPDX-License-Identifier: Apache-2.0
#include "forebay/emulator/due_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "emulator/seed.hpp"

namespace forebay::emulator {
namespace {

constexpr std::uint32_t capacity = 64;

class due_queue_test : public ::testing::Test {
 protected:
  std::vector<std::byte> storage = std::vector<std::byte>(due_queue::storage_bytes(capacity));
  due_queue queue{storage.data(), capacity};
};

TEST_F(due_queue_test, equal_due_times_keep_their_order) {
  for (std::uint16_t i = 0; i < capacity; ++i) queue.push({.due_ps = 5, .command_id = i});
  EXPECT_EQ(queue.free(), 0u);
  for (std::uint16_t i = 0; i < capacity; ++i) EXPECT_EQ(queue.pop().command_id, i);
  EXPECT_TRUE(queue.empty());
}

TEST_F(due_queue_test, equal_due_times_keep_their_order_behind_a_later_one_too) {
  queue.push({.due_ps = 9, .command_id = 100});
  for (std::uint16_t i = 0; i < 40; ++i) queue.push({.due_ps = 5, .command_id = i});
  for (std::uint16_t i = 0; i < 40; ++i) EXPECT_EQ(queue.pop().command_id, i);
  EXPECT_EQ(queue.pop().command_id, 100);
}

TEST_F(due_queue_test, what_is_withheld_holds_nothing_up) {
  queue.push({.due_ps = never_ps, .command_id = 1});
  queue.push({.due_ps = 7, .command_id = 2});
  queue.push({.due_ps = 3, .command_id = 3});
  EXPECT_EQ(queue.next_due_ps(), 3u);
  EXPECT_EQ(queue.pop().command_id, 3);
  EXPECT_EQ(queue.pop().command_id, 2);
  EXPECT_EQ(queue.next_due_ps(), never_ps);
  EXPECT_EQ(queue.size(), 1u);
}

TEST_F(due_queue_test, agrees_with_a_sorted_map) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  std::multimap<std::uint64_t, std::uint16_t> reference;
  std::uint64_t now = 0;
  std::uint16_t next_id = 0;
  for (int round = 0; round < 100'000; ++round) {
    now += random() % 3;
    std::uint64_t const what = random() % 8;
    if (what < 4 && queue.free() != 0) {
      std::uint64_t const due = random() % 20 == 0 ? never_ps : now + random() % (random() % 2 == 0 ? 2 : 100);
      queue.push({.due_ps = due, .command_id = next_id});
      reference.emplace(due, next_id++);
    } else if (what < 7 && !queue.empty() && queue.next_due_ps() != never_ps) {
      pending_command const command = queue.pop();
      ASSERT_EQ(command.due_ps, reference.begin()->first);
      auto const [first, last] = reference.equal_range(command.due_ps);
      auto const found = std::find_if(first, last, [&](auto const& e) { return e.second == command.command_id; });
      ASSERT_NE(found, last);
      reference.erase(found);
    } else if (!reference.empty()) {
      auto victim = reference.begin();
      std::advance(victim, random() % reference.size());
      pending_command taken;
      ASSERT_TRUE(queue.take(victim->second, taken));
      ASSERT_EQ(taken.due_ps, victim->first);
      reference.erase(victim);
    }
    ASSERT_EQ(queue.size(), reference.size());
    ASSERT_EQ(queue.next_due_ps(), reference.empty() ? never_ps : reference.begin()->first);
  }
  pending_command none;
  EXPECT_FALSE(queue.take(static_cast<std::uint16_t>(next_id + 1), none));
}

}  // namespace
}  // namespace forebay::emulator
