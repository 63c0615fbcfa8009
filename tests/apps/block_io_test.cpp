// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "apps/block_io/kernel.hpp"
#include "forebay/detail/simt/native.hpp"
#include "support/memory_storage.hpp"

namespace forebay::block_io {
namespace {

using M = simt::native;
using testing::memory_buffer;
using testing::memory_drive;
using testing::memory_request;
using testing::memory_storage_ref;
using testing::memory_token;
template <bool Lands>
using test_kernel = kernel<M, memory_storage_ref, memory_buffer, Lands>;

class block_io : public ::testing::Test {
 protected:
  block_io() {
    drive.contents.resize(64 << 10);
    work = {.region_bytes = 64 << 10, .commands = 500, .timeout_ns = 200'000'000, .iodepth = 8};
  }

  void lay_down(std::uint64_t seed, apps::generation g = apps::generation::laid_down) {
    apps::fill_pattern<M>(drive.contents.data(), drive.contents.size(), 0, seed, g);
  }

  template <bool Lands = false>
  thread_result run() {
    control = {};
    std::vector<std::byte> memory(work.iodepth * work.block_bytes);
    std::vector<typename test_kernel<Lands>::slot_type> slots(work.iodepth);
    std::vector<thread_result> results(work.threads);
    written.assign(work.region_bytes / work.block_bytes / 32 + 1, 0);
    test_kernel<Lands>{memory_storage_ref(drive),
                       {memory.data(), memory.size()},
                       landing.data(),
                       work,
                       &control,
                       slots.data(),
                       results.data(),
                       reads.bins.data(),
                       writes.bins.data(),
                       written.data()}();
    return results[0];
  }

  memory_drive drive;
  workload work;
  struct control control;
  apps::latency_distribution reads, writes;
  std::vector<std::uint32_t> written;
  std::vector<std::byte> landing;
};

TEST_F(block_io, does_as_many_commands_as_asked_and_keeps_iodepth_in_flight) {
  drive.looks = [](std::size_t n) { return static_cast<std::uint32_t>(n % 5); };  // out of order
  auto const result = run();
  EXPECT_EQ(drive.requests.size(), 500u);
  EXPECT_EQ(result.read.completion.count, 500u);
  EXPECT_EQ(drive.most_in_flight, 8u);
  EXPECT_EQ(drive.in_flight, 0u);
  EXPECT_EQ(result.errors, 0u);
}

TEST_F(block_io, sequential_reads_cover_the_region_in_order_and_wrap) {
  work.random = false;
  work.first_byte = 8 << 10;
  work.region_bytes = 16 << 10;
  work.commands = 40;
  run();
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(drive.requests[i].offset_bytes, (8u << 10) + i % 32 * 512);
}

TEST_F(block_io, random_reads_stay_in_the_region_and_depend_on_the_seed) {
  work.first_byte = 8 << 10;
  work.region_bytes = 16 << 10;
  std::set<std::uint64_t> seen;
  run();
  auto const first = std::exchange(drive.requests, {});
  for (auto const& r : first) {
    EXPECT_GE(r.offset_bytes, 8u << 10);
    EXPECT_LE(r.offset_bytes + r.bytes, 24u << 10);
    EXPECT_EQ(r.offset_bytes % 512, 0u);
    seen.insert(r.offset_bytes);
  }
  EXPECT_EQ(seen.size(), 32u);
  run();
  EXPECT_EQ(std::exchange(drive.requests, {})[7].offset_bytes, first[7].offset_bytes);
  work.seed = 2;
  run();
  bool differs = false;
  for (std::size_t i = 0; i < first.size(); ++i) differs |= drive.requests[i].offset_bytes != first[i].offset_bytes;
  EXPECT_TRUE(differs);
}

TEST_F(block_io, mix_has_the_asked_share_of_reads) {
  work.read_percent = 70;
  work.commands = 10000;
  auto const result = run();
  EXPECT_EQ(result.read.completion.count + result.write.completion.count, 10000u);
  EXPECT_NEAR(static_cast<double>(result.read.completion.count), 7000, 200);
}

TEST_F(block_io, verify_holds_for_reads_of_what_was_laid_down) {
  work.verify = work.laid_down = true;
  lay_down(work.seed);
  EXPECT_EQ(run().mismatches, 0u);
}

TEST_F(block_io, verify_sees_one_flipped_bit) {
  work.verify = work.laid_down = true;
  work.random = false;
  work.commands = 128;
  lay_down(work.seed);
  drive.contents[5 * 512 + 511] ^= std::byte{0x80};
  auto const result = run();
  EXPECT_EQ(result.mismatches, 1u);
  EXPECT_EQ(result.first_mismatch_byte, 5u * 512);
}

TEST_F(block_io, verify_sees_data_of_another_address) {
  work.verify = work.laid_down = true;
  lay_down(work.seed);
  drive.tamper = [this](memory_request const& request, std::span<std::byte> data) {
    if (request.offset_bytes == 512) std::copy_n(drive.contents.data(), data.size(), data.data());
  };
  work.random = false;
  work.commands = 128;
  EXPECT_EQ(run().mismatches, 1u);
}

TEST_F(block_io, verify_sees_another_seed) {
  work.verify = work.laid_down = true;
  lay_down(work.seed + 17);
  EXPECT_EQ(run().mismatches, 500u);
}

TEST_F(block_io, verify_holds_for_a_mix_and_marks_what_was_written) {
  work.verify = work.laid_down = true;
  work.read_percent = 50;
  lay_down(work.seed);
  auto const result = run();
  EXPECT_EQ(result.mismatches, 0u);
  for (auto const& r : drive.requests) {
    std::uint64_t const block = r.offset_bytes / 512;
    if (r.is_write) {
      EXPECT_TRUE(written[block / 32] >> block % 32 & 1);
    }
  }
}

TEST_F(block_io, reads_end_and_writes_begin_in_memory_that_the_drives_do_not_reach) {
  work.verify = work.laid_down = true;
  work.read_percent = 50;
  landing.assign(work.iodepth * work.block_bytes, std::byte{0x5a});
  lay_down(work.seed);
  auto const result = run<true>();
  EXPECT_EQ(result.mismatches, 0u);
  EXPECT_GT(result.read.completion.count, 0u);
  EXPECT_GT(result.write.completion.count, 0u);
  // No block was written from where nothing was copied to.
  auto const* const contents = drive.contents.data();
  for (std::uint64_t at = 0; at < work.region_bytes; at += work.block_bytes) {
    EXPECT_TRUE(apps::matches_either_pattern<M>(contents + at, work.block_bytes, at, work.seed)) << at;
  }
}

TEST_F(block_io, reads_bring_their_data_to_memory_that_the_drives_do_not_reach) {
  work.iodepth = 1;
  work.random = false;
  work.commands = 3;
  landing.assign(work.block_bytes, std::byte{0x5a});
  lay_down(work.seed);
  run<true>();
  EXPECT_TRUE(std::equal(landing.begin(), landing.end(), drive.contents.begin() + 2 * 512));
}

TEST_F(block_io, verify_sees_a_write_that_was_lost) {
  work.verify = work.laid_down = true;
  work.read_percent = 50;
  lay_down(work.seed);
  auto const before = drive.contents;
  drive.tamper = [&](memory_request const& request, std::span<std::byte> data) {
    std::copy_n(before.data() + request.offset_bytes, data.size(), data.data());
  };
  EXPECT_GT(run().mismatches, 0u);
}

TEST_F(block_io, an_error_stops_the_run_and_is_reported) {
  drive.outcome = [](std::size_t n) { return n == 100 ? status::from_nvme(0x281) : status(); };
  auto const result = run();
  EXPECT_EQ(result.errors, 1u);
  EXPECT_EQ(result.first_error, status::from_nvme(0x281));
  EXPECT_LT(drive.requests.size(), 200u);
  EXPECT_EQ(drive.in_flight, 0u);
}

TEST_F(block_io, what_was_not_started_is_tried_again) {
  drive.outcome = [](std::size_t n) { return n % 3 == 0 ? status(fault::no_record) : status(); };
  auto const result = run();
  EXPECT_EQ(result.errors, 0u);
  EXPECT_EQ(result.read.completion.count, 500u);
}

TEST_F(block_io, commands_that_never_return_end_the_run_as_timed_out) {
  drive.looks = [](std::size_t n) { return n >= 20 ? memory_token::never : 0u; };
  work.timeout_ns = 1000;
  auto const result = run();
  EXPECT_EQ(result.first_error, status(fault::timed_out));
  EXPECT_EQ(drive.in_flight, 0u);
}

TEST_F(block_io, a_timed_run_leaves_the_ramp_out) {
  work.ramp_ns = 5'000'000;
  work.runtime_ns = 20'000'000;
  drive.looks = [](std::size_t) { return 10u; };
  auto const result = run();
  EXPECT_GT(result.read.completion.count, 0u);
  EXPECT_LT(result.read.completion.count, drive.requests.size());
  EXPECT_GE(result.last_completion_ns, control.epoch_ns + work.ramp_ns);
  EXPECT_LT(result.last_completion_ns, control.epoch_ns + work.ramp_ns + work.runtime_ns);
}

}  // namespace
}  // namespace forebay::block_io
