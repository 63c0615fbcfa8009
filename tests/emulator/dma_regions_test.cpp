// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/dma_regions.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "forebay/error.hpp"
#include "support/seed.hpp"

namespace forebay::emulator {
namespace {

using simt::native;

void const* at(std::uint64_t address) {
  return reinterpret_cast<void const*>(address);
}

TEST(dma_regions, nothing_is_registered_at_first) {
  dma_regions regions(memory::host(), 4);
  EXPECT_FALSE(regions.table().contains<native>(0, 1));
  EXPECT_FALSE(regions.table().contains<native>(~std::uint64_t{0}, 1));
  EXPECT_TRUE(regions.table().contains<native>(0x1000, 0));
}

TEST(dma_regions, ranges_are_whole_pages) {
  dma_regions regions(memory::host(), 4);
  regions.add(at(0x10000), 0x2000);
  EXPECT_TRUE(regions.table().contains<native>(0x10000, 0x2000));
  EXPECT_TRUE(regions.table().contains<native>(0x11fff, 1));
  EXPECT_FALSE(regions.table().contains<native>(0x10000, 0x2001));
  EXPECT_FALSE(regions.table().contains<native>(0xffff, 2));
}

TEST(dma_regions, a_range_that_wraps_is_never_contained) {
  dma_regions regions(memory::host(), 4);
  regions.add(at(0x10000), 0x1000);
  EXPECT_FALSE(regions.table().contains<native>(0x10000, ~std::uint64_t{0}));
  EXPECT_FALSE(regions.table().contains<native>(~std::uint64_t{0} - 10, 100));
}

TEST(dma_regions, overlapping_registrations_count) {
  dma_regions regions(memory::host(), 4);
  regions.add(at(0x10000), 0x4000);
  regions.add(at(0x12000), 0x4000);
  regions.remove(at(0x10000), 0x4000);
  EXPECT_FALSE(regions.table().contains<native>(0x11000, 1));
  EXPECT_TRUE(regions.table().contains<native>(0x12000, 0x4000));
  regions.remove(at(0x12000), 0x4000);
  EXPECT_FALSE(regions.table().contains<native>(0x12000, 1));
}

/// A GPU's memory, which accepts no copies once it is broken.
struct breakable_memory : memory::resource {
  bool broken = false;

  memory::kind kind() const override { return memory::kind::device; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    return memory::host().allocate(bytes, alignment_bytes);
  }
  void deallocate(void* address) noexcept override { memory::host().deallocate(address); }
  void copy_in(void* to, void const* from_host, std::size_t bytes) override {
    if (broken) throw operation_failed("the GPU takes no copies");
    memory::host().copy_in(to, from_host, bytes);
  }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override {
    memory::host().copy_out(to_host, from, bytes);
  }
};

TEST(dma_regions, are_removed_though_the_gpu_that_has_a_copy_fails) {
  breakable_memory gpu;
  dma_regions regions(gpu, 4);
  regions.add(at(0x10000), 0x4000);
  gpu.broken = true;
  EXPECT_NO_THROW(regions.remove(at(0x10000), 0x4000));
  EXPECT_FALSE(regions.host_table().contains<native>(0x10000, 1));
  EXPECT_THROW(regions.add(at(0x10000), 0x4000), operation_failed);
  EXPECT_FALSE(regions.host_table().contains<native>(0x10000, 1)) << "an attempt that failed left a part";
  EXPECT_TRUE(regions.table().contains<native>(0x10000, 1)) << "the copy was reached";
  gpu.broken = false;
  regions.add(at(0x80000000), 0x1000);
  EXPECT_FALSE(regions.table().contains<native>(0x10000, 1)) << "what the copy missed it never got";
  EXPECT_TRUE(regions.table().contains<native>(0x80000000, 0x1000));
}

TEST(dma_regions, what_another_registration_covers_stays_all_the_while) {
  dma_regions regions(memory::host(), 4);
  regions.add(at(0x12000), 0x2000);
  std::atomic<std::uint64_t> looks = 0;
  std::uint64_t missing = 0;
  std::thread unit([&] {
    for (std::uint64_t look = 0; look < 5'000'000; ++look) {
      missing += !regions.table().contains<native>(0x12000, 0x2000);
      // Relaxed: ends the loop below, no more.
      looks.store(look + 1, std::memory_order_relaxed);
    }
  });
  while (looks.load(std::memory_order_relaxed) < 5'000'000) {
    regions.add(at(0x10000), 0x8000);
    regions.remove(at(0x10000), 0x8000);
  }
  unit.join();
  EXPECT_EQ(missing, 0u);
}

TEST(dma_regions, refuses_what_makes_no_sense) {
  dma_regions regions(memory::host(), 4);
  EXPECT_THROW(regions.add(at(0x1000), 0), refused_input);
  EXPECT_THROW(regions.add(at(~std::uint64_t{0} - 4095), 8192), refused_input);
  EXPECT_THROW(regions.remove(at(0x1000), 4096), refused_input);
}

TEST(dma_regions, says_when_the_table_is_full) {
  dma_regions regions(memory::host(), 1);
  regions.add(at(0x200000), 4096);
  EXPECT_THROW(regions.add(at(0x800000), 4096), operation_failed);
  EXPECT_TRUE(regions.table().contains<native>(0x200000, 4096));
  // Nor is the part registered that would have fitted.
  EXPECT_THROW(regions.add(at(0x300000), 0x200000), operation_failed);
  EXPECT_FALSE(regions.table().contains<native>(0x300000, 4096));
  EXPECT_TRUE(regions.table().contains<native>(0x200000, 4096));
}

TEST(dma_regions, a_range_that_does_not_fit_changes_nothing) {
  dma_regions regions(memory::host(), 2);
  regions.add(at(0x200000), 4096);
  for (std::size_t const bytes : {std::size_t{3} * 0x200000, std::size_t{200} << 30, std::size_t{1} << 62}) {
    EXPECT_THROW(regions.add(at(0x600000), bytes), operation_failed) << bytes;
    EXPECT_FALSE(regions.table().contains<native>(0x600000, 1)) << bytes;
    EXPECT_FALSE(regions.table().contains<native>(0x800000, 1)) << bytes;
    EXPECT_TRUE(regions.table().contains<native>(0x200000, 4096));
  }
  regions.add(at(0x600000), 2 * 0x200000);
  EXPECT_TRUE(regions.table().contains<native>(0x600000, 2 * 0x200000)) << "all that there is room for";
}

TEST(dma_regions, what_was_given_back_is_room_for_others) {
  dma_regions regions(memory::host(), 2);
  std::uint64_t constexpr granule = 0x200000;
  for (std::uint64_t i = 1; i < 1000; ++i) {
    for (std::uint64_t j = 0; j < 3; ++j) regions.add(at((7 * i + 5 * j) * granule + 0x1000), 4096);
    for (std::uint64_t j = 0; j < 3; ++j) {
      ASSERT_TRUE(regions.table().contains<native>((7 * i + 5 * j) * granule + 0x1000, 4096)) << i;
    }
    ASSERT_FALSE(regions.table().contains<native>((7 * i + 1) * granule + 0x1000, 1)) << i;
    for (std::uint64_t j = 0; j < 3; ++j) regions.remove(at((7 * i + 5 * j) * granule + 0x1000), 4096);
  }
}

class dma_regions_random : public ::testing::TestWithParam<bool> {};

TEST_P(dma_regions_random, agrees_with_a_set_of_pages) {
  std::uint64_t const seed = testing::test_seed();
  SCOPED_TRACE(testing::replay(seed));
  std::mt19937_64 random(seed);
  // Granules that lie side by side, all of them; or many that come and go, of which the table holds a part.
  bool const apart = GetParam();
  std::uint64_t const pages = apart ? 64 * 512 : 8 * 512;
  std::uint64_t const stride = apart ? 5 : 1;
  dma_regions regions(memory::host(), apart ? 4 : 5);
  std::multiset<std::uint64_t> reference;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> added;
  for (int round = 0; round < 2000; ++round) {
    if (!added.empty() && random() % 2 == 0) {
      std::size_t const i = random() % added.size();
      auto const [first, count] = added[i];
      added.erase(added.begin() + static_cast<std::ptrdiff_t>(i));
      regions.remove(at(first * 4096), count * 4096);
      for (std::uint64_t p = first; p < first + count; ++p) reference.erase(reference.find(p));
    } else {
      std::uint64_t const first = random() % pages * stride;
      std::uint64_t const count = 1 + random() % (random() % 4 == 0 ? 1200 : 20);
      try {
        regions.add(at(first * 4096), count * 4096);
      } catch (operation_failed const&) {
        std::set<std::uint64_t> granules;
        for (std::uint64_t const p : reference) granules.insert(p / 512);
        for (std::uint64_t p = first; p < first + count; ++p) granules.insert(p / 512);
        ASSERT_GT(granules.size(), apart ? 15u : 31u) << "there was room";
        continue;
      }
      added.emplace_back(first, count);
      for (std::uint64_t p = first; p < first + count; ++p) reference.insert(p);
    }
    std::uint64_t address = random() % (pages * stride * 4096);
    if (!added.empty() && random() % 2 == 0) address = added[random() % added.size()].first * 4096;
    std::uint64_t const bytes = 1 + random() % 40000;
    bool expected = true;
    for (std::uint64_t p = address / 4096; p <= (address + bytes - 1) / 4096; ++p) expected &= reference.contains(p);
    ASSERT_EQ(regions.table().contains<native>(address, bytes), expected) << address << "+" << bytes;
  }
}
INSTANTIATE_TEST_SUITE_P(granules, dma_regions_random, ::testing::Bool(),
                         [](auto const& about) { return about.param ? "apart" : "side_by_side"; });

}  // namespace
}  // namespace forebay::emulator
