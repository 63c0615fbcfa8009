// SPDX-License-Identifier: Apache-2.0
//! \file
//! The requirements on a storage with a cache, whichever machine's threads use it. Instantiated for CPU fibers and for
//! CUDA.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/error.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/s3_fifo.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "storage/cached_storage_kernels.hpp"
#include "storage/patience.hpp"
#include "storage/suite_drives.hpp"
#include "support/traits.hpp"

namespace forebay::storage_test {

/// `Machine` as for `StorageSuite`, with two more members. `static std::string file_uri(path)` names a drive whose
/// bytes are that file's. `using completion` is the queue rules of those tests that are the same for all machines. If
/// these are `service_rules`, there is also `static void run_beside(service, stop, grid, kernel)`, which runs the
/// kernel while the service runs, and then stops the service.
template <class Machine>
class CachedStorageSuite : public testing::Test {
 protected:
  using fixture_machine = typename Machine::machine;
  template <class Policy = replacement::clock, bool Counted = false, class Rules = typename Machine::completion>
  using fixture_ref = storage_ref<fixture_machine, test::traits<Policy, Counted, frame_pools<>, Rules>>;
  template <class Policy = replacement::clock, bool Counted = false, class Rules = typename Machine::completion>
  static fixture_ref<Policy, Counted, Rules> ref_of(storage& st) {
    return st.ref<fixture_machine, test::traits<Policy, Counted, frame_pools<>, Rules>>();
  }

  void SetUp() override {
    require_drives<Machine>();
    seed_ = testing::UnitTest::GetInstance()->random_seed();
  }

  static storage_options options(std::vector<std::string> drives, std::uint64_t cache_pages,
                                 std::uint32_t page_bytes = 4096) {
    storage_options o;
    for (std::string& uri : drives) uri = drive_of<Machine>(uri);
    o.drives = std::move(drives);
    o.device = Machine::device();
    o.timeout_ns = patience_ns();
    o.cache.page_bytes = page_bytes;
    o.cache.size_bytes = cache_pages * page_bytes;
    return o;
  }

  static void fill(storage& st, std::uint64_t generation, extent const* within = nullptr) {
    std::vector<std::uint64_t> words((within != nullptr ? within->size_bytes : st.size_bytes()) / 8);
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = stamp(i * 8, generation);
    st.pwrite(words.data(), words.size() * 8, 0, within);
  }
  static void expect_stamps(storage& st, std::uint64_t generation, extent const* within = nullptr) {
    std::vector<std::uint64_t> words((within != nullptr ? within->size_bytes : st.size_bytes()) / 8);
    st.pread(words.data(), words.size() * 8, 0, within);
    for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stamp(i * 8, generation)) << "word " << i;
  }

  /// Runs `kernel` with its `result` set to memory that both sides reach.
  template <class Result = tally, class Kernel>
  static Result run(storage& st, simt::grid shape, Kernel kernel) {
    constexpr std::size_t stop_at = (sizeof(Result) + 127) / 128 * 128;
    registered_buffer shared = st.allocate_buffer(stop_at + sizeof(std::uint32_t));
    kernel.result = reinterpret_cast<tally*>(shared.data());
    storage_lease const running = st.lease();
    [[maybe_unused]] auto const dog = watched(st);
    if constexpr (decltype(kernel.storage)::traits::queue_rules::waiters_help) {
      Machine::run(shape, kernel);
    } else {
      auto* const stop = reinterpret_cast<std::uint32_t*>(shared.data() + stop_at);
      using traits = typename decltype(kernel.storage)::traits;
      Machine::run_beside(st.service<fixture_machine, traits>(stop), stop, shape, kernel);
    }
    return *reinterpret_cast<Result const*>(kernel.result);
  }
  /// The same of a kernel all of whose accesses must succeed.
  template <class Kernel>
  static void run_well(storage& st, simt::grid shape, Kernel const& kernel) {
    tally const t = run(st, shape, kernel);
    EXPECT_EQ(t.failed, 0u) << to_string(status::from_bits(t.first_failure));
    EXPECT_EQ(t.wrong_data, 0u);
    EXPECT_NE(t.ok, 0u);
    EXPECT_EQ(to_string(st.take_errors().first), to_string(status()));
  }

  /// Random reads and writes by `threads`; then every word must be on the drives, as its owner wrote it last.
  template <class Policy = replacement::clock, bool Counted = false, class Rules = typename Machine::completion>
  void mix_and_verify(storage& st, simt::grid shape, std::uint32_t rounds) {
    mix_and_verify_with<test::traits<Policy, Counted, frame_pools<>, Rules>>(st, shape, rounds);
  }
  template <class Traits>
  void mix_and_verify_with(storage& st, simt::grid shape, std::uint32_t rounds) {
    SCOPED_TRACE("seed " + std::to_string(seed_) + ", replay with --gtest_random_seed=" + std::to_string(seed_));
    std::uint64_t const words = st.size_bytes() / 8;
    registered_buffer written = st.allocate_buffer(words * 4);
    number_words(st);
    auto* const numbers = reinterpret_cast<std::uint32_t*>(written.data());
    run_well(st, shape,
             mixed_load<fixture_machine, storage_ref<fixture_machine, Traits>>{st.ref<fixture_machine, Traits>(),
                                                                               rounds, seed_, numbers, nullptr});
    st.flush();
    expect_numbers(st, numbers);
  }
  static void number_words(storage& st) {
    std::vector<std::uint64_t> words(st.size_bytes() / 8);
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = numbered(i, 0);
    st.pwrite(words.data(), words.size() * 8, 0);
  }
  static void expect_numbers(storage& st, std::uint32_t const* numbers) {
    std::vector<std::uint64_t> words(st.size_bytes() / 8);
    st.pread(words.data(), words.size() * 8, 0);
    for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], numbered(i, numbers[i])) << "word " << i;
  }

  template <class T>
  static void write_and_read_elements(storage& st, std::uint64_t offset_bytes) {
    run_well(st, {2, 64}, elements<fixture_machine, fixture_ref<>, T>{ref_of(st), offset_bytes, true, nullptr});
    run_well(st, {2, 64}, elements<fixture_machine, fixture_ref<>, T>{ref_of(st), offset_bytes, false, nullptr});
    std::vector<T> all((st.size_bytes() - offset_bytes) / sizeof(T));
    st.pread(all.data(), all.size() * sizeof(T), offset_bytes);
    for (std::uint64_t i = 0; i < all.size(); ++i) ASSERT_TRUE(all[i] == T::of(i)) << "element " << i;
  }

  std::uint64_t seed_ = 0;
};

TYPED_TEST_SUITE_P(CachedStorageSuite);

TYPED_TEST_P(CachedStorageSuite, ReadsWhatTheHostWrote) {
  using M = typename TypeParam::machine;
  for (std::uint64_t const cache_pages : {16, 64, 512}) {
    storage st(this->options({"emulated:size=1M"}, cache_pages));
    this->fill(st, 1);
    this->run_well(st, {2, 64},
                   read_words<M, storage_ref<M, cached>>{st.ref<M, cached>(), 40, this->seed_, 1, nullptr});
  }
}

TYPED_TEST_P(CachedStorageSuite, WritesThroughTheProxyReachTheDrive) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=1M"}, 32));
  this->run_well(st, {2, 64}, write_words<M, storage_ref<M, cached>>{st.ref<M, cached>(), 2, nullptr});
  this->expect_stamps(st, 2);
}

TYPED_TEST_P(CachedStorageSuite, NoWriteIsLostAtFourTimesTheCache) {
  {
    storage st(this->options({"emulated:size=1M"}, 64));
    this->mix_and_verify(st, {2, 64}, 300);
  }
  auto options = this->options({"emulated:size=1M"}, 64);
  options.cache.policy = replacement_policy::of<replacement::s3_fifo>();
  options.cache.statistics = true;
  storage st(options);
  this->template mix_and_verify<replacement::s3_fifo, true>(st, {2, 64}, 300);
  cache_counters const counted = st.cache_statistics();
  EXPECT_GT(counted.write_backs, 0u);
  EXPECT_GT(counted.evictions, 0u);
  EXPECT_GT(counted.hits, 0u);
  EXPECT_GE(counted.misses, 256u - 64u);
}

TYPED_TEST_P(CachedStorageSuite, PagesOf512BytesTo64KiB) {
  for (std::uint32_t const page_bytes : {512u, 1024u, 4096u, 16384u, 65536u}) {
    SCOPED_TRACE("pages of " + std::to_string(page_bytes));
    // The last page is a short one where it can be.
    storage st(this->options({"emulated:size=" + std::to_string(page_bytes * 70 + 512)}, 32, page_bytes));
    this->mix_and_verify(st, {1, 64}, 100);
  }
}

TYPED_TEST_P(CachedStorageSuite, OneSetWithAndWithoutOverflowFrames) {
  for (std::uint32_t const overflow : {0u, 1u, 40u}) {
    SCOPED_TRACE(std::to_string(overflow) + " overflow frames");
    auto options = this->options({"emulated:size=256K"}, 16);
    options.cache.overflow_frames = overflow;
    storage st(options);
    this->mix_and_verify(st, {1, 8}, 400);
  }
}

TYPED_TEST_P(CachedStorageSuite, PagesInOverflowFramesNeedNoLock) {
  using M = typename TypeParam::machine;
  auto options = this->options({"emulated:size=256K"}, 16);
  options.cache.overflow_frames = 1;
  storage st(options);
  this->run_well(st, {1, 1},
                 use_an_overflow_frame_beside_a_lock<M, storage_ref<M, cached>>{st.ref<M, cached>(), nullptr});
}

TYPED_TEST_P(CachedStorageSuite, MoreThreadsThanFramesWaitForOneAnother) {
  for (std::uint32_t const overflow : {0u, 3u}) {
    SCOPED_TRACE(std::to_string(overflow) + " overflow frames");
    auto options = this->options({"emulated:size=512K"}, 16);
    options.cache.overflow_frames = overflow;
    storage st(options);
    this->mix_and_verify(st, {4, 128}, 20);
  }
}

TYPED_TEST_P(CachedStorageSuite, SeveralDrivesStriped) {
  auto options = this->options({"emulated:size=400K", "emulated:size=500K", "emulated:size=400K"}, 64);
  options.stripe_bytes = 8192;
  storage st(options);
  this->mix_and_verify(st, {2, 64}, 100);
  this->template write_and_read_elements<record24>(st, 0);
}

TYPED_TEST_P(CachedStorageSuite, DrivesOneAfterTheOther) {
  for (std::uint32_t const page_bytes : {512u, 65536u}) {
    auto options = this->options({"emulated:size=400K", "emulated:size=500K", "emulated:size=400K"}, 32, page_bytes);
    options.stripe_bytes = 0;
    storage st(options);
    EXPECT_EQ(st.size_bytes(), 3u * (384 << 10));
    this->mix_and_verify(st, {2, 64}, 100);
    this->template write_and_read_elements<record24>(st, 0);
  }
}

TYPED_TEST_P(CachedStorageSuite, EachDriveIsAnArrayOfItsOwn) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  for (int const drives : {1, 3}) {
    auto options = this->options(std::vector<std::string>(drives, "emulated:size=192K"), 32);
    options.stripe_bytes = 0;
    storage st(options);
    auto const values = st.drive_arrays<M, std::uint64_t const>();
    ASSERT_EQ(values.size(), static_cast<std::uint32_t>(drives));
    EXPECT_EQ(values[0].size(), (192u << 10) / 8);
    this->run_well(st, {2, 64}, drive_words<M, view>{st.ref<M, cached>(), true, nullptr});
    this->run_well(st, {2, 64}, drive_words<M, view>{st.ref<M, cached>(), false, nullptr});
    std::vector<std::uint64_t> words((192 << 10) / 8);
    for (int d = 0; d < drives; ++d) {
      st.pread(words.data(), words.size() * 8, d * words.size() * 8);
      for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stamp(i, d)) << d << ", word " << i;
    }
  }
}

TYPED_TEST_P(CachedStorageSuite, StripedDrivesAreNoArraysOfTheirOwn) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  storage st(this->options({"emulated:size=2M", "emulated:size=2M"}, 32));
  try {
    std::ignore = st.drive_arrays<M, std::uint64_t>();
    ADD_FAILURE() << "not refused";
  } catch (refused_input const& e) {
    EXPECT_NE(std::string(e.what()).find("stripe_bytes: '65536'"), std::string::npos) << e.what();
  }
  // A kernel that asks all the same has none, and what it reads there is out of range.
  this->run_well(st, {1, 32}, drive_words<M, view>{st.ref<M, cached>(), false, nullptr});
  EXPECT_EQ((st.ref<M, cached>().template drive_arrays<int>().size()), 0u);

  auto options = this->options({"emulated:size=2M", "emulated:size=2M"}, 32);
  options.stripe_bytes = 0;
  storage apart(options);
  EXPECT_EQ((apart.ref<M, cached>(apart.create_extent("part", 5000)).template drive_arrays<int>().size()), 0u);
}

TYPED_TEST_P(CachedStorageSuite, ShallowQueuesSlowButDoNotStop) {
  auto options = this->options({"emulated:size=1M"}, 64);
  options.queues.per_drive = 2;
  options.queues.depth = 2;
  storage st(options);
  this->mix_and_verify(st, {2, 64}, 50);
}

TYPED_TEST_P(CachedStorageSuite, DrivesWithDifferentNumbersOfQueues) {
  using M = typename TypeParam::machine;
  auto options = this->options({"emulated:size=400K", "emulated:size=400K", "emulated:size=400K"}, 64);
  options.stripe_bytes = 8192;
  options.queues.of_drives = {{.count = 1, .depth = 2}, {.count = 5}, {.count = 3, .depth = 4}};
  storage st(options);
  using uneven = uneven_rules<typename TypeParam::completion>;
  EXPECT_THROW((st.ref<M, cached>()), refused_input);
  this->template mix_and_verify<replacement::clock, false, uneven>(st, {2, 64}, 200);
  registered_buffer const buffers = st.allocate_buffer(128ull * 2 * 4096);
  using ref = typename TestFixture::template fixture_ref<replacement::clock, false, uneven>;
  this->run_well(st, {2, 64},
                 transfer_beside_views<M, ref>{this->template ref_of<replacement::clock, false, uneven>(st),
                                               buffers.ref(), nullptr});
}

TYPED_TEST_P(CachedStorageSuite, SumsOfAllThreadsAreExact) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=1M"}, 16));
  constexpr std::uint32_t counters = 40, rounds = 50;
  constexpr std::uint64_t apart = 517;  // words: some pages hold none, some several
  this->run_well(st, {4, 32}, add_up<M, storage_ref<M, cached>>{st.ref<M, cached>(), counters, apart, rounds, nullptr});
  std::vector<std::uint64_t> expected(counters), words(counters * apart);
  for (std::uint64_t thread = 0; thread < 128; ++thread) {
    for (std::uint32_t r = 0; r < rounds; ++r) {
      std::uint64_t const k = mix(thread * 1000003ull + r) % counters;
      expected[k] += k + 1;
    }
  }
  st.pread(words.data(), words.size() * 8, 0);
  for (std::uint32_t k = 0; k < counters; ++k) EXPECT_EQ(words[k * apart], expected[k]) << "counter " << k;
}

TYPED_TEST_P(CachedStorageSuite, ElementsMayLieInTwoPages) {
  for (std::uint32_t const page_bytes : {512u, 4096u}) {
    storage st(this->options({"emulated:size=200K"}, 32, page_bytes));
    this->template write_and_read_elements<record24>(st, 0);
    this->template write_and_read_elements<record24>(st, 1000);
  }
}

TYPED_TEST_P(CachedStorageSuite, ElementsOfAPowerOfTwoMayLieInTwoPagesToo) {
  storage st(this->options({"emulated:size=64K"}, 16, 512));
  this->template write_and_read_elements<quad>(st, 0);
  this->template write_and_read_elements<quad>(st, 4);
  this->template write_and_read_elements<quad>(st, 504);
}

TYPED_TEST_P(CachedStorageSuite, StretchesOfElementsAreLoadedAtOnce) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=200K", "emulated:size=200K"}, 32, 1024));
  this->template write_and_read_elements<record24>(st, 0);
  constexpr std::uint32_t threads = 64, longest = 150;
  registered_buffer buffer = st.allocate_buffer(threads * longest * sizeof(record24));
  this->run_well(
      st, {2, threads / 2},
      load_spans<M, storage_ref<M, cached>>{st.ref<M, cached>(), buffer.ref(), longest, 20, this->seed_, nullptr});
}

TYPED_TEST_P(CachedStorageSuite, CursorsOfThreadsAndOfWarps) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  storage st(this->options({"emulated:size=512K"}, 128));
  this->run_well(st, {2, 32}, write_by_cursor<M, view, false>{st.ref<M, cached>(), 3, 100, nullptr});
  this->expect_stamps(st, 3);
  this->run_well(st, {2, 32}, read_by_cursor<M, view, true>{st.ref<M, cached>(), 3, nullptr});
  this->run_well(st, {2, 64}, write_by_cursor<M, view, true>{st.ref<M, cached>(), 4, 700, nullptr});
  this->run_well(st, {2, 32}, read_by_cursor<M, view, false>{st.ref<M, cached>(), 4, nullptr});
  this->expect_stamps(st, 4);
  // Pages that the cache holds, and has not written back yet.
  this->run_well(st, {2, 32}, overwrite_by_cursor<M, view, false>{st.ref<M, cached>(), 5, nullptr});
  this->run_well(st, {2, 32}, read_by_cursor<M, view, true>{st.ref<M, cached>(), 5, nullptr});
  this->expect_stamps(st, 5);
  // Pages that it does not hold, and has to make room for.
  storage small(this->options({"emulated:size=512K"}, 32));
  this->fill(small, 6);
  this->run_well(small, {2, 64}, overwrite_by_cursor<M, view, true>{small.ref<M, cached>(), 7, nullptr});
  this->run_well(small, {2, 32}, read_by_cursor<M, view, true>{small.ref<M, cached>(), 7, nullptr});
  this->expect_stamps(small, 7);
}

TYPED_TEST_P(CachedStorageSuite, WindowsOfSeveralPages) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, test::traits<replacement::clock, true>>;
  // Of the cache's 256 pages, and of the same without room for what all warps want.
  for (std::uint64_t const cache_pages : {256, 16}) {
    SCOPED_TRACE(cache_pages);
    auto options = this->options({"emulated:size=512K", "emulated:size=512K"}, cache_pages);
    options.cache.overflow_frames = 16;
    options.cache.statistics = true;
    storage st(options);
    auto const ref = st.ref<M, test::traits<replacement::clock, true>>();
    for (std::uint32_t const pages : {1, 5, 32}) {
      SCOPED_TRACE(pages);
      this->run_well(st, {2, 64}, go_by_window<M, view, std::uint64_t>{ref, 20 + pages, 3000, pages, nullptr});
      this->run_well(st, {2, 64}, go_by_window<M, view, std::uint64_t const>{ref, 20 + pages, 2222, pages, nullptr});
      this->expect_stamps(st, 20 + pages);
    }
    if (cache_pages == 256) {
      // No page is looked up twice, not even to go back to it.
      cache_counters const before = st.cache_statistics();
      this->run_well(st, {1, 32}, go_by_window<M, view, std::uint64_t const>{ref, 52, 16 * 512, 32, nullptr});
      cache_counters const after = st.cache_statistics();
      EXPECT_EQ(after.hits - before.hits + after.misses - before.misses, st.size_bytes() / 4096);
    }
  }
}

TYPED_TEST_P(CachedStorageSuite, AThreadMayHaveSeveralCursors) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=512K"}, 128));
  this->fill(st, 5);
  constexpr std::uint64_t words_each = 600;
  this->run_well(st, {1, 32}, copy_by_cursors<M, storage_ref<M, cached>>{st.ref<M, cached>(), 5, words_each, nullptr});
  std::vector<std::uint64_t> words(32 * words_each);
  st.pread(words.data(), words.size() * 8, st.size_bytes() / 2);
  for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stamp(i * 8, 5)) << "word " << i;
}

TYPED_TEST_P(CachedStorageSuite, PagesAskedForAheadAreRead) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, test::traits<replacement::clock, true>>;
  auto options = this->options({"emulated:size=1M"}, 64);
  options.cache.statistics = true;
  storage st(options);
  this->fill(st, 6);
  this->run_well(st, {1, 32},
                 read_ahead<M, view>{st.ref<M, test::traits<replacement::clock, true>>(), 512, 6, nullptr});
  cache_counters const counted = st.cache_statistics();
  EXPECT_GT(counted.prefetches, 0u);
  EXPECT_GE(counted.prefetches + counted.misses, 256u);
}

TYPED_TEST_P(CachedStorageSuite, WhatWasPrefetchedIsThereOnceItWasAwaited) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=1M"}, 256));
  this->fill(st, 8);
  auto const ref = this->template ref_of<>(st);
  this->run_well(st, {1, 64}, read_what_was_prefetched<M, std::remove_const_t<decltype(ref)>>{ref, 8, nullptr});
}

TYPED_TEST_P(CachedStorageSuite, WhatIsPrefetchedThoughItIsThereStays) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=1M"}, cache_ways));
  this->fill(st, 9);
  auto const ref = this->template ref_of<>(st);
  this->run_well(st, {1, 1}, prefetch_what_is_there<M, std::remove_const_t<decltype(ref)>>{ref, 9, nullptr});
}

TYPED_TEST_P(CachedStorageSuite, LanesThatMissAPageTogetherAreOneMiss) {
  using M = typename TypeParam::machine;
  auto options = this->options({"emulated:size=1M"}, 256);
  options.cache.statistics = true;
  storage st(options);
  this->fill(st, 7);
  auto const kernel = read_page_by_warps<M, storage_ref<M, test::traits<replacement::clock, true>>>{
      st.ref<M, test::traits<replacement::clock, true>>(), 7, nullptr};
  this->run_well(st, {4, 64}, kernel);
  EXPECT_EQ(st.cache_statistics().misses, 8u);
  this->run_well(st, {4, 64}, kernel);
  EXPECT_EQ(st.cache_statistics().misses, 8u);
}

TYPED_TEST_P(CachedStorageSuite, WhatAViewCannotDoItSays) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  auto options = this->options({"emulated:size=64K"}, 16);
  options.read_only = true;
  storage st(options);
  answers const a = this->template run<answers>(st, {1, 32}, ask<M, view>{st.ref<M, cached>(), nullptr});
  auto const is = [](std::uint32_t bits) { return to_string(status::from_bits(bits)); };
  EXPECT_EQ(is(a.load_outside), to_string(status(fault::out_of_range)));
  EXPECT_EQ(is(a.store_outside), to_string(status(fault::out_of_range)));
  EXPECT_EQ(is(a.span_outside), to_string(status(fault::out_of_range)));
  EXPECT_EQ(is(a.span_wraps), to_string(status(fault::out_of_range)));
  EXPECT_EQ(is(a.seek_outside), to_string(status(fault::out_of_range)));
  EXPECT_EQ(is(a.store_read_only), to_string(status(fault::read_only)));
  EXPECT_EQ(is(a.seek_read_only), to_string(status(fault::read_only)));
  EXPECT_EQ(is(a.seek_split), to_string(status(fault::bad_alignment)));
  EXPECT_EQ(a.prefetch_outside, 0u);
  EXPECT_EQ(a.misaligned_size, 0u);
  EXPECT_EQ(a.size_beyond, 0u);
  EXPECT_EQ(a.value_outside, 0u);
  EXPECT_EQ(to_string(st.take_errors().first), to_string(status(fault::out_of_range)));
}

TYPED_TEST_P(CachedStorageSuite, TheHostAndKernelsSeeEachOthersWrites) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  storage st(this->options({"emulated:size=256K"}, 64));
  for (std::uint64_t generation = 10; generation < 14; generation += 2) {
    this->fill(st, generation);
    this->run_well(st, {1, 64}, read_words<M, view>{st.ref<M, cached>(), 40, this->seed_, generation, nullptr});
    this->run_well(st, {1, 64}, write_words<M, view>{st.ref<M, cached>(), generation + 1, nullptr});
    this->expect_stamps(st, generation + 1);
  }
  // A part of a block among what a kernel wrote, and nothing else of it.
  char const mark[3] = {'f', 'o', 'o'};
  st.pwrite(mark, 3, 5001);
  this->run_well(st, {1, 32}, write_one<M, view>{st.ref<M, cached>(), 4999 / 8, 77, nullptr});
  char seen[5];
  st.pread(seen, 5, 5000);
  EXPECT_EQ(std::string(seen + 1, 3), "foo");
  std::uint64_t word = 0;
  st.pread(&word, 8, 4999 / 8 * 8);
  EXPECT_EQ(word, 77u);
}

TYPED_TEST_P(CachedStorageSuite, AnExtentIsAWindowOfItsOwn) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  storage st(this->options({"emulated:size=8M"}, 64));
  extent const before = st.create_extent("before", 100000);
  extent const mine = st.create_extent("mine", 300000);
  this->fill(st, 20, &before);
  auto const window = st.ref<M, cached>(mine);
  EXPECT_EQ(window.size_bytes(), 300032u);
  this->run_well(st, {1, 64}, write_words<M, view>{window, 21, nullptr});
  this->run_well(st, {1, 64}, read_words<M, view>{window, 40, this->seed_, 21, nullptr});
  this->expect_stamps(st, 21, &mine);
  this->expect_stamps(st, 20, &before);
}

TYPED_TEST_P(CachedStorageSuite, ACatalogueDoesNotOverwriteWhatKernelsWrote) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  storage st(this->options({"emulated:size=4M"}, 16));
  this->run_well(st, {1, 32}, write_one<M, view>{st.ref<M, cached>(), 3, 99, nullptr});
  EXPECT_THROW(st.create_extent("mine", 1000), refused_input);
  std::uint64_t word = 0;
  st.pread(&word, 8, 24);
  EXPECT_EQ(word, 99u);

  auto options = this->options({"emulated:size=4M"}, 16);
  options.allow_destroy = true;
  storage destroyed(options);
  this->run_well(destroyed, {1, 32}, write_one<M, view>{destroyed.ref<M, cached>(), 3, 99, nullptr});
  extent const made = destroyed.create_extent("mine", 1000);
  std::vector<char> first(catalogue::copy_bytes);
  destroyed.pread(first.data(), first.size(), 0);
  std::uint64_t there = 0;
  std::memcpy(&there, first.data() + 24, 8);
  EXPECT_NE(there, 99u);
  EXPECT_EQ(destroyed.find_extent("mine").first_byte, made.first_byte);
}

TYPED_TEST_P(CachedStorageSuite, WhatIsNotFlushedIsWrittenBackAtTheEnd) {
  using M = typename TypeParam::machine;
  using view = storage_ref<M, cached>;
  std::string const path = testing::TempDir() + "forebay_cached_" +
                           std::to_string(testing::UnitTest::GetInstance()->random_seed()) +
                           TypeParam::device().substr(0, 3) + ".img";
  std::remove(path.c_str());
  drive::create("emulated:backing=file,path=" + path + ",size=1M");
  for (bool const flushed : {false, true}) {
    auto options = this->options({}, 64);
    options.drives = {TypeParam::file_uri(path)};
    std::uint64_t const generation = flushed ? 31 : 30;
    {
      storage st(options);
      this->run_well(st, {2, 64}, write_words<M, view>{st.ref<M, cached>(), generation, nullptr});
      if (flushed) st.flush();
    }
    storage st(options);
    this->expect_stamps(st, generation);
    this->run_well(st, {1, 64}, read_words<M, view>{st.ref<M, cached>(), 10, this->seed_, generation, nullptr});
  }
  std::remove(path.c_str());
}

TYPED_TEST_P(CachedStorageSuite, AsynchronousTransfersAndViewsSeeEachOther) {
  using M = typename TypeParam::machine;
  struct place {
    std::uint32_t page_bytes, cache_pages, overflow_frames;
  };
  // The last has room for a page of each eighth thread.
  for (auto const [page_bytes, cache_pages, overflow_frames] :
       {place{512, 32, 256}, {4096, 32, 256}, {16384, 32, 256}, {4096, 16, 0}}) {
    SCOPED_TRACE(std::to_string(page_bytes) + " bytes a page, " + std::to_string(overflow_frames) + " overflow frames");
    auto options = this->options({"emulated:size=1M", "emulated:size=1M"}, cache_pages, page_bytes);
    options.cache.overflow_frames = overflow_frames;
    storage st(options);
    registered_buffer const buffers = st.allocate_buffer(128ull * 2 * page_bytes);
    this->run_well(st, {2, 64},
                   transfer_beside_views<M, typename TestFixture::template fixture_ref<>>{this->ref_of(st),
                                                                                          buffers.ref(), nullptr});
  }
}

TYPED_TEST_P(CachedStorageSuite, SharedBuffersArePages) {
  using M = typename TypeParam::machine;
  using pools = frame_pools<share_all>;
  using view = storage_ref<M, test::traits<replacement::clock, true, pools>>;
  for (std::uint32_t const user_frames : {1u, 8u, 200u}) {
    SCOPED_TRACE(std::to_string(user_frames) + " user frames");
    auto options = this->options({"emulated:size=1M"}, 64);
    options.cache.user_frames = user_frames;
    options.cache.statistics = true;
    storage st(options);
    this->fill(st, 1);
    registered_buffer const buffers = st.allocate_device_buffer(64ull * 4096);
    auto const ref = st.ref<M, test::traits<replacement::clock, true, pools>>();
    this->run_well(st, {1, 64}, share_pages<M, view, false>{ref, buffers.ref(), 1, nullptr});
    EXPECT_GT(st.cache_statistics().shared, 0u);
    this->expect_stamps(st, 2);
    this->run_well(st, {1, 64}, share_to_overwrite<M, view>{ref, buffers.ref(), 3, nullptr});
    this->expect_stamps(st, 3);
  }
}

TYPED_TEST_P(CachedStorageSuite, WhatAKernelLeavesSharedTheHostTakesBack) {
  using M = typename TypeParam::machine;
  using pools = frame_pools<share_all>;
  using view = storage_ref<M, test::traits<replacement::clock, true, pools>>;
  auto options = this->options({"emulated:size=256K"}, 16);
  options.cache.user_frames = 64;
  options.cache.statistics = true;
  storage st(options);
  this->fill(st, 1);
  {
    registered_buffer const buffers = st.allocate_buffer(64ull * 4096);
    auto const ref = st.ref<M, test::traits<replacement::clock, true, pools>>();
    this->run_well(st, {1, 64}, share_pages<M, view, true>{ref, buffers.ref(), 1, nullptr});
    ASSERT_EQ(st.cache_statistics().shared, 64u);
    // Written pages that lie in the buffers, whose owners have gone: a flush brings them to the drive.
    this->expect_stamps(st, 2);
    EXPECT_THROW(this->fill(st, 5), operation_failed) << "they are still pinned";
    st.take_back(buffers);
    std::memset(buffers.data(), 0, buffers.size_bytes());
    this->expect_stamps(st, 2);
  }
  this->fill(st, 6);
  this->expect_stamps(st, 6);
}

TYPED_TEST_P(CachedStorageSuite, PagesThatLeaveAreFoundInHostMemory) {
  using M = typename TypeParam::machine;
  using pools = frame_pools<no_sharing, replacement::clock>;
  using view = storage_ref<M, test::traits<replacement::clock, true, pools>>;
  auto options = this->options({"emulated:size=1M"}, 64);
  options.cache.host_size_bytes = 8 * options.cache.size_bytes;
  options.cache.statistics = true;
  storage st(options);
  this->fill(st, 1);
  auto const ref = st.ref<M, test::traits<replacement::clock, true, pools>>();
  for (std::uint64_t generation = 2; generation != 5; ++generation) {
    this->run_well(st, {2, 64}, write_words<M, view>{ref, generation, nullptr});
    this->run_well(st, {2, 64}, read_words<M, view>{ref, 40, this->seed_, generation, nullptr});
  }
  cache_counters const seen = st.cache_statistics();
  EXPECT_GT(seen.to_host, 0u);
  EXPECT_GT(seen.from_host, 0u);
  this->expect_stamps(st, 4);
  // Pages that the host writes are in no pool any more.
  this->fill(st, 9);
  this->run_well(st, {2, 64}, read_words<M, view>{ref, 40, this->seed_, 9, nullptr});
}

TYPED_TEST_P(CachedStorageSuite, PagesPassThroughStagingPages) {
  using traits = test::traits<replacement::clock, true, frame_pools<no_sharing, replacement::clock, staged_frames>,
                              typename TypeParam::completion>;
  // Pages of 64 KiB also need PRP lists. With one staging page, commands go one by one.
  for (auto const& [page_bytes, staging_pages] :
       {std::pair{512u, 200u}, std::pair{4096u, 1u}, std::pair{4096u, 8u}, std::pair{65536u, 40u}}) {
    SCOPED_TRACE("pages of " + std::to_string(page_bytes) + ", " + std::to_string(staging_pages) + " staging pages");
    // Two drives share the staging pages. The last page of one alone is a short one where it can be.
    std::string const drive = "emulated:size=" + std::to_string(page_bytes * 70 + 512);
    auto options = page_bytes == 4096 ? this->options({drive, drive}, 32) : this->options({drive}, 32, page_bytes);
    options.stripe_bytes = 4096;
    options.cache.staging_pages = staging_pages;
    options.cache.overflow_frames = 2;  // so that written pages have to make room
    options.cache.statistics = true;
    options.cache.host_size_bytes = 2 * options.cache.size_bytes;
    storage st(options);
    this->template mix_and_verify_with<traits>(st, {2, 64}, 60);
    cache_counters const seen = st.cache_statistics();
    EXPECT_GT(seen.misses, 0u);
    EXPECT_GT(seen.write_backs, 0u);
  }
}

REGISTER_TYPED_TEST_SUITE_P(
    CachedStorageSuite, ReadsWhatTheHostWrote, WritesThroughTheProxyReachTheDrive, NoWriteIsLostAtFourTimesTheCache,
    PagesOf512BytesTo64KiB, OneSetWithAndWithoutOverflowFrames, PagesInOverflowFramesNeedNoLock,
    MoreThreadsThanFramesWaitForOneAnother, SeveralDrivesStriped, DrivesOneAfterTheOther, EachDriveIsAnArrayOfItsOwn,
    StripedDrivesAreNoArraysOfTheirOwn, ShallowQueuesSlowButDoNotStop, DrivesWithDifferentNumbersOfQueues,
    SumsOfAllThreadsAreExact, ElementsMayLieInTwoPages, ElementsOfAPowerOfTwoMayLieInTwoPagesToo,
    StretchesOfElementsAreLoadedAtOnce, CursorsOfThreadsAndOfWarps, WindowsOfSeveralPages, AThreadMayHaveSeveralCursors,
    PagesAskedForAheadAreRead, WhatWasPrefetchedIsThereOnceItWasAwaited, WhatIsPrefetchedThoughItIsThereStays,
    LanesThatMissAPageTogetherAreOneMiss, WhatAViewCannotDoItSays, TheHostAndKernelsSeeEachOthersWrites,
    AnExtentIsAWindowOfItsOwn, ACatalogueDoesNotOverwriteWhatKernelsWrote, WhatIsNotFlushedIsWrittenBackAtTheEnd,
    AsynchronousTransfersAndViewsSeeEachOther, SharedBuffersArePages, WhatAKernelLeavesSharedTheHostTakesBack,
    PagesThatLeaveAreFoundInHostMemory, PagesPassThroughStagingPages);

}  // namespace forebay::storage_test
