// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "forebay/memory.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace forebay::memory {
namespace {

TEST(host_memory, is_zeroed_and_aligned) {
  for (std::size_t const alignment : {std::size_t{16}, std::size_t{4096}, std::size_t{65536}, std::size_t{2} << 20}) {
    for (std::size_t const bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{5} << 20}) {
      allocation const memory(host(), bytes, alignment);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % alignment, 0u);
      auto* const begin = memory.as<unsigned char>();
      EXPECT_TRUE(std::all_of(begin, begin + bytes, [](unsigned char c) { return c == 0; }));
      std::memset(begin, 0xff, bytes);
    }
  }
  EXPECT_EQ(host().kind(), kind::host);
}

TEST(host_memory, copies) {
  allocation const memory(host(), 16, 16);
  host().copy_in(memory.data(), "forebay", 8);
  char back[8];
  host().copy_out(back, memory.data(), 8);
  EXPECT_STREQ(back, "forebay");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(host_memory, is_guarded_on_both_sides) {
  for (std::size_t const bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{5000}, std::size_t{3} << 20}) {
    allocation const memory(host(), bytes, 128);
    auto* const begin = memory.as<char>();
    EXPECT_EQ(__asan_region_is_poisoned(begin, bytes), nullptr);
    EXPECT_TRUE(__asan_address_is_poisoned(begin - 1));
    EXPECT_TRUE(__asan_address_is_poisoned(begin + bytes));
  }
}
#endif

TEST(host_memory, too_much_is_refused) {
  EXPECT_THROW(allocation(host(), ~std::size_t{0} - 5000, 16), std::bad_alloc);
}

TEST(host_memory, threads_allocate_together) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) allocation(host(), 4096, 4096).as<int>()[0] = i;
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(allocation, moves) {
  allocation a(host(), 100, 16);
  void* const address = a.data();
  allocation b(std::move(a));
  EXPECT_EQ(b.data(), address);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: what a moved-from allocation holds is promised
  a = std::move(b);
  EXPECT_EQ(a.data(), address);
  EXPECT_EQ(a.size_bytes(), 100u);
}

#ifndef FOREBAY_CUDA
TEST(gpu_memory, without_cuda_says_what_to_do) {
  EXPECT_EQ(device_count(), 0);
  for (auto const ask : {+[] { pinned(); }, +[] { device(0); }}) {
    try {
      ask();
      FAIL();
    } catch (std::runtime_error const& error) {
      EXPECT_NE(std::string(error.what()).find("FOREBAY_CUDA=ON"), std::string::npos);
    }
  }
}
#endif

}  // namespace
}  // namespace forebay::memory
