// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/status_text.hpp"
#include "library/soak.hpp"
#include "support/traits.hpp"

namespace forebay::bench {
namespace {

using M = simt::fiber;
using pools = frame_pools<share_all>;
using soaked = storage_ref<M, test::traits<replacement::clock, false, pools>>;

constexpr std::uint32_t streams = 4, threads = 32, drive_count = 4, failing = 3;

class library_soak : public ::testing::Test {
 protected:
  library_soak() {
    seed = static_cast<std::uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
    std::printf("seed %llu, replay with --gtest_random_seed=%llu\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(seed));
  }
  static storage_options options(std::uint32_t errors_ppm, std::uint64_t drive_seed = 3) {
    storage_options o;
    o.drives.assign(drive_count, "emulated:size=512K,threads=1");
    o.drives[failing] += ",seed=" + std::to_string(drive_seed) + ",errors_ppm=" + std::to_string(errors_ppm);
    o.device = "cpu";
    o.stripe_bytes = 4096;
    o.cache.size_bytes = 64 * 4096;
    o.cache.user_frames = 16;
    o.cache.overflow_frames = 64;
    return o;
  }
  /// A drive that fails when it is opened cannot be used: the test takes another one.
  storage opened(std::uint32_t errors_ppm) const {
    for (std::uint64_t s = seed;; ++s) {
      try {
        return storage(options(errors_ppm, s));
      } catch (operation_failed const&) {
        if (s == seed + 1000) throw;
      }
    }
  }
  /// Four kernels at a time, and a thread that flushes.
  void soak(storage& drives, std::uint32_t steps) {
    written.resize(drives.size_bytes() / 8);
    for (std::uint64_t i = 0; i < written.size(); ++i) written[i] = soak_word(i, 0);
    ASSERT_LT(in_spite_of_failures([&] { drives.pwrite(written.data(), written.size() * 8, 0); }), 1000u);
    buffers = drives.allocate_device_buffer(streams * threads * 4096);
    auto const ref = drives.ref<M, test::traits<replacement::clock, false, pools>>();
    std::vector<std::thread> kernels;
    for (std::uint32_t s = 0; s < streams; ++s) {
      kernels.emplace_back([&, s] {
        soak_work const work{.steps = steps,
                             .seed = seed,
                             .first_thread = s * threads,
                             .all_threads = streams * threads,
                             .failing_drive = failing,
                             .drives = drive_count};
        simt::launch<M>({.blocks = 1, .threads_per_block = threads},
                        soak_kernel<M, soaked>{ref, buffers.ref().subspan(s * threads * 4096, threads * 4096), work,
                                               written.data(), numbers.data(), &seen});
      });
    }
    for (int i = 0; i < 20; ++i) failed_flushes += in_spite_of_failures([&] { drives.flush(); }, 1);
    for (std::thread& k : kernels) k.join();
  }
  std::uint64_t failures() const {
    std::uint64_t sum = failed_flushes;
    for (std::uint64_t const f : seen.failed) sum += f;
    return sum;
  }
  static std::uint64_t injected(storage const& drives) {
    return nlohmann::json::parse(drives.report())["drives"][failing]["statistics"]["injected_errors"]
        .get<std::uint64_t>();
  }

  std::uint64_t seed;
  std::vector<std::uint64_t> written;
  std::vector<std::uint32_t> numbers = std::vector<std::uint32_t>(streams * threads);
  soak_result seen;
  registered_buffer buffers;
  std::uint64_t failed_flushes = 0;
};

TEST_F(library_soak, ends_with_what_was_written_though_a_drive_fails) {
  // Far more often than on a GPU, because a run is a thousand times as short.
  storage drives = opened(10'000);
  soak(drives, 150);
  EXPECT_EQ(seen.wrong, 0u);
  EXPECT_EQ(seen.strange, 0u) << soak_step_names[seen.first_strange_step] << ": "
                              << to_string(status::from_bits(seen.first_strange));
  EXPECT_EQ(seen.unsettled, 0u) << soak_step_names[seen.first_unsettled_step] << ": "
                                << to_string(status::from_bits(seen.first_unsettled));
  for (std::uint32_t s = 0; s < soak_steps; ++s) EXPECT_GT(seen.done[s], 0u) << soak_step_names[s];
  EXPECT_GT(injected(drives), 0u);
  EXPECT_GT(failures(), 0u);
  EXPECT_EQ(soak_wrong_words(drives, written, &failed_flushes), 0u);
  EXPECT_LT(in_spite_of_failures([&] { drives.take_back(buffers); }), 1000u);
}

TEST_F(library_soak, has_no_failures_where_no_drive_fails) {
  storage drives(options(0));
  soak(drives, 100);
  EXPECT_EQ(failures(), 0u);
  EXPECT_EQ(seen.wrong + seen.strange + seen.unsettled, 0u);
  EXPECT_EQ(soak_wrong_words(drives, written), 0u);
}

TEST_F(library_soak, sees_a_word_that_is_wrong) {
  storage drives(options(0));
  soak(drives, 5);
  std::uint64_t word = 0;
  drives.pread(&word, 8, 77'777 * 8);
  word ^= 1;
  drives.pwrite(&word, 8, 77'777 * 8);
  EXPECT_EQ(soak_wrong_words(drives, written), 1u);
}

}  // namespace
}  // namespace forebay::bench
