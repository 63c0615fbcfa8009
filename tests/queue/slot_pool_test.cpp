// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/slot_pool.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "support/queue_schedule.hpp"

namespace forebay::test {
namespace {

struct pool_memory {
  explicit pool_memory(std::uint32_t capacity) : words(slot_pool::words_for(capacity)) {
    for (std::uint32_t w = 0; w < words.size(); ++w) words[w] = slot_pool::all_free(capacity, w);
  }
  slot_pool pool() { return {words.data(), static_cast<std::uint32_t>(words.size())}; }
  std::vector<std::uint32_t> words;
};

TEST(SlotPool, HandsOutEveryIndexOnceWhateverTheHint) {
  for (std::uint32_t const capacity : {1u, 2u, 31u, 32u, 33u, 64u, 65u, 1000u}) {
    for (std::uint32_t const hint : {0u, 1u, 31u, 32u, 12345u, ~0u}) {
      pool_memory memory(capacity);
      slot_pool const pool = memory.pool();
      std::set<std::uint32_t> taken;
      for (std::uint32_t i = 0; i < capacity; ++i) {
        std::uint32_t const index = pool.try_take<simt::native>(hint);
        ASSERT_LT(index, capacity);
        ASSERT_TRUE(taken.insert(index).second) << "index " << index << " twice";
      }
      EXPECT_EQ(pool.try_take<simt::native>(hint), slot_pool::none);
      pool.give<simt::native>(capacity / 2);
      EXPECT_EQ(pool.try_take<simt::native>(hint), capacity / 2);
    }
  }
}

TEST(SlotPool, AnEmptyPoolHasNothing) {
  EXPECT_EQ(slot_pool{}.try_take<simt::native>(0), slot_pool::none);
}

/// Lanes take, write to what the index stands for, read it back and give it back: two holders at once would race.
TEST(SlotPool, AnIndexHasOneHolderUnderEverySchedule) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::uint32_t const capacity = 1 + static_cast<std::uint32_t>(seed % 5) * 17;
    pool_memory memory(capacity);
    slot_pool const pool = memory.pool();
    std::vector<std::uint32_t> holder(capacity);
    simt::run_options options;
    options.memory = mode_of(seed).memory;
    options.record = false;
    simt::random scheduler(seed, 3);
    auto const result = simt::run(options, scheduler, {1, 6, 0}, [&] {
      using M = simt::fiber;
      for (std::uint32_t round = 0; round < 6; ++round) {
        std::uint32_t index = slot_pool::none;
        (void)M::wait_until(
            [&] {
              index = pool.try_take<M>(M::thread_rank() * 7);
              return index != slot_pool::none;
            },
            simt::no_deadline);
        std::uint32_t const mark = M::thread_rank() + 1;
        M::st(&holder[index], mark);
        M::check(M::ld(&holder[index]) == mark, "two lanes hold the same index");
        pool.give<M>(index);
      }
    });
    ASSERT_TRUE(result.ok) << result.what << "\n  seed " << seed << ", capacity " << capacity;
    for (std::uint32_t w = 0; w < memory.words.size(); ++w) {
      ASSERT_EQ(memory.words[w], slot_pool::all_free(capacity, w));
    }
  }
}

}  // namespace
}  // namespace forebay::test
