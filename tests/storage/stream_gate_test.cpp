// SPDX-License-Identifier: Apache-2.0
#include "storage/stream_gate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <random>
#include <thread>
#include <vector>

namespace forebay::detail {
namespace {

/// Whether a call of `enter` on a thread of its own has returned. One that does not return soon proves nothing, so
/// tests ask this only of calls that must return, or after what makes them return.
std::future<void> enters(stream_gate& gate, std::uint64_t stream) {
  return std::async(std::launch::async, [&gate, stream] { gate.enter(stream); });
}

TEST(StreamGate, StreamsWaitForRoomAndOneThatIsInNeedsNone) {
  stream_gate gate(2);
  gate.enter(1);
  gate.enter(2);
  gate.enter(1);  // returns, or the test hangs
  std::atomic<bool> gone = false, came_late = false;
  std::thread third([&] {
    gate.enter(3);
    came_late = gone.load();
  });
  gate.leave(1);  // which is in once more
  gone = true;
  gate.leave(2);
  third.join();
  EXPECT_TRUE(came_late);
}

TEST(StreamGate, AStreamThatIsInAgainAndAgainKeepsNobodyOutForEver) {
  stream_gate gate(1);
  gate.enter(1);
  std::atomic<bool> stop = false;
  std::thread again([&] {
    while (!stop) {
      gate.enter(1);  // before it leaves, so that the stream is always in unless others have their turn
      gate.leave(1);
    }
  });
  auto other = enters(gate, 2);
  gate.leave(1);
  other.wait();
  gate.leave(2);
  stop = true;
  again.join();
}

TEST(StreamGate, NeverMoreThanMayWait) {
  constexpr std::uint32_t most = 3, streams = 8, rounds = 300;
  stream_gate gate(most);
  std::atomic<std::uint32_t> in = 0, seen = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t stream = 0; stream < streams; ++stream) {
    threads.emplace_back([&, stream] {
      std::mt19937 random(stream);
      for (std::uint32_t i = 0; i < rounds; ++i) {
        gate.enter(stream);
        std::uint32_t const now = ++in;
        for (std::uint32_t before = seen; now > before && !seen.compare_exchange_weak(before, now);) {
        }
        for (auto naps = random() % 3; naps > 0; --naps) std::this_thread::yield();
        --in;
        gate.leave(stream);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_LE(seen, most);
}

TEST(StreamGate, MostChannelsAreForOthers) {
  EXPECT_EQ(stream_gate::most_of(32), 8u);
  EXPECT_EQ(stream_gate::most_of(8), 2u);
  EXPECT_EQ(stream_gate::most_of(7), 0u);
}

}  // namespace
}  // namespace forebay::detail
