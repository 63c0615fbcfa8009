// SPDX-License-Identifier: Apache-2.0
//! \file
//! Registers that are mapped, here from ordinary memory, and which way their doorbells are rung. No GPU reaches a
//! register here: functions of the tests stand for what the driver of one does.
#include "drive/pci/registers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::pci {
namespace {

using simt::native;
namespace reg = nvme::registers;

constexpr std::uint64_t patience_ns = 20'000'000'000;
constexpr std::uint32_t window_bytes = 16384;

/// What a controller with doorbells at a stride shows.
class window {
 public:
  explicit window(std::uint32_t dstrd = 0) { word(reg::cap + 4) = dstrd; }

  std::byte volatile* first() { return reinterpret_cast<std::byte volatile*>(words_.data()); }
  std::uint32_t& word(std::uint32_t offset_bytes) { return words_[offset_bytes / 4]; }
  std::uint32_t* address(std::uint32_t offset_bytes) { return &word(offset_bytes); }
  bool holds(std::uint32_t offset_bytes, std::uint32_t value) {
    std::uint32_t volatile& there = word(offset_bytes);
    return native::wait_until([&] { return there == value; }, native::clock_ns() + patience_ns);
  }

 private:
  std::vector<std::uint32_t> words_ = std::vector<std::uint32_t>(window_bytes / 4);
};

/// A GPU that reaches registers at another address, or a driver that refuses it.
struct gpu {
  explicit gpu(bool driver_refuses) : refuses(driver_refuses) {}
  doorbell_options with(doorbell_options of) {
    of.gpu = 3;
    of.lock_registers = [this](int ordinal, void* address, std::size_t bytes) {
      if (refuses) throw operation_failed("cudaErrorNotPermitted");
      EXPECT_EQ(ordinal, 3);
      locked.push_back(address);
      EXPECT_EQ(bytes, window_bytes);
      return reinterpret_cast<std::byte*>(seen.data());
    };
    of.unlock_registers = [this](void* address) { unlocked.push_back(address); };
    return of;
  }
  bool const refuses;
  std::vector<std::uint32_t> seen = std::vector<std::uint32_t>(window_bytes / 4);
  std::vector<void*> locked, unlocked;
};

TEST(doorbell_way, is_read_from_a_uri) {
  EXPECT_EQ(doorbell_way_of({}), doorbell_way::any);
  EXPECT_EQ(doorbell_way_of("auto"), doorbell_way::any);
  EXPECT_EQ(doorbell_way_of("direct"), doorbell_way::direct);
  EXPECT_EQ(doorbell_way_of("relay"), doorbell_way::relay);
  try {
    doorbell_way_of("fast");
    ADD_FAILURE() << "not refused";
  } catch (refused_input const& refused) {
    EXPECT_STREQ(refused.what(), "doorbells: 'fast': give auto, direct or relay");
  }
}

TEST(mapped_registers, threads_of_the_host_ring_directly) {
  for (doorbell_way const how : {doorbell_way::any, doorbell_way::direct}) {
    window bar(2);
    mapped_registers registers(bar.first(), window_bytes, {.how = how});
    EXPECT_FALSE(registers.relays());
    std::uint32_t const tail = reg::sq_tail_doorbell(3, 2);
    EXPECT_EQ(registers.doorbell(tail), bar.address(tail));
    EXPECT_EQ(registers.doorbell_for_gpu(tail), bar.address(tail));
    registers.write32(reg::cc, 5);
    EXPECT_EQ(bar.word(reg::cc), 5u);
    EXPECT_EQ(registers.read32(reg::cap + 4), 2u);
  }
}

TEST(mapped_registers, a_relay_rings_for_threads_of_the_host_if_that_is_asked_for) {
  for (std::uint32_t const dstrd : {0u, 1u, 4u}) {
    window bar(dstrd);
    mapped_registers registers(bar.first(), window_bytes, {.how = doorbell_way::relay, .queues = 20});
    EXPECT_TRUE(registers.relays());
    std::uint32_t const tail = reg::sq_tail_doorbell(20, dstrd), head = reg::cq_head_doorbell(1, dstrd);
    ASSERT_NE(registers.doorbell(tail), bar.address(tail));
    EXPECT_EQ(registers.doorbell(tail), registers.doorbell_for_gpu(tail));
    native::st_mmio(registers.doorbell(tail), 7);
    EXPECT_TRUE(bar.holds(tail, 7));
    native::st_mmio(registers.doorbell_for_gpu(head), 9);
    EXPECT_TRUE(bar.holds(head, 9));
  }
}

TEST(mapped_registers, a_write_does_not_overtake_a_relayed_doorbell) {
  window bar;
  mapped_registers registers(bar.first(), window_bytes, {.how = doorbell_way::relay});
  std::uint32_t const tail = reg::sq_tail_doorbell(2, 0);
  std::uint32_t* const word = registers.doorbell(tail);
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    native::st_mmio(word, i);
    registers.write32(reg::sq_tail_doorbell(0, 0), i);
    ASSERT_EQ(static_cast<std::uint32_t volatile&>(bar.word(tail)), i);
  }
}

TEST(mapped_registers, has_no_doorbell_outside_of_its_window_or_of_other_queues) {
  for (doorbell_way const how : {doorbell_way::direct, doorbell_way::relay}) {
    window bar(1);
    mapped_registers registers(bar.first(), window_bytes, {.how = how, .queues = 4});
    EXPECT_THROW(registers.doorbell(window_bytes), operation_failed);
    EXPECT_THROW(registers.doorbell(reg::doorbell_base + 2), operation_failed);
    EXPECT_THROW(registers.read32(window_bytes), operation_failed);
    if (how == doorbell_way::direct) continue;
    EXPECT_NO_THROW(registers.doorbell(reg::cq_head_doorbell(4, 1)));
    EXPECT_THROW(registers.doorbell(reg::sq_tail_doorbell(5, 1)), operation_failed);
    EXPECT_THROW(registers.doorbell(reg::doorbell_base + 4), operation_failed);  // between two
    EXPECT_THROW(registers.doorbell(reg::cc), operation_failed);
  }
}

TEST(mapped_registers, a_window_without_doorbells_has_none) {
  window bar;
  mapped_registers registers(bar.first(), reg::doorbell_base, {.how = doorbell_way::relay});
  EXPECT_THROW(registers.doorbell(reg::sq_tail_doorbell(1, 0)), operation_failed);
}

TEST(mapped_registers, a_gpu_that_reaches_them_rings_directly_until_they_end) {
  for (doorbell_way const how : {doorbell_way::any, doorbell_way::direct}) {
    window bar;
    gpu client(false);
    std::uint32_t const tail = reg::sq_tail_doorbell(1, 0);
    {
      mapped_registers registers(bar.first(), window_bytes, client.with({.how = how}));
      EXPECT_FALSE(registers.relays());
      EXPECT_EQ(registers.doorbell(tail), bar.address(tail));
      EXPECT_EQ(registers.doorbell_for_gpu(tail), client.seen.data() + tail / 4);
      EXPECT_TRUE(client.unlocked.empty());
      EXPECT_THROW(registers.doorbell_for_gpu(window_bytes), operation_failed);
    }
    EXPECT_EQ(client.locked, std::vector<void*>{bar.address(0)});
    EXPECT_EQ(client.unlocked, client.locked);
  }
}

TEST(mapped_registers, a_relay_rings_for_a_gpu_that_does_not_reach_them) {
  window bar;
  gpu client(true);
  {
    mapped_registers registers(bar.first(), window_bytes, client.with({}));
    EXPECT_TRUE(registers.relays());
    std::uint32_t const tail = reg::sq_tail_doorbell(1, 0);
    EXPECT_EQ(registers.doorbell(tail), bar.address(tail)) << "threads of the host reach the register";
    native::st_mmio(registers.doorbell_for_gpu(tail), 11);
    EXPECT_TRUE(bar.holds(tail, 11));
  }
  EXPECT_TRUE(client.unlocked.empty());
}

TEST(mapped_registers, a_gpu_may_be_asked_not_to_reach_them) {
  window bar;
  gpu client(false);
  mapped_registers const registers(bar.first(), window_bytes, client.with({.how = doorbell_way::relay}));
  EXPECT_TRUE(registers.relays());
  EXPECT_TRUE(client.locked.empty());
}

TEST(mapped_registers, a_gpu_that_must_reach_them_and_cannot_is_refused) {
  window bar;
  gpu client(true);
  try {
    mapped_registers const registers(bar.first(), window_bytes, client.with({.how = doorbell_way::direct}));
    ADD_FAILURE() << "not refused";
  } catch (refused_input const& refused) {
    EXPECT_EQ(refused.field(), "doorbells");
    EXPECT_EQ(refused.value(), "direct");
    EXPECT_EQ(
        refused.remedy(),
        "NVIDIA's driver refuses to let GPU 3 write to the drive's registers (cudaErrorNotPermitted); use auto or "
        "relay");
  }
  EXPECT_TRUE(client.unlocked.empty());
}

}  // namespace
}  // namespace forebay::drive::pci
