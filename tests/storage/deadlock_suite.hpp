// SPDX-License-Identifier: Apache-2.0
//! \file
//! A kernel that deadlocks by itself, and the watchdog's report of it, whichever machine runs it. Compiled with
//! FOREBAY_DEBUG_WAITS, whatever the rest of the build is.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "forebay/storage.hpp"

namespace forebay::storage_test {

static_assert(debug_waits);

/// Each of two threads holds half of a cache of one set, page by page. Then, when the other one does too, each wants
/// one page more until `*stop` is set.
template <class M, class Ref>
struct grab_too_much {
  static constexpr std::uint32_t pages = 8;
  Ref storage;
  std::uint32_t* holding = nullptr;  ///< threads that hold their pages; in memory of both sides, as is `stop`
  std::uint32_t* stop = nullptr;

  FOREBAY_DEVICE void operator()() const { hold<0>(storage.template array<std::uint8_t const>()); }

  template <std::uint32_t Held, class View>
  FOREBAY_DEVICE void hold(View const& bytes) const {
    std::uint64_t const page_bytes = storage.page_bytes();
    auto page = bytes.thread_page();
    if constexpr (Held < pages) {
      M::check(page.seek((M::thread_rank() * pages + Held) * page_bytes).ok(), "a page that a thread may have");
      hold<Held + 1>(bytes);
    } else {
      // Relaxed, all: no other data is read on the strength of it.
      auto const both = simt::atomic<M, simt::scope::system>(*holding);
      both.fetch_add(1, simt::order::relaxed);
      // Otherwise the first thread could have its ninth page before the other one has its first.
      (void)M::wait_until([&] { return both.load(simt::order::relaxed) == 2; }, simt::no_deadline);
      while (simt::atomic<M, simt::scope::system>(*stop).load(simt::order::relaxed) == 0) {
        (void)page.seek((2 * pages + M::thread_rank()) * page_bytes);
      }
    }
  }
};

/// `Machine` as for `CachedStorageSuite`.
template <class Machine>
void expect_a_deadlock_to_be_reported() {
  using M = typename Machine::machine;
  using testing::ContainsRegex;
  using testing::HasSubstr;
  storage_options o;
  o.drives = {"emulated:size=1M" + Machine::drive_keys()};
  o.device = Machine::device();
  o.cache.size_bytes = 16 * o.cache.page_bytes;
  o.cache.overflow_frames = 0;
  // How often a thread whose wait fails comes back to check whether it may end.
  o.timeout_ns = 1'000'000'000;
  storage st(o);

  registered_buffer shared = st.allocate_buffer(8);
  auto* const holding = reinterpret_cast<std::uint32_t*>(shared.data());
  std::uint32_t* const stop = holding + 1;
  std::mutex mutex;
  std::vector<stuck_report> reports;
  {
    watchdog_options look;
    look.interval_ns = 10'000'000;
    look.report = [&](stuck_report const& report) {
      std::lock_guard const lock(mutex);
      reports.push_back(report);
      // Relaxed: the threads only end.
      if (report.circular) simt::atomic<simt::native, simt::scope::system>(*stop).store(1, simt::order::relaxed);
    };
    storage_lease const running = st.lease();
    watchdog const dog = st.watch(look);
    auto const ref = st.ref<M, cached>();
    Machine::run({.blocks = 2, .threads_per_block = 1},
                 grab_too_much<M, decltype(st.ref<M, cached>())>{ref, holding, stop});
  }
  EXPECT_EQ(*holding, 2u);
  ASSERT_FALSE(reports.empty());
  stuck_report const& last = reports.back();
  EXPECT_TRUE(last.circular) << last.reason;
  EXPECT_EQ(last.reason, "2 threads cannot go on before another of them has: thread 0 -> thread 1 -> thread 0");
  EXPECT_THAT(last.dump, HasSubstr("circular wait: 2 threads cannot go on before another of them has"));
  for (char const* const holds : {"thread 0 holds pages 0 to 7", "thread 1 holds pages 8 to 15"}) {
    EXPECT_THAT(last.dump,
                ContainsRegex(std::string(holds) + " and (for [0-9]+ ms )?waits for a frame of set 0, all of "
                                                   "whose frames are pinned by threads 0, 1\n"));
  }
  EXPECT_THAT(last.dump, HasSubstr("cycle: thread 0 -> thread 1 -> thread 0\n"));
  EXPECT_THAT(last.dump, HasSubstr("set 0: every frame is pinned"));
  if (testing::Test::HasFailure() || std::getenv("FOREBAY_SHOW_DUMPS") != nullptr) std::printf("%s", last.dump.c_str());
  // No thread holds anything any more.
  EXPECT_THAT(st.dump(), HasSubstr("traced threads: 0 hold or wait for something\n"));
}

}  // namespace forebay::storage_test
