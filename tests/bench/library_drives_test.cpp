// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/executor.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "library/drives.hpp"

namespace forebay::bench {
namespace {

using cpu_executor = apps::executor<simt::fiber>;
using M = cpu_executor::machine;

/// 0: without a cache.
class library_drives : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  static storage_options options() {
    storage_options o;
    o.drives.assign(3, "emulated:size=256K,threads=1");
    o.device = "cpu";
    o.stripe_bytes = 4096;
    o.cache.size_bytes = GetParam();
    return o;
  }
  library_drives() { work.blocks = drives.size_bytes() / work.block_bytes; }

  template <class Storage>
  drives_result fill(Storage const& storage) {
    drives_result seen;
    run(shape, fill_blocks<M, Storage, buffer_ref>{storage, buffers.ref(), work, &seen});
    return seen;
  }
  template <class Storage>
  drives_result transfer(Storage const& storage) {
    drives_result seen;
    run(shape, transfer_blocks<M, Storage, buffer_ref>{storage, buffers.ref(), work, &seen});
    return seen;
  }
  /// Whatever the storage is.
  template <class Use>
  drives_result with(Use&& use) {
    return GetParam() == 0 ? use(drives.ref<M>()) : use(drives.ref<M, cached>());
  }

  simt::grid shape{.blocks = 2, .threads_per_block = 64};
  cpu_executor run;
  storage drives{options()};
  registered_buffer buffers = drives.allocate_device_buffer(128 * 4096);
  drives_work work;
};

TEST_P(library_drives, reads_what_was_written_and_counts_what_was_not) {
  EXPECT_EQ(with([&](auto const& s) { return fill(s); }).transfers, 192u);
  work.transfers = 30;
  for (bool const writes : {false, true, false}) {
    work.writes = writes;
    ++work.seed;
    drives_result const seen = with([&](auto const& s) { return transfer(s); });
    EXPECT_EQ(seen.transfers, 128u * 30);
    EXPECT_EQ(seen.failed + seen.wrong, 0u);
  }
  if (GetParam() != 0) {
    drives_result seen;
    auto const words = drives.ref<M, cached>().array<std::uint64_t const>();
    run(shape, load_blocks<M, std::remove_const_t<decltype(words)>>{words, work, &seen});
    EXPECT_EQ(seen.transfers, 128u * 30);
    EXPECT_EQ(seen.failed + seen.wrong, 0u);
  }
  drives.flush();
  std::uint64_t const spoilt = 77;
  std::uint64_t word = 0;
  drives.pread(&word, 8, spoilt * 4096);
  EXPECT_EQ(word, drives_stamp(spoilt));
  word ^= 1;
  drives.pwrite(&word, 8, spoilt * 4096);
  std::uint64_t hit = 0;
  for (std::uint64_t t = 0; t < 128; ++t) {
    for (std::uint32_t k = 0; k < work.transfers; ++k) hit += work.block(t, k) == spoilt ? 1 : 0;
  }
  ASSERT_GT(hit, 0u);
  EXPECT_EQ(with([&](auto const& s) { return transfer(s); }).wrong, hit);
}

TEST_P(library_drives, use_all_drives_alike_and_stop_in_time) {
  with([&](auto const& s) { return fill(s); });
  std::vector<std::uint64_t> of_drive(3);
  work.transfers = 100;
  for (std::uint64_t t = 0; t < 128; ++t) {
    for (std::uint32_t k = 0; k < work.transfers; ++k) ++of_drive[work.block(t, k) % 3];
  }
  for (std::uint64_t const n : of_drive) EXPECT_NEAR(static_cast<double>(n), 128 * 100 / 3.0, 300);
  work.transfers = ~std::uint32_t{0};
  work.run_ns = 1'000'000;
  EXPECT_GT(with([&](auto const& s) { return transfer(s); }).transfers, 0u);
}

/// Past no cache, and through one of two sets of 16 pages.
INSTANTIATE_TEST_SUITE_P(caches, library_drives, ::testing::Values(0u, 32u * 4096));

}  // namespace
}  // namespace forebay::bench
