// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/driver/doorbell_relay.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <latch>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::driver {
namespace {

using simt::native;
namespace reg = nvme::registers;

constexpr std::uint64_t patience_ns = 20'000'000'000;
using access = std::pair<std::uint32_t, std::uint32_t>;

std::uint32_t register_of(std::uint32_t index) {
  return reg::doorbell_base + 4 * index;
}

/// Registers that remember what was stored to them.
class written_registers {
 public:
  doorbell_relay::forward_function forward() {
    return [this](std::uint32_t offset_bytes, std::uint32_t value) {
      std::lock_guard const lock(mutex_);
      written_.emplace_back(offset_bytes, value);
    };
  }
  std::vector<access> all() const {
    std::lock_guard const lock(mutex_);
    return written_;
  }
  std::vector<std::uint32_t> values_at(std::uint32_t offset_bytes) const {
    std::vector<std::uint32_t> values;
    for (auto const& [offset, value] : all()) {
      if (offset == offset_bytes) values.push_back(value);
    }
    return values;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<access> written_;
};

bool forwards(doorbell_relay const& relay, std::uint64_t values) {
  return native::wait_until([&] { return relay.forwarded() >= values; }, native::clock_ns() + patience_ns);
}

TEST(doorbell_relay, forwards_what_is_stored_to_a_word_to_its_register) {
  written_registers registers;
  doorbell_relay relay(memory::host(), 6, registers.forward());
  native::st_mmio(relay.word(reg::cq_head_doorbell(2, 0)), 17);
  ASSERT_TRUE(forwards(relay, 1));
  native::st_mmio(relay.word(reg::sq_tail_doorbell(0, 0)), 0);
  ASSERT_TRUE(forwards(relay, 2));
  EXPECT_EQ(registers.all(), (std::vector<access>{{reg::cq_head_doorbell(2, 0), 17}, {reg::doorbell_base, 0}}));
}

TEST(doorbell_relay, forwards_a_value_that_repeats) {
  written_registers registers;
  doorbell_relay relay(memory::host(), 1, registers.forward());
  for (std::uint64_t round = 1; round <= 50; ++round) {
    native::st_mmio(relay.word(register_of(0)), 3);
    ASSERT_TRUE(forwards(relay, round));
  }
  EXPECT_EQ(registers.values_at(register_of(0)), std::vector<std::uint32_t>(50, 3));
}

TEST(doorbell_relay, its_end_forwards_all_that_was_stored) {
  constexpr std::uint32_t words = 64;
  for (std::uint32_t round = 0; round < 50; ++round) {
    written_registers registers;
    {
      doorbell_relay relay(memory::host(), words, registers.forward());
      for (std::uint32_t i = 0; i < words; ++i) native::st_mmio(relay.word(register_of(i)), round + i);
    }
    for (std::uint32_t i = 0; i < words; ++i) {
      ASSERT_EQ(registers.values_at(register_of(i)), std::vector<std::uint32_t>{round + i});
    }
  }
}

TEST(doorbell_relay, what_was_stored_before_is_forwarded_when_forward_stored_returns) {
  written_registers registers;
  doorbell_relay relay(memory::host(), 4, registers.forward());
  for (std::uint32_t i = 0; i < 1000; ++i) {
    native::st_mmio(relay.word(register_of(i % 4)), i);
    relay.forward_stored();
    ASSERT_EQ(registers.all().size(), i + 1);
    ASSERT_EQ(registers.all().back(), access(register_of(i % 4), i));
  }
  EXPECT_EQ(relay.forwarded(), 1000u);
}

TEST(doorbell_relay, forward_stored_waits_for_a_value_that_is_on_its_way) {
  std::latch taken(1), may_arrive(1);
  std::atomic<bool> arrived{false};
  doorbell_relay relay(memory::host(), 1, [&](std::uint32_t, std::uint32_t) {
    taken.count_down();
    may_arrive.wait();
    arrived = true;
  });
  native::st_mmio(relay.word(register_of(0)), 1);
  taken.wait();
  std::latch called(1);
  bool arrived_before = false;
  std::thread caller([&] {
    called.count_down();
    relay.forward_stored();
    arrived_before = arrived;
  });
  called.wait();
  may_arrive.count_down();
  caller.join();
  EXPECT_TRUE(arrived_before);
}

TEST(doorbell_relay, threads_that_ring_at_once_lose_no_last_value_and_nothing_moves_backwards) {
  constexpr std::uint32_t ringing_threads = 4, rings = 5'000;
  written_registers registers;
  std::uint64_t forwarded = 0;
  {
    doorbell_relay relay(memory::host(), ringing_threads, registers.forward());
    std::vector<std::thread> ringing;
    for (std::uint32_t t = 0; t < ringing_threads; ++t) {
      ringing.emplace_back([&, t] {
        for (std::uint32_t value = 1; value <= rings; ++value) native::st_mmio(relay.word(register_of(t)), value);
      });
    }
    // Two threads forward now.
    for (int i = 0; i < 100; ++i) relay.forward_stored();
    for (std::thread& thread : ringing) thread.join();
    relay.forward_stored();
    forwarded = relay.forwarded();
  }
  EXPECT_EQ(forwarded, registers.all().size());
  for (std::uint32_t t = 0; t < ringing_threads; ++t) {
    std::vector<std::uint32_t> const values = registers.values_at(register_of(t));
    ASSERT_FALSE(values.empty());
    EXPECT_EQ(values.back(), rings);
    for (std::size_t i = 1; i < values.size(); ++i) ASSERT_LT(values[i - 1], values[i]);
  }
}

TEST(doorbell_relay, the_controller_finds_the_entries_of_a_doorbell_that_it_hears) {
  std::uint32_t entry = 0;  // plain memory: ThreadSanitizer looks at it
  std::atomic<std::uint32_t> wrong{0};
  doorbell_relay relay(memory::host(), 1, [&](std::uint32_t, std::uint32_t value) {
    if (entry != value) ++wrong;
  });
  for (std::uint32_t value = 1; value <= 200; ++value) {
    entry = value;
    native::fence(simt::scope::system, simt::order::release);  // pairs with the relay's exchange of the doorbell word
    native::st_mmio(relay.word(register_of(0)), value);
    relay.forward_stored();
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(doorbell_relay, looks_at_a_word_that_is_asked_for_later) {
  written_registers registers;
  doorbell_relay relay(memory::host(), 64, registers.forward());
  std::uint32_t* const first = relay.word(register_of(1));
  native::st_mmio(first, 5);
  ASSERT_TRUE(forwards(relay, 1));
  native::st_mmio(relay.word(register_of(63)), 6);
  ASSERT_TRUE(forwards(relay, 2));
  EXPECT_EQ(relay.word(register_of(1)), first);
  native::st_mmio(relay.word(register_of(63)), 7);
  native::st_mmio(relay.word(register_of(40)), 8);
  relay.forward_stored();
  EXPECT_EQ(registers.values_at(register_of(63)), (std::vector<std::uint32_t>{6, 7}));
  EXPECT_EQ(registers.values_at(register_of(40)), std::vector<std::uint32_t>{8});
}

TEST(doorbell_relay, has_a_word_for_each_register_and_no_other) {
  doorbell_relay relay(memory::host(), 4, [](std::uint32_t, std::uint32_t) {});
  EXPECT_EQ(relay.word(register_of(3)), relay.word(register_of(0)) + 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(relay.word(register_of(0))) % 4096, 0u);
  for (std::uint32_t const none : {register_of(4), register_of(0) - 4, register_of(0) + 2, 0u}) {
    EXPECT_THROW(relay.word(none), std::out_of_range) << none;
  }
}

/// Says that it is memory of a GPU.
class gpu_memory final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::kind::device; }
  void* allocate(std::size_t, std::size_t) override { throw std::bad_alloc(); }
  void deallocate(void*) noexcept override {}
  void copy_in(void*, void const*, std::size_t) override {}
  void copy_out(void*, void const*, std::size_t) override {}
};

TEST(doorbell_relay, refuses_memory_that_its_thread_does_not_reach_and_no_words) {
  auto const refusal = [](memory::resource& from, std::uint32_t words) -> std::string {
    try {
      doorbell_relay(from, words, [](std::uint32_t, std::uint32_t) {});
    } catch (refused_input const& refused) {
      return refused.what();
    }
    return "accepted";
  };
  gpu_memory gpu;
  EXPECT_EQ(refusal(gpu, 4), "memory: 'device': give host or pinned memory, because a host thread reads the doorbells");
  EXPECT_EQ(refusal(memory::host(), 0), "words: '0': give one word or more");
}

}  // namespace
}  // namespace forebay::driver
