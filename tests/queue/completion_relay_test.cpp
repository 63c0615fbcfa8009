// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/queue/completion_relay.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace forebay {
namespace {

/// A completion ring that a controller fills.
class filled_ring {
 public:
  explicit filled_ring(std::uint32_t entries) : entries_(entries) {}
  queue_pair_rings rings() {
    queue_pair_rings r;
    r.cq = entries_.data();
    r.cq_entries = static_cast<std::uint32_t>(entries_.size());
    return r;
  }
  /// The `count`-th completion ever, counted from 0.
  static nvme::completion_entry entry(std::uint32_t count, std::uint32_t entries) {
    std::uint32_t const phase = (count / entries & 1) ^ 1;
    return {.dw0 = 1000 + count, .dw1 = 2000 + count, .dw2 = 3000 + count, .dw3 = (count & 0xffff) | phase << 16};
  }
  void post() {
    auto const n = static_cast<std::uint32_t>(entries_.size());
    nvme::completion_entry const wanted = entry(posted_, n);
    nvme::completion_entry& slot = entries_[posted_ % n];
    slot.dw0 = wanted.dw0;
    slot.dw1 = wanted.dw1;
    slot.dw2 = wanted.dw2;
    // Release pairs with the acquire in `completion_relay::step`.
    simt::atomic<simt::native, simt::scope::system>(slot.dw3).store(wanted.dw3, simt::order::release);
    ++posted_;
  }

 private:
  std::vector<nvme::completion_entry> entries_;
  std::uint32_t posted_ = 0;
};

void expect_entry(nvme::completion_entry const& got, std::uint32_t count, std::uint32_t entries) {
  nvme::completion_entry const wanted = filled_ring::entry(count, entries);
  EXPECT_EQ(got.dw0, wanted.dw0);
  EXPECT_EQ(got.dw1, wanted.dw1);
  EXPECT_EQ(got.dw2, wanted.dw2);
  EXPECT_EQ(got.dw3, wanted.dw3);
}

TEST(CompletionRelay, CopiesEachCompletionAfterAFlushAtEveryDepthAndLap) {
  for (std::uint32_t const entries : {2u, 3u, 4u, 33u}) {
    SCOPED_TRACE(std::to_string(entries) + " entries");
    filled_ring ring(entries);
    nvme::completion_entry const* copies = nullptr;
    std::uint32_t flushes = 0, seen_by_flush = 0;
    completion_relay relay(memory::host(), [&] {
      ++flushes;
      // What this flush is for is not there yet.
      seen_by_flush += copies[seen_by_flush % entries].dw0 == 1000 + seen_by_flush ? 1000 : 0;
    });
    copies = relay.add(ring.rings()).cq;
    EXPECT_NE(copies, ring.rings().cq);
    EXPECT_FALSE(relay.has_news());
    EXPECT_FALSE(relay.step());
    EXPECT_EQ(flushes, 0u);
    std::uint32_t count = 0;
    for (std::uint32_t batch = 1; count < 5 * entries; batch = batch % entries + 1) {
      for (std::uint32_t i = 0; i < batch; ++i) ring.post();
      EXPECT_TRUE(relay.has_news());
      seen_by_flush = count;
      EXPECT_TRUE(relay.step());
      EXPECT_EQ(seen_by_flush, count);
      for (std::uint32_t i = 0; i < batch; ++i, ++count) expect_entry(copies[count % entries], count, entries);
      EXPECT_FALSE(relay.step());
    }
  }
}

TEST(CompletionRelay, FlushesOnceForAllPairs) {
  filled_ring first(4), second(8);
  std::uint32_t flushes = 0;
  completion_relay relay(memory::host(), [&] { ++flushes; });
  auto const* const of_first = relay.add(first.rings()).cq;
  auto const* const of_second = relay.add(second.rings()).cq;
  first.post();
  second.post();
  second.post();
  EXPECT_TRUE(relay.step());
  EXPECT_EQ(flushes, 1u);
  expect_entry(of_first[0], 0, 4);
  expect_entry(of_second[1], 1, 8);
}

TEST(CompletionRelay, CopiesNothingIfTheFlushFails) {
  filled_ring ring(4);
  bool fails = true;
  completion_relay relay(memory::host(), [&] {
    if (fails) throw std::runtime_error("no flush");
  });
  auto const* const copies = relay.add(ring.rings()).cq;
  ring.post();
  EXPECT_THROW(relay.step(), std::runtime_error);
  EXPECT_EQ(copies[0].dw3, 0u);
  fails = false;
  EXPECT_TRUE(relay.step());
  expect_entry(copies[0], 0, 4);
}

TEST(CompletionRelay, DoesNotLookAtAPairThatWasRemoved) {
  completion_relay relay(memory::host(), [] {});
  filled_ring kept(4);
  auto const* const copies = relay.add(kept.rings()).cq;
  {
    filled_ring gone(4);
    auto const rings = relay.add(gone.rings());
    gone.post();
    relay.remove(rings.cq);
    relay.remove(rings.cq);
  }
  EXPECT_FALSE(relay.has_news());
  kept.post();
  EXPECT_TRUE(relay.step());
  expect_entry(copies[0], 0, 4);
}

TEST(CompletionRelay, CatchUpFlushesAlsoWhereNothingWasPosted) {
  filled_ring ring(4);
  std::atomic<std::uint32_t> flushes = 0;
  completion_relay relay(memory::host(), [&] { ++flushes; });
  auto const rings = relay.add(ring.rings());
  std::jthread const steps([&](std::stop_token const& stop) {
    while (!stop.stop_requested()) relay.step();
  });
  EXPECT_TRUE(relay.catch_up(simt::native::clock_ns() + 60'000'000'000));
  EXPECT_GE(flushes, 1u);
  EXPECT_EQ(rings.cq[0].dw3, 0u);
}

TEST(CompletionRelay, CatchUpDoesNotWaitOnceStepsHaveEnded) {
  filled_ring ring(4);
  completion_relay relay(memory::host(), [] {});
  auto const rings = relay.add(ring.rings());
  ring.post();
  relay.end();
  EXPECT_FALSE(relay.has_news());
  EXPECT_FALSE(relay.catch_up(simt::no_deadline));
  EXPECT_EQ(rings.cq[0].dw3, 0u);
}

/// Memory that is not there.
class no_memory final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::kind::host; }
  void* allocate(std::size_t, std::size_t) override { throw std::bad_alloc(); }
  void deallocate(void*) noexcept override {}
  void copy_in(void*, void const*, std::size_t) override {}
  void copy_out(void*, void const*, std::size_t) override {}
};

TEST(CompletionRelay, APairThatCouldNotBeAddedIsNotLookedAt) {
  no_memory none;
  filled_ring ring(4);
  completion_relay relay(none, [] {});
  EXPECT_THROW(relay.add(ring.rings()), std::bad_alloc);
  ring.post();
  EXPECT_FALSE(relay.has_news());
}

TEST(CompletionRelay, APairIsRemovedWhenItsOwnerGoes) {
  completion_relay relay(memory::host(), [] {});
  filled_ring ring(4);
  {
    std::vector<relayed_pair> pairs;
    pairs.emplace_back(&relay, ring.rings());
    pairs.emplace_back(nullptr, ring.rings());
    EXPECT_NE(pairs[0].rings().cq, ring.rings().cq);
    EXPECT_EQ(pairs[1].rings().cq, ring.rings().cq);
    ring.post();
    EXPECT_TRUE(relay.has_news());
  }
  EXPECT_FALSE(relay.has_news());
}

TEST(CompletionRelay, CatchUpComesBackAfterWhatWasPostedBefore) {
  filled_ring ring(4);
  completion_relay relay(memory::host(), [] {});
  auto const* const copies = relay.add(ring.rings()).cq;
  EXPECT_FALSE(relay.catch_up(1)) << "nobody steps";
  std::jthread const steps([&](std::stop_token const& stop) {
    while (!stop.stop_requested()) relay.step();
  });
  for (std::uint32_t count = 0; count < 100; ++count) {
    ring.post();
    ASSERT_TRUE(relay.catch_up(simt::native::clock_ns() + 60'000'000'000));
    expect_entry(copies[count % 4], count, 4);
  }
}

}  // namespace
}  // namespace forebay
