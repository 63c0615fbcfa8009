// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/backoff.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <cstdint>

#include "forebay/detail/simt/native.hpp"

namespace forebay::simt {
namespace {

std::uint64_t processor_time_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

/// How often the calling thread has slept, or waited otherwise; a yield does not count.
long sleeps() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return used.ru_nvcsw;
}

/// Whether the pause sleeps. A nap of some microseconds may end before the thread has left its processor, if the
/// machine stops just then: the kernel counts no wait for that one. A pause that only yields is never counted.
template <class Pause>
bool sleeps_in(Pause&& pause) {
  for (int tries = 0; tries < 1000; ++tries) {
    long const before = sleeps();
    pause();
    if (sleeps() > before) return true;
  }
  return false;
}

TEST(backoff, naps_no_longer_than_an_eighth_of_the_wait) {
  EXPECT_EQ(backoff::nap_ns(0), 0u);
  EXPECT_EQ(backoff::nap_ns(backoff::yielding_ns - 1), 0u);
  for (std::uint64_t waited_ns = backoff::yielding_ns; waited_ns < 10 * backoff::long_wait_ns; waited_ns *= 2) {
    EXPECT_GT(backoff::nap_ns(waited_ns), 0u) << waited_ns;
    EXPECT_LE(backoff::nap_ns(waited_ns), waited_ns / 8) << waited_ns;
    EXPECT_LE(backoff::nap_ns(waited_ns), backoff::longest_sleep_ns) << waited_ns;
  }
}

// A thread that only yields uses its processor all the time. On a busy machine it gets less: then this check cannot
// fail.
TEST(backoff, leaves_the_processor_to_others_in_a_wait_that_is_long) {
  constexpr std::uint64_t wait_ns = 200'000'000;
  std::uint64_t const used_before_ns = processor_time_ns();
  std::uint64_t const until_ns = native::clock_ns() + wait_ns;
  EXPECT_FALSE(native::wait_until([] { return false; }, until_ns));
  EXPECT_GE(native::clock_ns(), until_ns);
  EXPECT_LT(processor_time_ns() - used_before_ns, wait_ns / 2);
}

// The clock here is the test's own: no step depends on the machine.
TEST(backoff, sleeps_once_the_time_for_yields_is_over_and_not_before) {
  backoff pauses;
  long before = sleeps();
  for (std::uint64_t now_ns = 1'000; now_ns < 1'000 + backoff::yielding_ns; now_ns += 1'000) {
    pauses.pause(now_ns, no_deadline);
  }
  EXPECT_EQ(sleeps(), before);
  EXPECT_TRUE(sleeps_in([&] { pauses.pause(1'000 + backoff::yielding_ns, no_deadline); }));

  pauses.start_over();
  before = sleeps();
  pauses.pause(1'000'000'000'000, no_deadline);
  EXPECT_EQ(sleeps(), before) << "another wait begins with looks";
}

TEST(backoff, is_awake_when_a_short_wait_ends) {
  backoff pauses;
  pauses.pause(0, no_deadline);
  long const before = sleeps();
  // Long enough to sleep, if its end were not near.
  pauses.pause(backoff::yielding_ns, backoff::yielding_ns + backoff::waking_ns);
  EXPECT_EQ(sleeps(), before);
  // The same once it is overdue.
  pauses.pause(backoff::yielding_ns, 0);
  EXPECT_EQ(sleeps(), before);
  // The same, with its end far away.
  EXPECT_TRUE(sleeps_in([&] { pauses.pause(backoff::yielding_ns, no_deadline); }));
}

// A Flush that waits for a slow disk is looked at every 20 us: such a look is no reason to stay awake for ever.
TEST(backoff, sleeps_in_a_long_wait_however_near_the_next_look_is) {
  backoff pauses;
  pauses.pause(0, no_deadline);
  EXPECT_TRUE(sleeps_in([&] { pauses.pause(backoff::precise_wait_ns, backoff::precise_wait_ns + 20'000); }));
  // What is overdue is no reason either. However near the end is, the sleep is not so short that it spins.
  for (std::uint64_t const latest_ns : {std::uint64_t{0}, backoff::precise_wait_ns + 1}) {
    std::uint64_t const from_ns = native::clock_ns();
    pauses.pause(backoff::precise_wait_ns, latest_ns);
    EXPECT_GE(native::clock_ns() - from_ns, backoff::shortest_nap_ns);
  }
}

TEST(backoff, leaves_the_timer_slack_of_the_thread_as_it_was) {
  int const found_ns = prctl(PR_GET_TIMERSLACK);
  ASSERT_EQ(prctl(PR_SET_TIMERSLACK, 123'456UL), 0);
  backoff pauses;
  pauses.pause(0, no_deadline);
  pauses.pause(backoff::precise_wait_ns, no_deadline);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), 123'456);
  prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(found_ns));
}

}  // namespace
}  // namespace forebay::simt
