// SPDX-License-Identifier: Apache-2.0
#include "storage/stream_gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

namespace forebay::detail {
namespace {

bool never() {
  return false;
}

/// Calls `enter` on a thread of its own.
class entering {
 public:
  entering(stream_gate& gate, std::uint64_t stream)
      : thread_([this, &gate, stream] {
          gate.enter(stream, [this] {
            ++asked_;
            return false;
          });
          in_ = true;
        }) {}
  ~entering() { thread_.join(); }
  entering(entering const&) = delete;
  entering& operator=(entering const&) = delete;

  /// Waits until the gate has asked the caller once more whether it gives up: so it was still outside.
  void stays_out() const {
    std::uint32_t const before = asked_;
    while (asked_ == before && !in_) std::this_thread::yield();
    EXPECT_FALSE(in_);
  }
  void comes_in() const {
    while (!in_) std::this_thread::yield();
  }

 private:
  std::atomic<std::uint32_t> asked_ = 0;
  std::atomic<bool> in_ = false;
  std::thread thread_;
};

TEST(StreamGate, StreamsWaitForRoomAndOneThatIsInNeedsNone) {
  stream_gate gate(2);
  ASSERT_TRUE(gate.enter(1, never));
  ASSERT_TRUE(gate.enter(2, never));
  ASSERT_TRUE(gate.enter(1, never));  // returns, or the test hangs
  entering third(gate, 3);
  third.stays_out();
  gate.leave(1);  // which is in once more
  third.stays_out();
  gate.leave(2);
}

TEST(StreamGate, AStreamThatIsInHasItsTurnAfterThoseThatCameBefore) {
  stream_gate gate(1);
  ASSERT_TRUE(gate.enter(1, never));
  entering other(gate, 2);
  other.stays_out();
  entering again(gate, 1);
  again.stays_out();
  gate.leave(1);
  other.comes_in();
  again.stays_out();
  gate.leave(2);
}

TEST(StreamGate, ACallerThatGivesUpIsNotCountedAndKeepsNobodyWaiting) {
  stream_gate gate(1);
  ASSERT_TRUE(gate.enter(1, never));
  entering before(gate, 2);
  before.stays_out();
  EXPECT_FALSE(gate.enter(3, [] { return true; }));
  EXPECT_THROW(gate.enter(3, []() -> bool { throw std::runtime_error("interrupted"); }), std::runtime_error);
  entering after(gate, 4);
  after.stays_out();
  gate.leave(1);
  before.comes_in();
  after.stays_out();
  gate.leave(2);
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
        gate.enter(stream, never);
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
