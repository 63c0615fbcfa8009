// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/simt/waiting_work.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "forebay/detail/simt/native.hpp"

namespace forebay::simt {
namespace {

constexpr std::uint64_t patience_ns = 20'000'000'000;

/// Notes what is asked of it.
struct noted_work final : waiting_work {
  result work() noexcept override {
    ++works;
    return answer;
  }
  bool wait(std::uint64_t most_ns) noexcept override {
    ++waits;
    longest_wait_ns = std::max(longest_wait_ns, most_ns);
    return can_wait;
  }
  std::atomic<int> works{0};
  int waits = 0;
  std::uint64_t longest_wait_ns = 0;
  std::atomic<result> answer{result::nothing};
  bool can_wait = false;
};

TEST(waiting_work, is_done_by_a_thread_that_waits_for_what_it_brings) {
  struct final_step final : waiting_work {
    result work() noexcept override {
      if (steps == 3) return result::nothing;
      ++steps;
      return result::some;
    }
    bool wait(std::uint64_t) noexcept override { return false; }
    int steps = 0;
  } work;
  offered_work const offer(work);
  ASSERT_TRUE(offer.made());
  EXPECT_TRUE(native::wait_until([&] { return work.steps == 3; }, native::clock_ns() + patience_ns));
}

TEST(waiting_work, is_waited_for_if_there_is_none_and_no_longer_than_the_thread_may_wait) {
  noted_work first, second;
  offered_work const of_first(first), of_second(second);
  first.can_wait = true;
  EXPECT_TRUE(do_waiting_work(1000));
  EXPECT_EQ(first.works + second.works, 2);
  EXPECT_EQ(first.waits, 1);
  EXPECT_EQ(first.longest_wait_ns, 1000u);
  EXPECT_EQ(second.waits, 0);
  // The first look is not followed by a wait.
  EXPECT_FALSE(do_waiting_work(0));
  EXPECT_EQ(first.waits, 1);
  first.can_wait = false;
  EXPECT_FALSE(do_waiting_work(1000));
  EXPECT_EQ(second.waits, 1);
}

TEST(waiting_work, is_not_waited_for_while_another_thread_does_some) {
  noted_work work;
  offered_work const offer(work);
  work.can_wait = true;
  work.answer = waiting_work::result::taken;
  EXPECT_FALSE(do_waiting_work(1000));
  EXPECT_EQ(work.works, 1);
  EXPECT_EQ(work.waits, 0);
  work.answer = waiting_work::result::some;
  EXPECT_TRUE(do_waiting_work(1000));
  EXPECT_EQ(work.waits, 0);
}

TEST(waiting_work, that_waits_does_no_other_work) {
  struct nested final : waiting_work {
    result work() noexcept override {
      ++works;
      EXPECT_TRUE(at_waiting_work());
      EXPECT_FALSE(native::wait_until([] { return false; }, native::clock_ns() + 100'000));
      return result::some;
    }
    bool wait(std::uint64_t) noexcept override { return false; }
    int works = 0;
  } work;
  offered_work const offer(work);
  EXPECT_FALSE(at_waiting_work());
  EXPECT_TRUE(do_waiting_work(1000));
  EXPECT_FALSE(at_waiting_work());
  EXPECT_EQ(work.works, 1);
}

TEST(waiting_work, is_not_done_by_a_thread_that_has_its_own) {
  noted_work work;
  offered_work const offer(work);
  std::thread([&] {
    do_no_waiting_work();
    EXPECT_FALSE(do_waiting_work(1000));
  }).join();
  EXPECT_EQ(work.works, 0);
}

// The loads of `over` and the stores to it are ordered by nothing but the offer's end.
TEST(waiting_work, is_over_when_its_offer_has_ended) {
  for (int round = 0; round < 200; ++round) {
    struct tracked final : waiting_work {
      result work() noexcept override {
        EXPECT_FALSE(over);
        ++works;
        return result::some;
      }
      bool wait(std::uint64_t) noexcept override { return false; }
      bool over = false;
      std::atomic<int> works{0};
    } work;
    std::optional<offered_work> offer(std::in_place, work);
    std::atomic<bool> stop{false};
    std::vector<std::thread> others;
    for (int i = 0; i < 2; ++i) {
      others.emplace_back([&] {
        while (!stop.load()) do_waiting_work(0);
      });
    }
    while (work.works == 0) std::this_thread::yield();
    offer.reset();
    work.over = true;
    stop = true;
    for (std::thread& other : others) other.join();
  }
}

TEST(waiting_work, can_be_offered_so_many_times_at_once) {
  noted_work work;
  std::vector<std::unique_ptr<offered_work>> offers;
  for (int i = 0; i < offered_work::offers_max; ++i) {
    offers.push_back(std::make_unique<offered_work>(work));
    EXPECT_TRUE(offers.back()->made());
  }
  EXPECT_FALSE(offered_work(work).made());
  do_waiting_work(0);
  EXPECT_EQ(work.works, offered_work::offers_max);
  offers.erase(offers.begin());
  EXPECT_TRUE(offered_work(work).made());
}

// The child has neither the threads nor the drives of its parent.
TEST(waiting_work, is_forgotten_by_a_forked_child) {
  noted_work work;
  std::optional<offered_work> offer(std::in_place, work);
  pid_t const child = fork();
  if (child == 0) {
    do_waiting_work(0);
    if (work.works != 0) _exit(1);
    noted_work own;
    offered_work const of_child(own);  // takes the parent's place
    offer.reset();
    do_waiting_work(0);
    _exit(own.works == 1 && work.works == 0 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  do_waiting_work(0);
  EXPECT_EQ(work.works, 1);
}

}  // namespace
}  // namespace forebay::simt
