// SPDX-License-Identifier: Apache-2.0
// What every view promises, over each of them, on the CPU executor.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/common/direct_view.hpp"
#include "apps/common/executor.hpp"
#include "apps/common/external_view.hpp"
#include "apps/common/io_buffer.hpp"
#include "apps/common/memory_view.hpp"
#include "apps/common/view.hpp"
#include "forebay/storage.hpp"
#include "support/memory_storage.hpp"

namespace forebay::apps {
namespace {

using M = simt::fiber;
constexpr std::uint32_t page_elements = 128, page_bytes = page_elements * 4;
constexpr std::uint32_t threads = 96;
using numbers = std::vector<std::uint32_t>;

// Each model calls `use(view)` with a view of `values`.

struct in_memory {
  template <class Use>
  static void with(numbers const& values, Use&& use) {
    use(memory_view<std::uint32_t>(values.data(), values.size()));
  }
};

/// In external memory in requests of up to 64 bytes, one device or several.
template <std::uint32_t Devices>
struct external {
  template <class Use>
  static void with(numbers const& values, Use&& use) {
    memory::external_memory_options options;
    options.latency_us = 2;
    options.alignment_bytes = 32;
    options.request_max_bytes = 64;
    options.devices = Devices;
    options.iops = Devices == 1 ? 0 : 1e6;
    memory::external_memory memory(options, memory::host());
    use(external_view<std::uint32_t const, memory::external_memory_ref<M>>(
        values.data(), values.size(), memory.ref<M>(), 0, memory.options().requests_of_page(page_bytes)));
  }
};

storage open_with(numbers const& values, std::uint32_t drives, std::uint64_t cache_bytes = 0) {
  storage_options o;
  for (std::uint32_t d = 0; d < drives; ++d) o.drives.push_back("emulated:size=1M,threads=1,seed=" + std::to_string(d));
  o.device = "cpu";
  o.cache.page_bytes = page_bytes;
  o.cache.size_bytes = cache_bytes;
  storage opened(o);
  opened.pwrite(values.data(), values.size() * 4, 0);
  return opened;
}

struct through_the_cache {
  template <class Use>
  static void with(numbers const& values, Use&& use) {
    storage drives = open_with(values, 1, 128 * page_bytes);
    use(drives.ref<M, cached>().array<std::uint32_t const>(0, values.size()));
  }
};

template <std::uint32_t Drives>
struct past_the_cache {
  template <class Use>
  static void with(numbers const& values, Use&& use) {
    storage drives = open_with(values, Drives);
    io_buffer const buffer(drives, std::size_t{threads} * page_bytes);
    auto const ref = drives.ref<M>();
    use(direct_view<std::uint32_t, std::remove_const_t<decltype(ref)>, buffer_ref>(ref, buffer.ref(), values.size(),
                                                                                   512, page_bytes, 10'000'000'000));
  }
};

template <class Model>
class views : public ::testing::Test {};
struct names {
  template <class Model>
  static std::string GetName(int) {
    if (std::is_same_v<Model, in_memory>) return "memory";
    if (std::is_same_v<Model, external<1>>) return "external";
    if (std::is_same_v<Model, external<3>>) return "external_devices";
    if (std::is_same_v<Model, through_the_cache>) return "storage";
    return std::is_same_v<Model, past_the_cache<1>> ? "storage_direct" : "storage_direct_striped";
  }
};
using models =
    ::testing::Types<in_memory, external<1>, external<3>, through_the_cache, past_the_cache<1>, past_the_cache<2>>;
TYPED_TEST_SUITE(views, models, names);

numbers some(std::size_t count) {
  std::mt19937 random(static_cast<std::uint32_t>(count));
  numbers values(count);
  for (auto& v : values) v = static_cast<std::uint32_t>(random());
  return values;
}

template <class Kernel>
void launch(Kernel const& kernel) {
  simt::launch<M>({.blocks = 1, .threads_per_block = threads}, kernel, {.os_threads = 2});
}

/// The end of the page of element `i`, or of all elements.
std::uint64_t page_end(std::uint64_t i, std::uint64_t size) {
  std::uint64_t const end = (i / page_elements + 1) * page_elements;
  return end < size ? end : size;
}

TYPED_TEST(views, a_thread_has_what_it_asks_for_of_a_page) {
  // The last page is short, and full; and there is one element.
  for (std::size_t const count : {5000u, 4096u, 1u}) {
    numbers const values = some(count);
    TypeParam::with(values, [&](auto const& view) {
      using view_type = std::remove_cvref_t<decltype(view)>;
      static_assert(apps::view<view_type>);
      EXPECT_EQ(view.size(), count);
      launch([&] {
        std::mt19937 random(M::thread_rank());
        for (int round = 0; round < 6; ++round) {
          auto cursor = view.thread_page();
          for (int again = 0; again < 3; ++again) {
            std::uint64_t const i = random() % count, end = page_end(i, count);
            std::uint64_t const stop = i + 1 + random() % (end - i);
            bool const is_there = again != 0 && cursor.first() <= i && i < cursor.end();
            std::uint64_t const had = cursor.end();
            M::check(cursor.seek(i, stop).ok(), "seek");
            M::check(cursor.first() <= i && i < cursor.end(), "the element is within reach");
            M::check(is_there ? cursor.end() == had : cursor.end() >= stop, "so is all that was asked for");
            auto const* const from = &cursor[i];
            for (std::uint64_t k = i; k < stop && k < cursor.end(); ++k) {
              M::check(cursor[k] == values[k] && from[k - i] == values[k], "one after the other");
            }
          }
        }
      });
    });
  }
}

TYPED_TEST(views, a_warp_goes_through_a_range_of_any_length) {
  numbers const values = some(5000);
  TypeParam::with(values, [&](auto const& view) {
    launch([&] {
      std::mt19937 random(M::thread_rank() / 32 + 7);
      std::uint32_t const lane = M::this_warp().thread_rank();
      for (std::uint32_t const pages : {1u, 3u, 32u}) {
        std::uint64_t const first = random() % values.size();
        std::uint64_t const stop = first + 1 + random() % (values.size() - first);
        auto cursor = view.warp_pages(pages);
        for (std::uint64_t at = first; at < stop; at = cursor.end()) {
          M::check(cursor.seek(at, stop).ok() && cursor.first() <= at && cursor.end() > at, "seek");
          for (std::uint64_t k = at + lane; k < stop && k < cursor.end(); k += 32) {
            M::check(cursor[k] == values[k], "the element");
          }
        }
        M::check(cursor.seek(first, stop).ok() && cursor[first] == values[first], "back to the beginning");
      }
      auto cursor = view.warp_page();
      M::check(cursor.seek(4999, 5000).ok() && cursor[4999] == values[4999], "a page of the warp");
    });
  });
}

TYPED_TEST(views, there_is_nothing_behind_the_end) {
  numbers const values = some(300);
  TypeParam::with(values, [&](auto const& view) {
    launch([&] {
      {
        auto cursor = view.thread_page();
        M::check(cursor.seek(300, 301) == status(fault::out_of_range), "behind the last");
        M::check(cursor.seek(~std::uint64_t{0}, ~std::uint64_t{0}) == status(fault::out_of_range), "far behind");
        M::check(cursor.seek(299, 1000).ok() && cursor.end() == 300 && cursor[299] == values[299], "up to the last");
      }
      auto cursor = view.warp_pages(4);
      M::check(cursor.seek(300, 400) == status(fault::out_of_range), "behind the last, of a warp");
      M::check(cursor.seek(256, 1000).ok() && cursor.end() == 300, "up to the last, of a warp");
      (void)view.prefetch(300);
      (void)view.prefetch(0);
    });
  });
}

// Views of drives.

TEST(direct_view, reads_no_block_that_was_not_asked_for_and_counts_what_it_reads) {
  numbers const values = some(5000);
  storage drives = open_with(values, 1);
  constexpr std::uint32_t longer = 4 * page_bytes;
  io_buffer const buffer(drives, std::size_t{threads} * longer);
  auto const ref = drives.ref<M>();
  std::vector<direct_reads> reads(threads);
  std::vector<std::uint64_t> bins(latency_bins::count);
  direct_view<std::uint32_t, std::remove_const_t<decltype(ref)>, buffer_ref, true> const view(
      ref, buffer.ref(), values.size(), 512, longer, 10'000'000'000, reads.data(), bins.data());
  launch([&] {
    if (M::thread_rank() != 5) return;
    auto cursor = view.thread_page();
    M::check(cursor.seek(130, 140).ok() && cursor.first() == 128 && cursor.end() == 256, "one block");
    M::check(cursor.seek(255, 260).ok() && cursor.end() == 256, "it is there");
    M::check(cursor.seek(127, 129).ok() && cursor.first() == 0 && cursor.end() == 256, "two blocks");
    M::check(cursor.seek(256, 5000).ok() && cursor.end() == 768, "a page");
  });
  EXPECT_EQ(reads[5].latency.count, 3u);
  EXPECT_EQ(reads[5].bytes, 7u * 512);
  EXPECT_EQ(reads[4].bytes, 0u);
  std::uint64_t binned = 0;
  for (std::uint64_t const n : bins) binned += n;
  EXPECT_EQ(binned, 3u);
}

TEST(direct_view, a_read_that_fails_fails_the_seek_of_all_lanes) {
  numbers const values = some(5000);
  storage_options o;
  o.drives = {"emulated:size=4M,threads=1"};
  o.device = "cpu";
  storage drives(o);
  io_buffer const buffer(drives, std::size_t{threads} * page_bytes);
  // The view is longer than the window that it reads.
  auto const ref = drives.ref<M>(drives.create_extent("window", 4096));
  direct_view<std::uint32_t, std::remove_const_t<decltype(ref)>, buffer_ref> const view(
      ref, buffer.ref(), values.size(), 512, page_bytes, 10'000'000'000);
  launch([&] {
    auto cursor = view.warp_pages(32);
    M::check(cursor.seek(896, 1024).ok(), "the last block of the window");
    M::check(cursor.seek(0, 1025) == status(fault::out_of_range), "one lane of nine");
    M::check(cursor.seek(0, 1024).ok(), "the next seek begins anew");
  });
}

/// One thread of a machine without others, on a drive that does what a test says.
class direct_view_of_a_thread : public ::testing::Test {
 protected:
  using view_type = direct_view<std::uint32_t, testing::memory_storage_ref, testing::memory_buffer>;

  direct_view_of_a_thread() {
    drive.contents.resize(values.size() * 4);
    std::memcpy(drive.contents.data(), values.data(), drive.contents.size());
  }
  view_type view(std::uint64_t timeout_ns) {
    return {
        testing::memory_storage_ref(drive), {piece.data(), piece.size()}, values.size(), 512, page_bytes, timeout_ns};
  }

  numbers values = some(1024);
  testing::memory_drive drive;
  std::vector<std::byte> piece{page_bytes};
};

TEST_F(direct_view_of_a_thread, begins_again_what_was_not_started) {
  for (status const& refusal : {status(fault::busy), status(fault::no_record)}) {
    drive.requests.clear();
    drive.outcome = [&](std::size_t n) { return n < 3 ? refusal : status(); };
    auto const direct = view(60'000'000'000);
    auto cursor = direct.thread_page();
    ASSERT_TRUE(cursor.seek(200, 210).ok());
    EXPECT_EQ(cursor[205], values[205]);
    EXPECT_EQ(drive.requests.size(), 4u);
    EXPECT_EQ(drive.in_flight, 0u);
  }
}

TEST_F(direct_view_of_a_thread, gives_up_what_is_never_started_or_never_ends) {
  drive.outcome = [](std::size_t) { return status(fault::busy); };
  auto const direct = view(100'000);
  EXPECT_EQ(direct.thread_page().seek(0, 1), status(fault::busy));
  EXPECT_GT(drive.requests.size(), 1u);
  drive.outcome = [](std::size_t) { return status(); };
  drive.looks = [](std::size_t) { return testing::memory_token::never; };
  EXPECT_EQ(direct.thread_page().seek(0, 1), status(fault::timed_out));
  EXPECT_EQ(drive.in_flight, 0u) << "it is detached";
}

TEST_F(direct_view_of_a_thread, returns_what_the_drive_says) {
  drive.outcome = [](std::size_t n) { return n == 1 ? status::from_nvme(0x281) : status(); };
  auto const direct = view(1'000'000'000);
  auto cursor = direct.thread_page();
  EXPECT_TRUE(cursor.seek(0, 1).ok());
  EXPECT_EQ(cursor.seek(500, 501), status::from_nvme(0x281));
  EXPECT_TRUE(cursor.seek(500, 501).ok());
  EXPECT_EQ(cursor[500], values[500]);
}

}  // namespace
}  // namespace forebay::apps
