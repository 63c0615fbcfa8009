// SPDX-License-Identifier: Apache-2.0
//! \file
//! `pipeline` over whole storages, and the kernels of docs/how-to/overlap-reads-and-computation.md, whichever machine's
//! threads run them. Instantiated for CPU fibers and for CUDA.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "docs/examples/overlap_reads.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "storage/patience.hpp"
#include "storage/pipeline_kernels.hpp"
#include "storage/suite_drives.hpp"

namespace forebay::storage_test {

/// `Machine` as for `StorageSuite`.
template <class Machine>
class PipelineSuite : public testing::Test {
 protected:
  using fixture_machine = typename Machine::machine;

  void SetUp() override {
    require_drives<Machine>();
    seed_ = static_cast<std::uint64_t>(testing::UnitTest::GetInstance()->random_seed());
  }

  static storage_options options(std::string const& drive) {
    return {.drives = {drive_of<Machine>(drive)}, .device = Machine::device(), .timeout_ns = patience_ns()};
  }
  static std::vector<std::uint64_t> stamps(storage const& st, std::uint64_t generation) {
    std::vector<std::uint64_t> words(st.size_bytes() / 8);
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = stamp(i * 8, generation);
    return words;
  }
  static void fill(storage& st, std::uint64_t generation) {
    st.pwrite(stamps(st, generation).data(), st.size_bytes(), 0);
  }
  /// Runs `kernel` with its `result` set to memory that both sides reach.
  template <class Kernel>
  static tally run(storage& st, simt::grid shape, Kernel kernel) {
    registered_buffer shared = st.allocate_buffer(sizeof(tally));
    kernel.result = reinterpret_cast<tally*>(shared.data());
    [[maybe_unused]] auto const dog = watched(st);
    storage_lease const running = st.lease();
    Machine::run(shape, kernel);
    return *kernel.result;
  }

  /// Random blocks, `good` of `count` of which exist.
  template <std::uint32_t Depth, bool Told>
  void read_blocks(storage& st, std::uint64_t generation, std::uint64_t count, std::uint64_t good) {
    SCOPED_TRACE("depth " + std::to_string(Depth) + ", replay with --gtest_random_seed=" + std::to_string(seed_));
    constexpr simt::grid shape{.blocks = 3, .threads_per_block = 48};
    constexpr std::uint32_t threads = shape.blocks * shape.threads_per_block;
    registered_buffer buffer = st.allocate_buffer(std::uint64_t{threads} * Depth * st.block_bytes());
    registered_buffer seen = st.allocate_buffer((count + 1) * 4);
    auto const* const by = reinterpret_cast<std::uint32_t const*>(seen.data());
    tally const t = run(st, shape,
                        read_pipelined<fixture_machine, Depth, Told>{
                            st.ref<fixture_machine>(), buffer.ref(), count, good, seed_, generation,
                            reinterpret_cast<std::uint32_t*>(seen.data()), nullptr});
    EXPECT_EQ(t.wrong_data, 0u);
    EXPECT_EQ(t.ok, good);
    std::uint64_t const failed = count - good;
    EXPECT_EQ(t.failed, Told || failed < threads ? failed : threads);
    status const expected = failed != 0 ? fault::out_of_range : fault::none;
    EXPECT_EQ(to_string(status::from_bits(t.first_failure)), to_string(expected));
    for (std::uint64_t i = 0; i < count; ++i) {
      bool const computed = Told || i < good;
      ASSERT_EQ(by[i], computed ? i % threads + 1 : 0) << "index " << i;
    }
  }

  /// Runs a kernel of the how-to page. Returns the sum over all threads, none of which may have failed.
  template <class Kernel>
  static std::uint64_t sum_by(storage& st, simt::grid shape, Kernel kernel) {
    std::uint32_t const threads = shape.blocks * shape.threads_per_block;
    registered_buffer results = st.allocate_buffer(threads * sizeof(overlap_reads::result));
    kernel.results = reinterpret_cast<overlap_reads::result*>(results.data());
    {
      [[maybe_unused]] auto const dog = watched(st);
      storage_lease const running = st.lease();
      Machine::run(shape, kernel);
    }
    std::uint64_t sum = 0;
    for (std::uint32_t t = 0; t < threads; ++t) {
      EXPECT_EQ(to_string(kernel.results[t].status), to_string(status()));
      sum += kernel.results[t].sum;
    }
    return sum;
  }

  std::uint64_t seed_ = 0;
};

TYPED_TEST_SUITE_P(PipelineSuite);

TYPED_TEST_P(PipelineSuite, ReadsWhatEachIndexNamesOnceAndInOrder) {
  storage st(this->options("emulated:size=4M,latency_us=30,iops=400000,channels=3"));
  this->fill(st, 1);
  // Fewer than there are threads, not the same for all threads, and none.
  for (std::uint64_t const count : {0ull, 100ull, 1300ull}) {
    this->template read_blocks<1, false>(st, 1, count, count);
    this->template read_blocks<2, false>(st, 1, count, count);
    this->template read_blocks<4, false>(st, 1, count, count);
    this->template read_blocks<7, false>(st, 1, count, count);
  }
}

TYPED_TEST_P(PipelineSuite, FailuresEndItOrAreTold) {
  storage st(this->options("emulated:size=4M"));
  this->fill(st, 2);
  this->template read_blocks<1, true>(st, 2, 700, 500);
  this->template read_blocks<4, true>(st, 2, 700, 500);
  this->template read_blocks<4, false>(st, 2, 700, 500);
  this->template read_blocks<7, false>(st, 2, 560, 500);
}

TYPED_TEST_P(PipelineSuite, QueuesMayBeShorterThanThePipeline) {
  auto o = this->options("emulated:size=1M");
  o.queues.per_drive = 2;
  o.queues.depth = 2;
  storage st(o);
  this->fill(st, 3);
  this->template read_blocks<7, false>(st, 3, 1000, 1000);
}

TYPED_TEST_P(PipelineSuite, WarpsWaitForWhatTheirLanesRead) {
  using M = typename TypeParam::machine;
  storage st(this->options("emulated:size=2M,latency_us=20,iops=500000"));
  this->fill(st, 4);
  registered_buffer buffer = st.allocate_buffer(std::uint64_t{4} * 3 * 64 * st.block_bytes());
  tally const t = this->run(st, {2, 64}, read_rows<M, 3>{st.ref<M>(), buffer.ref(), 4, nullptr});
  EXPECT_EQ(t.failed, 0u) << to_string(status::from_bits(t.first_failure));
  EXPECT_EQ(t.wrong_data, 0u);
  EXPECT_EQ(t.ok, st.size_bytes() / st.block_bytes() / 2);
}

TYPED_TEST_P(PipelineSuite, ReadsAndWritesPassThroughTheCache) {
  using M = typename TypeParam::machine;
  auto o = this->options("emulated:size=2M,latency_us=20");
  o.cache.size_bytes = 64 * 4096;
  storage st(o);
  this->fill(st, 6);
  registered_buffer buffer = st.allocate_buffer(64 * 3 * 4096);
  auto const ref = st.ref<M, cached>();
  tally const t =
      this->run(st, {2, 32}, copy_and_write<M, std::remove_const_t<decltype(ref)>, 3>{ref, buffer.ref(), 7, nullptr});
  EXPECT_EQ(t.failed, 0u) << to_string(status::from_bits(t.first_failure));
  EXPECT_EQ(t.ok, 64 + st.size_bytes() / 2 / 4096);
  auto expected = this->stamps(st, 6);
  std::copy_n(expected.begin(), expected.size() / 2, expected.begin() + expected.size() / 2);
  auto const written = this->stamps(st, 7);
  std::copy_n(written.begin(), written.size() / 2, expected.begin());
  std::vector<std::uint64_t> found(expected.size());
  st.pread(found.data(), st.size_bytes(), 0);
  EXPECT_TRUE(found == expected);
}

TYPED_TEST_P(PipelineSuite, TheKernelsOfTheHowToPageAddUp) {
  using M = typename TypeParam::machine;
  using namespace overlap_reads;
  constexpr simt::grid shape{.blocks = 2, .threads_per_block = 64};
  constexpr std::uint32_t threads = 128;
  std::string const drive = "emulated:size=2M,latency_us=20";
  std::uint64_t sum = 0;
  storage st(this->options(drive));
  auto words = this->stamps(st, 5);
  for (std::uint64_t const word : words) sum += word;
  st.pwrite(words.data(), st.size_bytes(), 0);
  registered_buffer buffers = st.allocate_buffer(std::uint64_t{threads} * 4 * record_bytes);
  buffer_ref const places = buffers.ref();
  EXPECT_EQ(this->sum_by(st, shape, plain_loop<M>{st.ref<M>(), places, nullptr}), sum);
  EXPECT_EQ(this->sum_by(st, shape, by_threads<M>{st.ref<M>(), places, nullptr}), sum);
  EXPECT_EQ(this->sum_by(st, shape, by_warps<M>{st.ref<M>(), places, nullptr}), sum);

  // Record 3 is the same in both halves, and others begin alike. Of thread 3's records, number 3 is the first.
  std::uint64_t const half = words.size() / 2;
  std::copy_n(words.begin() + 3 * words_per_record, words_per_record, words.begin() + half + 3 * words_per_record);
  std::copy_n(words.begin() + 131 * words_per_record, 9, words.begin() + half + 131 * words_per_record);
  std::copy_n(words.begin() + 132 * words_per_record, 5, words.begin() + half + 132 * words_per_record);
  st.pwrite(words.data(), st.size_bytes(), 0);
  EXPECT_EQ(this->sum_by(st, shape, compare_halves<M>{st.ref<M>(), places, nullptr}), words_per_record + 5u);

  auto o = this->options(drive);
  o.cache.size_bytes = 1 << 20;
  storage through_cache(o);
  through_cache.pwrite(words.data(), through_cache.size_bytes(), 0);
  sum = 0;
  for (std::uint64_t const word : words) sum += word;
  EXPECT_EQ(this->sum_by(through_cache, shape, through_the_cache<M>{through_cache.ref<M, cached>(), nullptr}), sum);
}

REGISTER_TYPED_TEST_SUITE_P(PipelineSuite, ReadsWhatEachIndexNamesOnceAndInOrder, FailuresEndItOrAreTold,
                            QueuesMayBeShorterThanThePipeline, WarpsWaitForWhatTheirLanesRead,
                            ReadsAndWritesPassThroughTheCache, TheKernelsOfTheHowToPageAddUp);

}  // namespace forebay::storage_test
