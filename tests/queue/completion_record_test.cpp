// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/completion_record.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "support/queue_schedule.hpp"

namespace forebay::test {
namespace {

using native = simt::native;

struct pool_of_two {
  std::array<completion_record, 2> records{};
  std::uint32_t free = 3;
  template <class M>
  record_pool<M> pool() {
    return {records.data(), slot_pool{&free, 1}};
  }
};

status const failure = status::from_nvme(nvme::status_field(nvme::media_status::unrecovered_read_error));
status const other_failure = status::from_nvme(nvme::status_field(nvme::generic_status::lba_out_of_range));

TEST(CompletionRecord, IsDoneAfterAsManyCompletionsAsItWasOpenedFor) {
  pool_of_two memory;
  auto const pool = memory.pool<native>();
  std::uint32_t const record = pool.try_open(3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(pool.done(record));
    pool.complete(record, status());
  }
  EXPECT_TRUE(pool.done(record));
  EXPECT_EQ(memory.free, 3u & ~(1u << record));
  EXPECT_TRUE(pool.close(record).ok());
  EXPECT_EQ(memory.free, 3u);
}

TEST(CompletionRecord, KeepsTheFirstFailure) {
  pool_of_two memory;
  auto const pool = memory.pool<native>();
  std::uint32_t const record = pool.try_open(4);
  pool.complete(record, status());
  pool.complete(record, failure);
  pool.complete(record, other_failure, 2);
  EXPECT_TRUE(pool.done(record));
  EXPECT_EQ(pool.close(record), failure);
}

TEST(CompletionRecord, ForgetsTheFailureOfItsLastUse) {
  pool_of_two memory;
  auto const pool = memory.pool<native>();
  for (int i = 0; i < 4; ++i) {
    std::uint32_t const record = pool.try_open(1);
    pool.complete(record, i % 2 == 0 ? failure : status());
    EXPECT_EQ(pool.close(record), i % 2 == 0 ? failure : status());
  }
}

TEST(CompletionRecord, AnEmptyPoolOpensNone) {
  pool_of_two memory;
  auto const pool = memory.pool<native>();
  EXPECT_NE(pool.try_open(1), pool.none);
  EXPECT_NE(pool.try_open(1), pool.none);
  EXPECT_EQ(pool.try_open(1), pool.none);
}

TEST(CompletionRecord, DetachedGoesBackWithItsLastCompletion) {
  pool_of_two memory;
  auto const pool = memory.pool<native>();
  std::uint32_t const record = pool.try_open(2);
  pool.complete(record, failure);
  pool.detach(record);
  EXPECT_NE(memory.free, 3u);
  pool.complete(record, status());
  EXPECT_EQ(memory.free, 3u);
}

TEST(CompletionRecord, DetachedAfterItsLastCompletionGoesBackAtOnce) {
  pool_of_two memory;
  auto const pool = memory.pool<native>();
  std::uint32_t const record = pool.try_open(1);
  pool.complete(record, status());
  pool.detach(record);
  EXPECT_EQ(memory.free, 3u);
}

/// Three lanes complete; a fourth waits for the result and the data behind it, or detaches.
TEST(CompletionRecord, DataAndStatusReachTheWaiterUnderEverySchedule) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    pool_of_two memory;
    std::array<std::uint32_t, 3> data{};
    std::uint32_t shared_record = 0;
    std::uint32_t opened = 0;
    simt::run_options options;
    options.memory = mode_of(seed).memory;
    options.record = false;
    simt::random scheduler(seed, 3);
    auto const result = simt::run(options, scheduler, {1, 4, 0}, [&] {
      using M = simt::fiber;
      auto const pool = memory.pool<M>();
      std::uint32_t const me = M::thread_rank();
      if (me == 3) {
        std::uint32_t const record = pool.try_open(3);
        M::st(&shared_record, record);
        // Release pairs with the acquire of the lanes that complete.
        simt::atomic<M>(opened).store(1, simt::order::release);
        if (seed % 3 == 0) return pool.detach(record);
        M::check(M::wait_until([&] { return pool.done(record); }, simt::no_deadline), "done");
        for (auto const& word : data) M::check(M::ld(&word) == 7, "a completion without its data");
        M::check(pool.close(record) == failure, "the failure did not reach the waiter");
      } else {
        M::check(
            M::wait_until([&] { return simt::atomic<M>(opened).load(simt::order::acquire) != 0; }, simt::no_deadline),
            "opened");
        M::st(&data[me], 7);
        // Release pairs with the acquire in done(), as in a thread that consumes completions.
        M::fence(simt::scope::device, simt::order::release);
        pool.complete(M::ld(&shared_record), me == 1 ? failure : status());
      }
    });
    ASSERT_TRUE(result.ok) << result.what << "\n  seed " << seed;
    ASSERT_EQ(memory.free, 3u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace forebay::test
