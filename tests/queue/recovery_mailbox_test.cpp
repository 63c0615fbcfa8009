// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/recovery_mailbox.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "support/queue_schedule.hpp"

namespace forebay::test {
namespace {

using native = simt::native;

TEST(RecoveryMailbox, GivesBackWhatWasPosted) {
  std::array<std::uint64_t, 4> words{};
  recovery_mailbox const mailbox{words.data(), 4};
  recovery_request const extremes[] = {{0, 0, 0}, {65534, 65534, (1u << 30) - 2}, {0, 65534, 0}, {65534, 0, 5}};
  for (auto const& request : extremes) {
    mailbox.post<native>(request);
    recovery_request taken;
    ASSERT_TRUE(mailbox.take<native>(taken));
    EXPECT_EQ(taken, request);
    EXPECT_FALSE(mailbox.take<native>(taken));
  }
}

TEST(RecoveryMailbox, HoldsARequestOnceAndDropsWhatDoesNotFit) {
  std::array<std::uint64_t, 2> words{};
  recovery_mailbox const mailbox{words.data(), 2};
  for (int i = 0; i < 3; ++i) mailbox.post<native>({1, 2, 3});
  mailbox.post<native>({1, 2, 4});
  mailbox.post<native>({1, 2, 5});
  recovery_request taken;
  std::vector<recovery_request> all;
  while (mailbox.take<native>(taken)) all.push_back(taken);
  EXPECT_EQ(all, (std::vector<recovery_request>{{1, 2, 3}, {1, 2, 4}}));
}

TEST(RecoveryMailbox, NoWordsDropEverything) {
  recovery_mailbox const mailbox;
  mailbox.post<native>({1, 2, 3});
  recovery_request taken;
  EXPECT_FALSE(mailbox.take<native>(taken));
}

TEST(RecoveryMailbox, WithRoomForAllNothingIsLostUnderAnySchedule) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    constexpr std::uint32_t lanes = 5;
    std::array<std::uint64_t, 3 * lanes> words{};
    recovery_mailbox const mailbox{words.data(), 3 * lanes};
    std::vector<recovery_request> taken;
    simt::run_options options;
    options.memory = mode_of(seed).memory;
    options.record = false;
    simt::random scheduler(seed, 3);
    simt::agent const host{"host", [&] {
                             while (taken.size() < 3 * lanes) {
                               recovery_request request;
                               (void)simt::fiber::wait_until([&] { return mailbox.take<simt::fiber>(request); },
                                                             simt::no_deadline);
                               taken.push_back(request);
                             }
                           }};
    auto const result = simt::run(options, scheduler, {1, lanes, 0},
                                  [&] {
                                    for (std::uint32_t i = 0; i < 3; ++i)
                                      mailbox.post<simt::fiber>({simt::fiber::thread_rank(), i, 9});
                                  },
                                  {host});
    ASSERT_TRUE(result.ok) << result.what << "\n  seed " << seed;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(std::count(taken.begin(), taken.end(), recovery_request{lane, i, 9}), 1) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace forebay::test
