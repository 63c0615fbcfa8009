// SPDX-License-Identifier: Apache-2.0
//! \file
//! The ordering flush of placement 2, on drives whose data comes after its completion. For CPU fibers and for CUDA.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "forebay/storage.hpp"
#include "storage/patience.hpp"
#include "storage/storage_kernels.hpp"
#include "support/late_scheme.hpp"

namespace forebay::storage_test {

/// `Machine`: as for `StorageSuite`, and `static int placement()`, that of such a drive.
template <class Machine>
class LateDataSuite : public testing::Test {
 protected:
  struct outcome {
    tally seen;
    std::uint64_t flushes = 0;
    int placement = 0;
  };

  /// Threads read random ranges of drives that hold stamps, into memory that both or only the GPU reaches.
  static outcome read_from(std::vector<std::string> const& drives, bool device_buffer, std::uint32_t threads,
                           std::uint32_t rounds) {
    using machine = typename Machine::machine;
    test::add_late_scheme();
    storage_options o;
    for (std::string const& keys : drives) o.drives.push_back("late:size=4M," + keys + Machine::drive_keys());
    o.device = Machine::device();
    o.timeout_ns = patience_ns();
    o.queues.per_drive = 4;
    o.queues.depth = 32;
    storage st(o);
    std::vector<std::uint64_t> words(st.size_bytes() / 8);
    for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = stamp(i * 8, 1);
    st.pwrite(words.data(), st.size_bytes(), 0);
    std::uint32_t constexpr blocks_max = 24;
    std::uint64_t const bytes = std::uint64_t{threads} * (blocks_max * st.block_bytes() + 64);
    registered_buffer const buffer = device_buffer ? st.allocate_device_buffer(bytes) : st.allocate_buffer(bytes);
    registered_buffer const shared = st.allocate_buffer(sizeof(tally));
    auto* const seen = reinterpret_cast<tally*>(shared.data());
    {
      storage_lease const running = st.lease();
      Machine::run({(threads + 63) / 64, 64}, read_ranges<machine>{st.ref<machine>(), buffer.ref(), threads, rounds,
                                                                   blocks_max, 20261128, 1, seen});
    }
    auto const report = nlohmann::json::parse(st.report());
    return {*seen, report.at("ordering_flushes"), report.at("placement")};
  }
};

TYPED_TEST_SUITE_P(LateDataSuite);

TYPED_TEST_P(LateDataSuite, ReadsHaveTheirDataWhenTheyComplete) {
  for (bool const device_buffer : {true, false}) {
    // Of the second storage's drives, one sends data late now and then, and one always.
    for (std::vector<std::string> const& drives :
         {std::vector<std::string>{"lag_us=50"}, {"lag_us=20,ppm=200000", "lag_us=50"}}) {
      auto const got = this->read_from(drives, device_buffer, 128, 32);
      EXPECT_EQ(got.seen.ok, 128u * 32u);
      EXPECT_EQ(got.seen.wrong_data, 0u);
      EXPECT_GT(got.flushes, 0u);
      EXPECT_EQ(got.placement, TypeParam::placement());
    }
  }
}

TYPED_TEST_P(LateDataSuite, WithoutTheFlushReadsCompleteBeforeTheirData) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "it has a data race on purpose";
#endif
  auto const got = this->read_from({"lag_us=1000000,flushes=0"}, true, 64, 4);
  EXPECT_EQ(got.seen.ok + got.seen.wrong_data, 64u * 4u);
  EXPECT_GT(got.seen.wrong_data, 0u);
}

REGISTER_TYPED_TEST_SUITE_P(LateDataSuite, ReadsHaveTheirDataWhenTheyComplete,
                            WithoutTheFlushReadsCompleteBeforeTheirData);

}  // namespace forebay::storage_test
