// SPDX-License-Identifier: Apache-2.0
//! \file
//! ThreadSanitizer sees lanes as threads of their own: it finds races on data that the machine does not track.
#include <gtest/gtest.h>

#include <cstdlib>

#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/run.hpp"

namespace forebay::simt {
namespace {

struct message {
  std::uint32_t flag = 0;
  int data = 0;  // not tracked
  order store = order::release, load = order::acquire;
  bool fences = false;
  bool adds = false;  ///< a read-modify-write carries the message

  void operator()() {
    if (fiber::thread_rank() == 0) {
      data = 42;
      if (fences) fiber::fence(scope::device, order::release);
      if (adds) {
        atomic<fiber>(flag).fetch_add(1, store);
      } else {
        atomic<fiber>(flag).store(1, store);
      }
    } else {
      bool const seen = fiber::wait_until([&] { return atomic<fiber>(flag).load(load) == 1; }, no_deadline);
      if (fences) fiber::fence(scope::device, order::acquire);
      fiber::check(seen && data == 42, "data");
    }
  }
};

[[noreturn]] void run_once(message m) {
  run({}, round_robin(), {1, 2, 0}, [&] { m(); });
  std::exit(0);
}
[[noreturn]] void launch_once(message m) {
  launch<fiber>({1, 2, 0}, [&] { m(); }, {.os_threads = 1});
  std::exit(0);
}
[[noreturn]] void meet(void (*sync)()) {
  int words[32] = {};
  run({}, round_robin(), {1, 32, 0}, [&] {
    words[fiber::thread_rank()] = 1;
    sync();
    fiber::check(words[(fiber::thread_rank() + 1) % 32] == 1, "my neighbour's word");
  });
  std::exit(0);
}

auto const clean = ::testing::ExitedWithCode(0);
auto const reported = ::testing::ExitedWithCode(66);  // ThreadSanitizer's own

TEST(ThreadSanitizer, PassesReleaseAndAcquire) {
  EXPECT_EXIT(run_once({}), clean, "");
  EXPECT_EXIT(launch_once({}), clean, "");
}

TEST(ThreadSanitizer, FindsAMissingRelease) {
  EXPECT_EXIT(run_once({.store = order::relaxed}), reported, "data race");
  EXPECT_EXIT(launch_once({.store = order::relaxed}), reported, "data race");
}

TEST(ThreadSanitizer, FindsAMissingAcquire) {
  EXPECT_EXIT(run_once({.load = order::relaxed}), reported, "data race");
  EXPECT_EXIT(launch_once({.load = order::relaxed}), reported, "data race");
}

TEST(ThreadSanitizer, PassesFences) {
  EXPECT_EXIT(run_once({.store = order::relaxed, .load = order::relaxed, .fences = true}), clean, "");
  EXPECT_EXIT(launch_once({.store = order::relaxed, .load = order::relaxed, .fences = true}), clean, "");
  for (order const store : {order::relaxed, order::acquire}) {
    EXPECT_EXIT(launch_once({.store = store, .load = order::relaxed, .fences = true, .adds = true}), clean, "");
    EXPECT_EXIT(launch_once({.store = store, .adds = true}), reported, "data race");
  }
}

TEST(ThreadSanitizer, KnowsBarriersAndThatBallotsAreNone) {
  EXPECT_EXIT(meet([] { fiber::this_block().sync(); }), clean, "");
  EXPECT_EXIT(meet([] { fiber::this_warp().sync(); }), clean, "");
  EXPECT_EXIT(meet([] { static_cast<void>(fiber::this_warp().ballot(true)); }), reported, "data race");
}

}  // namespace
}  // namespace forebay::simt
