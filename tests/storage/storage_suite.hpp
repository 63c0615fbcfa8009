// SPDX-License-Identifier: Apache-2.0
//! \file
//! The requirements on every storage, whichever machine's threads drive it. Instantiated for CPU fibers and for CUDA.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/error.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "storage/patience.hpp"
#include "storage/storage_kernels.hpp"
#include "storage/suite_drives.hpp"
#include "support/traits.hpp"

namespace forebay::storage_test {

/// `Machine` has `using machine`, `static std::string device()`, `static std::string drive_keys()` (what is added to a
/// drive's URI) and `static void run(grid, kernel)`, which returns when the kernel has ended. A machine whose drives
/// are not emulated has what suite_drives.hpp looks for.
template <class Machine>
class StorageSuite : public testing::Test {
 protected:
  using fixture_machine = typename Machine::machine;
  /// Of each drive.
  static constexpr std::uint32_t block_bytes = block_bytes_of<Machine>();

  void SetUp() override { require_drives<Machine>(); }

  static storage_options options(std::vector<std::string> drives) {
    storage_options o;
    for (std::string& uri : drives) uri = drive_of<Machine>(uri);
    o.drives = std::move(drives);
    o.device = Machine::device();
    o.timeout_ns = patience_ns();
    return o;
  }

  static void fill(storage& st, std::uint64_t generation, extent const* within = nullptr) {
    std::uint64_t const bytes = within != nullptr ? within->size_bytes : st.size_bytes();
    std::vector<std::uint64_t> words(bytes / 8);
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = stamp(i * 8, generation);
    st.pwrite(words.data(), bytes, 0, within);
  }

  static void expect_stamps(storage& st, std::uint64_t bytes, std::uint64_t generation,
                            extent const* within = nullptr) {
    std::vector<std::uint64_t> words(bytes / 8);
    st.pread(words.data(), bytes, 0, within);
    for (std::uint64_t i = 0; i < words.size(); ++i) ASSERT_EQ(words[i], stamp(i * 8, generation)) << "word " << i;
  }

  /// Runs `kernel` with its `result` set to memory that both sides reach.
  template <class Kernel>
  tally run(storage& st, simt::grid shape, Kernel kernel) {
    registered_buffer shared = st.allocate_buffer(sizeof(tally));
    kernel.result = reinterpret_cast<tally*>(shared.data());
    storage_lease const running = st.lease();
    [[maybe_unused]] auto const dog = watched(st);
    Machine::run(shape, kernel);
    return *kernel.result;
  }

  template <class Traits = uncached>
  tally read_all(storage& st, std::uint32_t threads, std::uint32_t rounds, std::uint32_t blocks_max,
                 std::uint64_t generation) {
    registered_buffer buffer = st.allocate_buffer(std::uint64_t{threads} * (blocks_max * st.block_bytes() + 64));
    std::uint64_t const seed = testing::UnitTest::GetInstance()->random_seed();
    SCOPED_TRACE("seed " + std::to_string(seed) + ", replay with --gtest_random_seed=" + std::to_string(seed));
    tally const t = run(st, {(threads + 63) / 64, 64},
                        read_ranges<fixture_machine, Traits>{st.ref<fixture_machine, Traits>(), buffer.ref(), threads,
                                                             rounds, blocks_max, seed, generation, nullptr});
    EXPECT_EQ(t.ok, threads * rounds) << to_string(status::from_bits(t.first_failure));
    EXPECT_EQ(t.wrong_data, 0u);
    return t;
  }

  void expect_refused(storage& st, buffer_ref buffer, std::uint64_t offset, std::uint64_t bytes, bool write,
                      status wanted) {
    tally const t = run(
        st, {1, 32}, one_transfer<fixture_machine>{st.ref<fixture_machine>(), buffer, offset, bytes, write, nullptr});
    EXPECT_EQ(t.failed, 1u);
    EXPECT_EQ(to_string(status::from_bits(t.first_failure)), to_string(wanted));
  }
};

TYPED_TEST_SUITE_P(StorageSuite);

/// Drives that are striped, and drives one after the other.
TYPED_TEST_P(StorageSuite, ZeroesAndDeallocatesExactlyTheRange) {
  using M = typename TypeParam::machine;
  constexpr std::uint64_t block = TestFixture::block_bytes;
  for (std::uint64_t const stripe : {3 * block, std::uint64_t{0}}) {
    auto options = this->options({"emulated:size=4M", "emulated:size=4M", "emulated:size=4M"});
    options.stripe_bytes = stripe;
    storage st(options);
    this->fill(st, 1);
    std::vector<std::uint64_t> expected(st.size_bytes() / 8);
    st.pread(expected.data(), st.size_bytes(), 0);
    registered_buffer const scratch = st.allocate_buffer(48);
    bool deallocates = false;
    for (auto const& [at, bytes] : {std::pair<std::uint64_t, std::uint64_t>{block, block},
                                    {8 * block, 5 * block},
                                    {(4 << 20) - 2 * block, 3 << 20},
                                    {0, block},
                                    {st.size_bytes() - 3 * block, 3 * block},
                                    {16 * block, 0}}) {
      SCOPED_TRACE("stripe " + std::to_string(stripe) + ", " + std::to_string(bytes) + " at " + std::to_string(at));
      tally const t = this->run(
          st, {1, 32}, one_clearing<M>{st.ref<M>(), deallocates ? scratch.ref() : buffer_ref(), at, bytes, nullptr});
      EXPECT_EQ(t.ok, 1u) << to_string(status::from_bits(t.first_failure));
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at / 8), bytes / 8, 0);
      std::vector<std::uint64_t> got(expected.size());
      st.pread(got.data(), st.size_bytes(), 0);
      EXPECT_EQ(got, expected);
      deallocates = !deallocates;
    }
  }
}

TYPED_TEST_P(StorageSuite, RefusesToClearWhatItCannot) {
  using M = typename TypeParam::machine;
  constexpr std::uint64_t block = TestFixture::block_bytes;
  auto options = this->options({"emulated:size=1M", "emulated:size=1M"});
  auto const outcome = [&](storage& st, buffer_ref scratch, std::uint64_t at, std::uint64_t bytes) {
    tally const t = this->run(st, {1, 32}, one_clearing<M>{st.ref<M>(), scratch, at, bytes, nullptr});
    return to_string(status::from_bits(t.first_failure));
  };
  {
    storage st(options);
    registered_buffer const buffer = st.allocate_buffer(64);
    for (buffer_ref const scratch : {buffer_ref(), buffer.ref()}) {
      EXPECT_EQ(outcome(st, scratch, 100, block), to_string(fault::bad_alignment));
      EXPECT_EQ(outcome(st, scratch, 0, 100), to_string(fault::bad_alignment));
      EXPECT_EQ(outcome(st, scratch, 2 << 20, block), to_string(fault::out_of_range));
    }
    EXPECT_EQ(outcome(st, buffer.ref().subspan(0, 16), 0, block), to_string(fault::out_of_range))
        << "room for one drive";
    EXPECT_EQ(outcome(st, buffer.ref().subspan(2, 40), 0, block), to_string(fault::bad_alignment));
  }
  options.read_only = true;
  storage st(options);
  registered_buffer const buffer = st.allocate_buffer(64);
  EXPECT_EQ(outcome(st, buffer_ref(), 0, block), to_string(fault::read_only));
  EXPECT_EQ(outcome(st, buffer.ref(), 0, block), to_string(fault::read_only));
}

TYPED_TEST_P(StorageSuite, ReadsWhatTheHostWrote) {
  storage st(this->options({"emulated:size=16M"}));
  this->fill(st, 1);
  this->read_all(st, 256, 4, 1, 1);
}

TYPED_TEST_P(StorageSuite, ReadsRangesFromOneBlockToManyTimesTheLargestCommand) {
  storage st(this->options({"emulated:size=32M"}));
  this->fill(st, 2);
  auto const blocks_per_command = static_cast<std::uint32_t>(st.layout().command_bytes_max / st.block_bytes());
  this->read_all(st, 4, 6, blocks_per_command * 3 + 5, 2);
  this->read_all(st, 64, 6, 40, 2);
}

TYPED_TEST_P(StorageSuite, WritesReachTheDrive) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=8M"}));
  constexpr std::uint32_t threads = 64;
  constexpr std::uint32_t blocks = 9;
  registered_buffer buffer = st.allocate_buffer(threads * write_all<M>::in_flight * blocks * TestFixture::block_bytes);
  tally const t = this->run(st, {1, threads}, write_all<M>{st.ref<M>(), buffer.ref(), threads, blocks, 3, nullptr});
  EXPECT_EQ(t.failed, 0u) << to_string(status::from_bits(t.first_failure));
  this->expect_stamps(st, st.size_bytes(), 3);
}

TYPED_TEST_P(StorageSuite, StripesOverDrivesWhoseDepthsAndBlocksMatch) {
  using M = typename TypeParam::machine;
  auto options = this->options({"emulated:size=4M", "emulated:size=5M", "emulated:size=4M"});
  options.stripe_bytes = 3 * TestFixture::block_bytes;
  storage st(options);
  EXPECT_EQ(st.size_bytes(), (4u << 20) / (3 * TestFixture::block_bytes) * (3 * TestFixture::block_bytes) * 3);
  registered_buffer buffer = st.allocate_buffer(64 * write_all<M>::in_flight * 7 * TestFixture::block_bytes);
  tally const t = this->run(st, {2, 32}, write_all<M>{st.ref<M>(), buffer.ref(), 64, 7, 4, nullptr});
  EXPECT_EQ(t.failed, 0u) << to_string(status::from_bits(t.first_failure));
  this->expect_stamps(st, st.size_bytes(), 4);
  this->read_all(st, 64, 4, 50, 4);
}

TYPED_TEST_P(StorageSuite, DrivesOneAfterTheOther) {
  using M = typename TypeParam::machine;
  auto options = this->options({"emulated:size=1100K", "emulated:size=2M", "emulated:size=3M"});
  options.stripe_bytes = 0;
  storage st(options);
  EXPECT_EQ(st.layout().bytes_per_drive(), 1088u << 10);
  EXPECT_EQ(st.size_bytes(), 3u * (1088 << 10));
  // Transfers of seven blocks, some of which begin on one drive and end on the next.
  registered_buffer buffer = st.allocate_buffer(64 * write_all<M>::in_flight * 7 * TestFixture::block_bytes);
  tally const t = this->run(st, {2, 32}, write_all<M>{st.ref<M>(), buffer.ref(), 64, 7, 9, nullptr});
  EXPECT_EQ(t.failed, 0u) << to_string(status::from_bits(t.first_failure));
  this->expect_stamps(st, st.size_bytes(), 9);
  this->read_all(st, 64, 4, 600, 9);
}

TYPED_TEST_P(StorageSuite, DrivesWithDifferentNumbersOfQueues) {
  using M = typename TypeParam::machine;
  using uneven = test::uncached_traits<uneven_rules<>>;
  auto options = this->options({"emulated:size=4M", "emulated:size=4M", "emulated:size=4M"});
  options.queues.of_drives = {{.count = 3, .depth = 5}, {.count = 1, .depth = 2}, {}};
  options.queues.per_drive = 5;
  storage st(options);
  constexpr std::uint32_t most = 100 * 1024 / TestFixture::block_bytes;
  registered_buffer buffer = st.allocate_buffer(256 * write_all<M>::in_flight * most * TestFixture::block_bytes);
  // Requests on one drive and on several; more than the shallow queues hold.
  for (std::uint32_t const blocks : {1u, most}) {
    tally const t =
        this->run(st, {4, 64}, write_all<M, uneven>{st.ref<M, uneven>(), buffer.ref(), 256, blocks, blocks, nullptr});
    EXPECT_EQ(t.failed, 0u) << to_string(status::from_bits(t.first_failure));
    this->expect_stamps(st, st.size_bytes(), blocks);
    this->template read_all<uneven>(st, 256, 4, blocks, blocks);
  }
}

TYPED_TEST_P(StorageSuite, ManyThreadsShareQueuesOfDepthTwoOrThree) {
  for (std::uint32_t const depth : {2u, 3u}) {
    auto options = this->options({"emulated:size=4M"});
    options.queues.per_drive = 2;
    options.queues.depth = depth;
    storage st(options);
    this->fill(st, 5);
    this->read_all(st, 512, 2, 3, 5);
  }
}

TYPED_TEST_P(StorageSuite, FewRecordsAndPrpPagesSlowButDoNotStop) {
  auto options = this->options({"emulated:size=4M"});
  options.queues.prp_list_pages = 1;
  storage st(options);
  this->fill(st, 6);
  this->read_all(st, 64, 4, 64, 6);
}

TYPED_TEST_P(StorageSuite, RefusesWhatItCannotDo) {
  storage st(this->options({"emulated:size=1M"}));
  constexpr std::uint64_t block = TestFixture::block_bytes;
  registered_buffer buffer = st.allocate_buffer(16 * block);
  buffer_ref const b = buffer.ref();
  this->expect_refused(st, b, 100, block, false, fault::bad_alignment);
  this->expect_refused(st, b, 0, 100, false, fault::bad_alignment);
  this->expect_refused(st, b.subspan(2, block), 0, block, false, fault::bad_alignment);
  this->expect_refused(st, b, 1 << 20, block, false, fault::out_of_range);
  this->expect_refused(st, b, ~(block - 1), 2 * block, false, fault::out_of_range);
  this->expect_refused(st, b.subspan(0, block), 0, 2 * block, true, fault::out_of_range);
  this->expect_refused(st, b.subspan(16 * block - 192, block), 0, block, true, fault::out_of_range);
  this->expect_refused(st, buffer_ref(), 0, block, true, fault::not_registered);
}

TYPED_TEST_P(StorageSuite, TheDriveRefusesMemoryThatNobodyRegistered) {
  if (!checks_addresses<TypeParam>()) GTEST_SKIP() << "these drives do not report it";
  storage st(this->options({"emulated:size=1M"}));
  registered_buffer buffer = st.allocate_buffer(4096);
  std::uint64_t const elsewhere = 0x1000;  // the zero page's neighbour belongs to nobody
  this->expect_refused(st, buffer_ref(buffer.data(), TestFixture::block_bytes, elsewhere), 0, TestFixture::block_bytes,
                       false, status::from_nvme(static_cast<std::uint32_t>(nvme::generic_status::data_transfer_error)));
}

TYPED_TEST_P(StorageSuite, ReadOnlyStorageIsNotWritten) {
  auto options = this->options({"emulated:size=1M"});
  options.read_only = true;
  storage st(options);
  registered_buffer buffer = st.allocate_buffer(4096);
  this->expect_refused(st, buffer.ref(), 0, TestFixture::block_bytes, true, fault::read_only);
  char byte = 1;
  EXPECT_THROW(st.pwrite(&byte, 1, 0), refused_input);
}

TYPED_TEST_P(StorageSuite, DetachedWritesComplete) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=1M,latency_us=200"}));
  constexpr std::uint32_t threads = 128;
  registered_buffer buffer = st.allocate_buffer(threads * TestFixture::block_bytes);
  storage_lease const running = st.lease();
  TypeParam::run({2, 64}, write_detached<M>{st.ref<M>(), buffer.ref(), threads, 7});
  EXPECT_TRUE(st.drain(5'000'000'000));
  this->expect_stamps(st, threads * TestFixture::block_bytes, 7);
}

TYPED_TEST_P(StorageSuite, AnExtentIsAWindowOfItsOwn) {
  using M = typename TypeParam::machine;
  storage st(this->options({"emulated:size=8M"}));
  st.create_extent("other", 100);
  extent const mine = st.create_extent("mine", 3000);
  EXPECT_EQ(mine.first_byte, 2u << 20);
  storage_ref<M> const ref = st.ref<M>(mine);
  std::uint64_t const whole_blocks = (3000 + TestFixture::block_bytes - 1) / TestFixture::block_bytes;
  EXPECT_EQ(ref.size_bytes(), whole_blocks * TestFixture::block_bytes);
  registered_buffer buffer = st.allocate_buffer(64 * write_all<M>::in_flight * TestFixture::block_bytes);
  tally const t = this->run(st, {1, 32}, write_all<M>{ref, buffer.ref(), 32, 1, 8, nullptr});
  EXPECT_EQ(t.ok, whole_blocks) << to_string(status::from_bits(t.first_failure));
  this->expect_stamps(st, 3000, 8, &mine);
  this->expect_refused(st, buffer.ref(), 0, TestFixture::block_bytes, true,
                       fault::read_only);  // raw writes need allow_destroy now
}

REGISTER_TYPED_TEST_SUITE_P(StorageSuite, ReadsWhatTheHostWrote, ReadsRangesFromOneBlockToManyTimesTheLargestCommand,
                            WritesReachTheDrive, StripesOverDrivesWhoseDepthsAndBlocksMatch, DrivesOneAfterTheOther,
                            DrivesWithDifferentNumbersOfQueues, ManyThreadsShareQueuesOfDepthTwoOrThree,
                            FewRecordsAndPrpPagesSlowButDoNotStop, RefusesWhatItCannotDo,
                            TheDriveRefusesMemoryThatNobodyRegistered, ReadOnlyStorageIsNotWritten,
                            DetachedWritesComplete, AnExtentIsAWindowOfItsOwn, ZeroesAndDeallocatesExactlyTheRange,
                            RefusesToClearWhatItCannot);

}  // namespace forebay::storage_test
